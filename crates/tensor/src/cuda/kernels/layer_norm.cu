// LayerNorm of some rows of a packed matrix, and its derivative. A warp takes a row; row r of the compact result is row
// source_of[r] of x, or row r where source_of is null.
//
// Two forms of each: eight columns a lane where the width is a multiple of eight and at most 1024, which keeps the row in
// registers, and one column at a time for any other width.

__device__ __forceinline__ i64 source_row(const int* source_of, i64 row) { return source_of ? source_of[row] : row; }

extern "C" __global__ void layer_norm_forward(const act* x, const int* source_of, const float* weight, const float* bias,
                                              i64 rows, int dim, float epsilon, act* y, float* mean, float* rstd) {
    i64 row = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= rows) return;
    int lane = threadIdx.x & 31;
    x += source_row(source_of, row) * dim, y += row * dim;
    float sum = 0.0f;
    for (int c = lane; c < dim; c += 32) sum += to_float(x[c]);
    float m = warp_sum(sum) / dim;
    sum = 0.0f;
    for (int c = lane; c < dim; c += 32) sum += (to_float(x[c]) - m) * (to_float(x[c]) - m);
    float s = rsqrtf(warp_sum(sum) / dim + epsilon);
    for (int c = lane; c < dim; c += 32) y[c] = from_float<act>((to_float(x[c]) - m) * s * weight[c] + bias[c]);
    if (lane == 0) mean[row] = m, rstd[row] = s;
}

// With CHUNKS times 8 columns for each of 32 lanes: one to four of them cover 256 to 1024 columns.
template <int CHUNKS>
__device__ __forceinline__ void forward_by_8(const act* x, const int* source_of, const float* weight,
                                                   const float* bias, i64 rows, int dim, float epsilon, act* y,
                                                   float* mean, float* rstd) {
    i64 row = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= rows) return;
    int first = (threadIdx.x & 31) * 8;
    x += source_row(source_of, row) * dim, y += row * dim;
    float v[CHUNKS][8], sum = 0.0f;
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
        int c = first + i * 256;
        if (c < dim) {
            load8(x + c, v[i]);
            for (int j = 0; j < 8; ++j) sum += v[i][j];
        }
    }
    float m = warp_sum(sum) / dim;
    sum = 0.0f;
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i)
        if (first + i * 256 < dim)
            for (int j = 0; j < 8; ++j) sum += (v[i][j] - m) * (v[i][j] - m);
    float s = rsqrtf(warp_sum(sum) / dim + epsilon);
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
        int c = first + i * 256;
        if (c < dim) {
            float w[8], b[8];
            load8(weight + c, w), load8(bias + c, b);
            for (int j = 0; j < 8; ++j) v[i][j] = (v[i][j] - m) * s * w[j] + b[j];
            store8(y + c, v[i]);
        }
    }
    if (first == 0) mean[row] = m, rstd[row] = s;
}

#define FORWARD(CHUNKS)                                                                                                \
    extern "C" __global__ void layer_norm_forward_by_8_##CHUNKS(                                                       \
        const act* x, const int* source_of, const float* weight, const float* bias, i64 rows, int dim, float epsilon,  \
        act* y, float* mean, float* rstd) {                                                                            \
        forward_by_8<CHUNKS>(x, source_of, weight, bias, rows, dim, epsilon, y, mean, rstd);                           \
    }
FORWARD(1) FORWARD(2) FORWARD(3) FORWARD(4)

// The derivative adds to the named rows of dx, writes the normalised rows again (they need not be kept for the gradient
// of the weights that read them) and leaves partial sums [blocks, 2, dim] of the gradients of weight and bias.
//
// With g = dy * w and h = (x - m) s:  dx += s (g - mean(g) - h mean(g h)).
extern "C" __global__ void layer_norm_backward(const act* x, const int* source_of, const float* mean, const float* rstd,
                                               const float* weight, const float* bias, const act* dy, i64 rows, int dim,
                                               act* dx, act* normed, float* partial) {
    extern __shared__ float sums[];
    for (int c = threadIdx.x; c < 2 * dim; c += blockDim.x) sums[c] = 0.0f;
    __syncthreads();
    // A block's rows one after another, so that the sums of its columns are added in one order.
    for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
        i64 at = source_row(source_of, row) * dim;
        float m = mean[row], s = rstd[row], g_sum = 0.0f, gh_sum = 0.0f;
        __shared__ float scratch[32];
        for (int c = threadIdx.x; c < dim; c += blockDim.x) {
            float g = to_float(dy[row * dim + c]) * weight[c], h = (to_float(x[at + c]) - m) * s;
            g_sum += g, gh_sum += g * h;
        }
        g_sum = block_sum(g_sum, scratch) / dim;
        gh_sum = block_sum(gh_sum, scratch) / dim;
        for (int c = threadIdx.x; c < dim; c += blockDim.x) {
            float d = to_float(dy[row * dim + c]), h = (to_float(x[at + c]) - m) * s;
            dx[at + c] = from_float<act>(to_float(dx[at + c]) + s * (d * weight[c] - g_sum - h * gh_sum));
            normed[row * dim + c] = from_float<act>(h * weight[c] + bias[c]);
            sums[c] += d * h, sums[dim + c] += d;
        }
    }
    __syncthreads();
    for (int c = threadIdx.x; c < 2 * dim; c += blockDim.x) partial[(i64)blockIdx.x * 2 * dim + c] = sums[c];
}

// Blocks of 256 threads, 8 warps; shared memory for 2 * dim floats.
template <int CHUNKS>
__device__ __forceinline__ void
    backward_by_8(const act* x, const int* source_of, const float* mean, const float* rstd, const float* weight,
                             const float* bias, const act* dy, i64 rows, int dim, act* dx, act* normed, float* partial) {
    extern __shared__ float sums[];
    int warp = threadIdx.x >> 5, first = (threadIdx.x & 31) * 8;
    float d_weight[CHUNKS][8] = {}, d_bias[CHUNKS][8] = {};
    for (i64 row = (i64)blockIdx.x * 8 + warp; row < rows; row += (i64)gridDim.x * 8) {
        i64 at = source_row(source_of, row) * dim;
        float m = mean[row], s = rstd[row], g_sum = 0.0f, gh_sum = 0.0f;
        Eight<act> xs[CHUNKS], ds[CHUNKS];
#pragma unroll
        for (int i = 0; i < CHUNKS; ++i) {
            int c = first + i * 256;
            if (c < dim) xs[i].load(x + at + c), ds[i].load(dy + row * dim + c);
        }
#pragma unroll
        for (int i = 0; i < CHUNKS; ++i) {
            int c = first + i * 256;
            if (c < dim) {
                float w[8], h[8], d[8];
                xs[i].unpack(h), ds[i].unpack(d), load8(weight + c, w);
                for (int j = 0; j < 8; ++j) {
                    g_sum += d[j] * w[j], gh_sum += d[j] * w[j] * ((h[j] - m) * s);
                }
            }
        }
        g_sum = warp_sum(g_sum) / dim, gh_sum = warp_sum(gh_sum) / dim;
#pragma unroll
        for (int i = 0; i < CHUNKS; ++i) {
            int c = first + i * 256;
            if (c < dim) {
                float w[8], h[8], d[8], b[8];
                xs[i].unpack(h), ds[i].unpack(d), load8(weight + c, w), load8(dx + at + c, b);
                for (int j = 0; j < 8; ++j) {
                    h[j] = (h[j] - m) * s;
                    b[j] += s * (d[j] * w[j] - g_sum - h[j] * gh_sum);
                    d_weight[i][j] += d[j] * h[j], d_bias[i][j] += d[j];
                }
                store8(dx + at + c, b), load8(bias + c, b);
                for (int j = 0; j < 8; ++j) h[j] = h[j] * w[j] + b[j];
                store8(normed + row * dim + c, h);
            }
        }
    }
    // The warps add up one after another.
    for (int turn = 0; turn < 8; ++turn) {
        if (warp == turn)
#pragma unroll
            for (int i = 0; i < CHUNKS; ++i)
                for (int j = 0; j < 8; ++j) {
                    int c = first + i * 256 + j;
                    if (c < dim) {
                        sums[c] = (turn ? sums[c] : 0.0f) + d_weight[i][j];
                        sums[dim + c] = (turn ? sums[dim + c] : 0.0f) + d_bias[i][j];
                    }
                }
        __syncthreads();
    }
    for (int c = threadIdx.x; c < 2 * dim; c += blockDim.x) partial[(i64)blockIdx.x * 2 * dim + c] = sums[c];
}

#define BACKWARD(CHUNKS, BLOCKS)                                                                                       \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) layer_norm_backward_by_8_##CHUNKS(                       \
        const act* x, const int* source_of, const float* mean, const float* rstd, const float* weight,                 \
        const float* bias, const act* dy, i64 rows, int dim, act* dx, act* normed, float* partial) {                   \
        backward_by_8<CHUNKS>(x, source_of, mean, rstd, weight, bias, dy, rows, dim, dx, normed, partial);             \
    }
BACKWARD(1, 3) BACKWARD(2, 3) BACKWARD(3, 2) BACKWARD(4, 2)
