// Weight-normalised prototypes w_k = g_k v_k / |v_k|, rows scaled to unit length, and batch norm of a head's layers.

// w in the type of activations, and 1 / |v_k|. A warp takes a prototype.
extern "C" __global__ void normalized_prototypes(const float* g, const float* v, i64 count, int dim, act* w, float* inverse) {
    i64 k = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (k >= count) return;
    int lane = threadIdx.x & 31;
    v += k * dim, w += k * dim;
    float sum = 0.0f;
    for (int c = lane; c < dim; c += 32) sum += v[c] * v[c];
    float i = 1.0f / sqrtf(warp_sum(sum)), factor = g[k] * i;
    for (int c = lane; c < dim; c += 32) w[c] = from_float<act>(v[c] * factor);
    if (lane == 0) inverse[k] = i;
}

// From dw (the gradient of w_k) to those of g and v:  dg += <dw, v^>,  dv += g / |v| (dw - <dw, v^> v^).
extern "C" __global__ void through_weight_norm(const float* dw, const float* v, const float* g, const float* inverse,
                                               i64 count, int dim, float* dg, float* dv) {
    i64 k = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (k >= count) return;
    int lane = threadIdx.x & 31;
    dw += k * dim, v += k * dim, dv += k * dim;
    float sum = 0.0f;
    for (int c = lane; c < dim; c += 32) sum += dw[c] * v[c];
    float i = inverse[k], along = warp_sum(sum) * i, scale = g[k] * i, back = along * i;
    for (int c = lane; c < dim; c += 32) dv[c] = fmaf(dw[c] - back * v[c], scale, dv[c]);
    if (lane == 0) dg[k] += along;
}

// y = x / max(|x|, epsilon), row by row; a warp takes a row.
extern "C" __global__ void l2_normalize_forward(const act* x, i64 rows, int dim, float epsilon, act* y, float* norms) {
    i64 row = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= rows) return;
    int lane = threadIdx.x & 31;
    x += row * dim, y += row * dim;
    float sum = 0.0f;
    for (int c = lane; c < dim; c += 32) sum += to_float(x[c]) * to_float(x[c]);
    float norm = sqrtf(warp_sum(sum));
    // Written so that a NaN stays one.
    norm = norm < epsilon ? epsilon : norm;
    for (int c = lane; c < dim; c += 32) y[c] = from_float<act>(to_float(x[c]) / norm);
    if (lane == 0) norms[row] = norm;
}

// dx = (dy - y <y, dy>) / |x|; below epsilon the forward pass divided by a constant, so nothing flows through the norm.
extern "C" __global__ void l2_normalize_backward(const act* y, const float* norms, const act* dy, i64 rows, int dim,
                                                 float epsilon, act* dx) {
    i64 row = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= rows) return;
    int lane = threadIdx.x & 31;
    y += row * dim, dy += row * dim, dx += row * dim;
    float sum = 0.0f;
    for (int c = lane; c < dim; c += 32) sum += to_float(y[c]) * to_float(dy[c]);
    float along = warp_sum(sum);
    if (!(norms[row] > epsilon)) along = 0.0f;
    for (int c = lane; c < dim; c += 32) dx[c] = from_float<act>((to_float(dy[c]) - to_float(y[c]) * along) / norms[row]);
}

// Sums over a block of 32 x 32 threads, one for each of its 32 columns; every thread gets its column's.
__device__ float column_sum(float x, float (*shared)[33]) {
    __syncthreads();
    shared[threadIdx.y][threadIdx.x] = x;
    __syncthreads();
    float sum = warp_sum(shared[threadIdx.x][threadIdx.y]);
    __syncthreads();
    if (threadIdx.x == 0) shared[0][threadIdx.y] = sum;
    __syncthreads();
    return shared[0][threadIdx.x];
}

// Batch norm with the statistics of the rows at hand. A block of 32 x 32 threads takes 32 columns.
extern "C" __global__ void batch_norm_forward(const act* x, const float* weight, const float* bias, i64 rows, int columns,
                                              float epsilon, act* y, float* mean, float* variance) {
    __shared__ float shared[32][33];
    int c = blockIdx.x * 32 + threadIdx.x;
    bool inside = c < columns;
    float sum = 0.0f;
    for (i64 r = threadIdx.y; inside && r < rows; r += 32) sum += to_float(x[r * columns + c]);
    float m = column_sum(sum, shared) / rows;
    sum = 0.0f;
    for (i64 r = threadIdx.y; inside && r < rows; r += 32) {
        float d = to_float(x[r * columns + c]) - m;
        sum += d * d;
    }
    float v = column_sum(sum, shared) / rows;
    if (!inside) return;
    float scale = weight[c] / sqrtf(v + epsilon);
    for (i64 r = threadIdx.y; r < rows; r += 32)
        y[r * columns + c] = from_float<act>((to_float(x[r * columns + c]) - m) * scale + bias[c]);
    if (threadIdx.y == 0) mean[c] = m, variance[c] = v;
}

// Sums of dy and of dy times the normalised input over the rows of column c, for all threads of a block.
__device__ void gradient_sums(const act* x, const act* dy, float m, float rstd, i64 rows, int columns, int c, float& sum,
                              float& sum_hat) {
    __shared__ float shared[32][33];
    sum = 0.0f, sum_hat = 0.0f;
    for (i64 r = threadIdx.y; c < columns && r < rows; r += 32) {
        float d = to_float(dy[r * columns + c]);
        sum += d, sum_hat += d * (to_float(x[r * columns + c]) - m) * rstd;
    }
    sum = column_sum(sum, shared), sum_hat = column_sum(sum_hat, shared);
}

extern "C" __global__ void batch_norm_backward(const act* x, const float* mean, const float* variance, const float* weight,
                                               float epsilon, const act* dy, i64 rows, int columns, act* dx,
                                               float* d_weight, float* d_bias) {
    int c = blockIdx.x * 32 + threadIdx.x;
    bool inside = c < columns;
    float m = inside ? mean[c] : 0.0f, rstd = inside ? rsqrtf(variance[c] + epsilon) : 0.0f;
    float sum, sum_hat;
    gradient_sums(x, dy, m, rstd, rows, columns, c, sum, sum_hat);
    if (!inside) return;
    for (i64 r = threadIdx.y; r < rows; r += 32) {
        float hat = (to_float(x[r * columns + c]) - m) * rstd;
        dx[r * columns + c] =
            from_float<act>(weight[c] * rstd * (to_float(dy[r * columns + c]) - sum / rows - hat * (sum_hat / rows)));
    }
    if (threadIdx.y == 0) d_weight[c] += sum_hat, d_bias[c] += sum;
}

// The parts of both for rows of which other processes have the rest: statistics and means are those of all rows.
extern "C" __global__ void batch_norm_apply(const act* x, const float* mean, const float* variance, const float* weight,
                                            const float* bias, float epsilon, i64 rows, int columns, act* y) {
    int c = blockIdx.x * 32 + threadIdx.x;
    if (c >= columns) return;
    float m = mean[c], scale = weight[c] / sqrtf(variance[c] + epsilon), b = bias[c];
    for (i64 r = threadIdx.y; r < rows; r += 32)
        y[r * columns + c] = from_float<act>((to_float(x[r * columns + c]) - m) * scale + b);
}

extern "C" __global__ void batch_norm_sums(const act* x, const float* mean, const float* variance, float epsilon,
                                           const act* dy, i64 rows, int columns, float* of_dy, float* of_dy_hat) {
    int c = blockIdx.x * 32 + threadIdx.x;
    bool inside = c < columns;
    float m = inside ? mean[c] : 0.0f, rstd = inside ? rsqrtf(variance[c] + epsilon) : 0.0f;
    float sum, sum_hat;
    gradient_sums(x, dy, m, rstd, rows, columns, c, sum, sum_hat);
    if (inside && threadIdx.y == 0) of_dy[c] += sum, of_dy_hat[c] += sum_hat;
}

extern "C" __global__ void batch_norm_input_gradient(const act* x, const float* mean, const float* variance,
                                                     const float* weight, float epsilon, const act* dy,
                                                     const float* mean_dy, const float* mean_dy_hat, i64 rows,
                                                     int columns, act* dx) {
    int c = blockIdx.x * 32 + threadIdx.x;
    if (c >= columns) return;
    float m = mean[c], rstd = rsqrtf(variance[c] + epsilon), w = weight[c] * rstd;
    float a = mean_dy[c], b = mean_dy_hat[c];
    for (i64 r = threadIdx.y; r < rows; r += 32) {
        float hat = (to_float(x[r * columns + c]) - m) * rstd;
        dx[r * columns + c] = from_float<act>(w * (to_float(dy[r * columns + c]) - a - hat * b));
    }
}
