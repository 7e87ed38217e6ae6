// A factor for each row of a parameter.

extern "C" __global__ void scale_rows(const float* x, const float* factors, i64 rows, int columns, float* y) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * columns) y[i] = factors[i / columns] * x[i];
}

// dx += f dy, and df += <x, dy> for each row; a warp a row.
extern "C" __global__ void scale_rows_backward(const float* x, const float* factors, const float* dy, i64 rows, int columns,
                                               float* dx, float* d_factors) {
    i64 row = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;
    float factor = factors[row], sum = 0.0f;
    for (i64 i = row * columns + lane; i < (row + 1) * columns; i += 32) {
        dx[i] += factor * dy[i];
        sum += x[i] * dy[i];
    }
    sum = warp_sum(sum);
    if (lane == 0) d_factors[row] += sum;
}
