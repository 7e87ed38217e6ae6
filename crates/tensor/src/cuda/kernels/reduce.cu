// Sums over rows, in two steps and always in the same order: a block adds up some rows of some columns, and a second
// kernel adds the blocks' sums to the result.

// partial[chunk, column] = sum of x over the rows of a chunk, in blocks of 32 x 8 threads; a thread takes eight columns.
template <typename T> __device__ void column_partials_by_8(const T* x, i64 rows, int columns, int per_chunk, float* partial) {
    int c = (blockIdx.x * 32 + threadIdx.x) * 8;
    i64 first = (i64)blockIdx.y * per_chunk, last = first + per_chunk < rows ? first + per_chunk : rows;
    float sum[8] = {};
    if (c < columns)
#pragma unroll 4
        for (i64 row = first + threadIdx.y; row < last; row += 8) {
            float v[8];
            load8(x + row * columns + c, v);
            for (int j = 0; j < 8; ++j) sum[j] += v[j];
        }
    store_column_partials(sum, columns, partial);
}

// The same for any width; a thread takes one column.
template <typename T> __device__ void column_partials_by_1(const T* x, i64 rows, int columns, int per_chunk, float* partial) {
    __shared__ float shared[8][32];
    int c = blockIdx.x * 32 + threadIdx.x;
    i64 first = (i64)blockIdx.y * per_chunk, last = first + per_chunk < rows ? first + per_chunk : rows;
    float sum = 0.0f;
    if (c < columns)
        for (i64 row = first + threadIdx.y; row < last; row += 8) sum += to_float(x[row * columns + c]);
    shared[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || c >= columns) return;
    float total = 0.0f;
    for (int y = 0; y < 8; ++y) total += shared[y][threadIdx.x];
    partial[(i64)blockIdx.y * columns + c] = total;
}

extern "C" __global__ void column_partials_act_by_8(const act* x, i64 rows, int columns, int per_chunk, float* partial) {
    column_partials_by_8<act>(x, rows, columns, per_chunk, partial);
}
extern "C" __global__ void column_partials_act_by_1(const act* x, i64 rows, int columns, int per_chunk, float* partial) {
    column_partials_by_1<act>(x, rows, columns, per_chunk, partial);
}
extern "C" __global__ void column_partials_f32_by_8(const float* x, i64 rows, int columns, int per_chunk, float* partial) {
    column_partials_by_8<float>(x, rows, columns, per_chunk, partial);
}
extern "C" __global__ void column_partials_f32_by_1(const float* x, i64 rows, int columns, int per_chunk, float* partial) {
    column_partials_by_1<float>(x, rows, columns, per_chunk, partial);
}

// The sum over chunks of one column of partial sums, for blocks of 32 x 32 threads: each row of threads adds up a part.
// There are few columns, so these kernels take as long as their longest chain of additions.
__device__ float sum_of_chunks(const float* partial, int chunks, int columns, int c) {
    __shared__ float shared[32][32];
    float sum = 0.0f;
    if (c < columns) {
#pragma unroll 8
        for (int i = threadIdx.y; i < chunks; i += 32) sum += partial[(i64)i * columns + c];
    }
    shared[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0) return 0.0f;
    sum = 0.0f;
#pragma unroll
    for (int y = 0; y < 32; ++y) sum += shared[y][threadIdx.x];
    return sum;
}

// out[c] += sum over chunks of partial[chunk, c].
extern "C" __global__ void add_partials(const float* partial, int chunks, int columns, float* out) {
    int c = blockIdx.x * 32 + threadIdx.x;
    float sum = sum_of_chunks(partial, chunks, columns, c);
    if (threadIdx.y == 0 && c < columns) out[c] += sum;
}

// The same for partial sums [chunks, 2, columns] of two vectors.
extern "C" __global__ void add_partial_pairs(const float* partial, int chunks, int columns, float* first, float* second) {
    int c = blockIdx.x * 32 + threadIdx.x;
    float sum = sum_of_chunks(partial, chunks, 2 * columns, c);
    if (threadIdx.y > 0 || c >= 2 * columns) return;
    if (c < columns)
        first[c] += sum;
    else
        second[c - columns] += sum;
}

// y = factor partial, as activations.
extern "C" __global__ void scaled_partials(const float* partial, i64 count, float factor, act* y) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = from_float<act>(factor * partial[i]);
}
