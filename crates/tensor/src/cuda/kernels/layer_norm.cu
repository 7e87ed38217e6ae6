// LayerNorm of some rows of the residual stream, and its derivative. A warp takes a row; row r of the compact result is row
// source_of[r] of x, or row r where source_of is null.
//
// Two forms of each: four columns a lane where the width is a multiple of four and at most 1024, which keeps the row in
// registers, and one column at a time for any other width.

extern "C" __global__ void layer_norm_forward(const res* x, const int* source_of, const float* weight, const float* bias,
                                              i64 rows, int dim, float epsilon, act* y, float* mean, float* rstd) {
    i64 row = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= rows) return;
    int lane = threadIdx.x & 31;
    x += mapped(source_of, row) * dim, y += row * dim;
    float sum = 0.0f;
    for (int c = lane; c < dim; c += 32) sum += to_float(x[c]);
    float m = warp_sum(sum) / dim;
    sum = 0.0f;
    for (int c = lane; c < dim; c += 32) sum += (to_float(x[c]) - m) * (to_float(x[c]) - m);
    float s = rsqrtf(warp_sum(sum) / dim + epsilon);
    for (int c = lane; c < dim; c += 32) y[c] = from_float<act>((to_float(x[c]) - m) * s * weight[c] + bias[c]);
    if (lane == 0) mean[row] = m, rstd[row] = s;
}

// The end of a LayerNorm: from a row in the registers of a warp and its mean to its deviation and its normalised form.
// CHUNKS times 4 columns for each of 32 lanes: one to eight of them cover 128 to 1024 columns.
template <int CHUNKS>
__device__ __forceinline__ void write_normalized(const float (&v)[CHUNKS][4], float m, const float* weight,
                                                 const float* bias, int dim, float epsilon, act* y, float* mean,
                                                 float* rstd) {
    int first = (threadIdx.x & 31) * 4;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i)
        if (first + i * 128 < dim)
            for (int j = 0; j < 4; ++j) sum += (v[i][j] - m) * (v[i][j] - m);
    float s = rsqrtf(warp_sum(sum) / dim + epsilon);
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
        int c = first + i * 128;
        if (c < dim) {
            float4 w = *reinterpret_cast<const float4*>(weight + c), b = *reinterpret_cast<const float4*>(bias + c);
            float out[4] = {fmaf((v[i][0] - m) * s, w.x, b.x), fmaf((v[i][1] - m) * s, w.y, b.y),
                            fmaf((v[i][2] - m) * s, w.z, b.z), fmaf((v[i][3] - m) * s, w.w, b.w)};
            store4(y + c, out);
        }
    }
    if (first == 0) *mean = m, *rstd = s;
}

// A warp takes two rows at a time: one alone would not keep enough of the memory busy.
template <int CHUNKS>
__device__ __forceinline__ void forward_by_4(const res* x, const int* source_of, const float* weight,
                                             const float* bias, i64 rows, int dim, float epsilon, act* y, float* mean,
                                             float* rstd) {
    i64 row = 2 * ((i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5));
    if (row >= rows) return;
    int first = (threadIdx.x & 31) * 4, count = row + 1 < rows ? 2 : 1;
    Four<res> in[2][CHUNKS];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const res* from = x + mapped(source_of, row + (r < count ? r : 0)) * dim + first;
#pragma unroll
        for (int i = 0; i < CHUNKS; ++i)
            if (first + i * 128 < dim) in[r][i].load(from + i * 128);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float v[CHUNKS][4], sum = 0.0f;
#pragma unroll
        for (int i = 0; i < CHUNKS; ++i)
            if (first + i * 128 < dim) {
                in[r][i].unpack(v[i]);
                for (int j = 0; j < 4; ++j) sum += v[i][j];
            }
        float m = warp_sum(sum) / dim;
        if (r == count) return;
        i64 to = row + r;
        write_normalized<CHUNKS>(v, m, weight, bias, dim, epsilon, y + to * dim, mean + to, rstd + to);
    }
}

#define FORWARD(CHUNKS)                                                                                                \
    extern "C" __global__ void layer_norm_forward_by_4_##CHUNKS(                                                       \
        const res* x, const int* source_of, const float* weight, const float* bias, i64 rows, int dim, float epsilon,  \
        act* y, float* mean, float* rstd) {                                                                            \
        forward_by_4<CHUNKS>(x, source_of, weight, bias, rows, dim, epsilon, y, mean, rstd);                           \
    }
FORWARD(1) FORWARD(2) FORWARD(3) FORWARD(4) FORWARD(5) FORWARD(6) FORWARD(7) FORWARD(8)

// A residual branch and the LayerNorm after it in one pass: out = stream + scale (branch + branch_bias) in the rows that the
// branch has, stream elsewhere, and y is the LayerNorm of those rows of out that the next branch has. branch_row_of and
// y_row_of give for each row its place there, or -1; null is the identity. A warp takes a row.
template <int CHUNKS>
__device__ __forceinline__ void after_branch_by_4(const res* stream, const act* branch, const float* branch_bias,
                                                  const int* branch_row_of, float scale, const int* y_row_of,
                                                  const float* weight, const float* bias, i64 rows, int dim,
                                                  float epsilon, res* out, act* y, float* mean, float* rstd) {
    i64 row = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= rows) return;
    int first = (threadIdx.x & 31) * 4;
    i64 from = mapped(branch_row_of, row), to = mapped(y_row_of, row);
    Four<res> x[CHUNKS];
    Four<act> added[CHUNKS];
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i)
        if (first + i * 128 < dim) {
            x[i].load(stream + row * dim + first + i * 128);
            if (from >= 0) added[i].load(branch + from * dim + first + i * 128);
        }
    float v[CHUNKS][4], sum = 0.0f;
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
        int c = first + i * 128;
        if (c < dim) {
            x[i].unpack(v[i]);
            if (from >= 0) {
                float b[4], d[4];
                added[i].unpack(b);
                *reinterpret_cast<float4*>(d) = *reinterpret_cast<const float4*>(branch_bias + c);
                for (int j = 0; j < 4; ++j) v[i][j] += scale * (b[j] + d[j]);
            }
            store4(out + row * dim + c, v[i]);
            // What is normalised is what was written.
            for (int j = 0; j < 4; ++j) v[i][j] = to_float(from_float<res>(v[i][j])), sum += v[i][j];
        }
    }
    if (to < 0) return;
    float m = warp_sum(sum) / dim;
    write_normalized<CHUNKS>(v, m, weight, bias, dim, epsilon, y + to * dim, mean + to, rstd + to);
}

#define AFTER_BRANCH(CHUNKS)                                                                                           \
    extern "C" __global__ void after_branch_by_4_##CHUNKS(                                                             \
        const res* stream, const act* branch, const float* branch_bias, const int* branch_row_of, float scale,         \
        const int* y_row_of, const float* weight, const float* bias, i64 rows, int dim, float epsilon, res* out,       \
        act* y, float* mean, float* rstd) {                                                                            \
        after_branch_by_4<CHUNKS>(stream, branch, branch_bias, branch_row_of, scale, y_row_of, weight, bias, rows,     \
                                  dim, epsilon, out, y, mean, rstd);                                                   \
    }
AFTER_BRANCH(1) AFTER_BRANCH(2) AFTER_BRANCH(3) AFTER_BRANCH(4) AFTER_BRANCH(5) AFTER_BRANCH(6) AFTER_BRANCH(7)
AFTER_BRANCH(8)

// The derivative adds to the named rows of dx and leaves partial sums [blocks, 2, dim] of the gradients of weight and
// bias.
//
// With g = dy * w and h = (x - m) s:  dx += s (g - mean(g) - h mean(g h)).
extern "C" __global__ void layer_norm_backward(const res* x, const int* source_of, const float* mean, const float* rstd,
                                               const float* weight, const act* dy, i64 rows, int dim, res* dx,
                                               float* partial) {
    extern __shared__ float sums[];
    for (int c = threadIdx.x; c < 2 * dim; c += blockDim.x) sums[c] = 0.0f;
    __syncthreads();
    // A block's rows one after another, so that the sums of its columns are added in one order.
    for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
        i64 at = mapped(source_of, row) * dim;
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
            dx[at + c] = from_float<res>(to_float(dx[at + c]) + s * (d * weight[c] - g_sum - h * gh_sum));
            sums[c] += d * h, sums[dim + c] += d;
        }
    }
    __syncthreads();
    for (int c = threadIdx.x; c < 2 * dim; c += blockDim.x) partial[(i64)blockIdx.x * 2 * dim + c] = sums[c];
}

// Blocks of 256 threads, 8 warps; shared memory for 2 * dim floats. All that a row needs is asked for at once, and the
// place of the next row before that: nothing then waits for memory twice.
template <int CHUNKS>
__device__ __forceinline__ void backward_by_4(const res* x, const int* source_of, const float* mean, const float* rstd,
                                              const float* weight, const act* dy, i64 rows, int dim, res* dx,
                                              float* partial) {
    extern __shared__ float sums[];
    int warp = threadIdx.x >> 5, first = (threadIdx.x & 31) * 4;
    float d_weight[CHUNKS][4] = {}, d_bias[CHUNKS][4] = {};
    i64 row = (i64)blockIdx.x * 8 + warp, step = (i64)gridDim.x * 8, next = row < rows ? mapped(source_of, row) : 0;
    for (; row < rows; row += step) {
        i64 at = next * dim + first;
        Four<res> xs[CHUNKS], olds[CHUNKS];
        Four<act> ds[CHUNKS];
#pragma unroll
        for (int i = 0; i < CHUNKS; ++i)
            if (first + i * 128 < dim) {
                xs[i].load(x + at + i * 128), ds[i].load(dy + row * dim + first + i * 128);
                olds[i].load(dx + at + i * 128);
            }
        float m = mean[row], s = rstd[row], g_sum = 0.0f, gh_sum = 0.0f;
        if (row + step < rows) next = mapped(source_of, row + step);
#pragma unroll
        for (int i = 0; i < CHUNKS; ++i)
            if (first + i * 128 < dim) {
                float w[4], h[4], d[4];
                xs[i].unpack(h), ds[i].unpack(d);
                *reinterpret_cast<float4*>(w) = *reinterpret_cast<const float4*>(weight + first + i * 128);
                for (int j = 0; j < 4; ++j) {
                    h[j] = (h[j] - m) * s;
                    g_sum += d[j] * w[j], gh_sum += d[j] * w[j] * h[j];
                    d_weight[i][j] += d[j] * h[j], d_bias[i][j] += d[j];
                }
            }
        g_sum = warp_sum(g_sum) / dim, gh_sum = warp_sum(gh_sum) / dim;
#pragma unroll
        for (int i = 0; i < CHUNKS; ++i)
            if (first + i * 128 < dim) {
                float w[4], h[4], d[4], out[4];
                xs[i].unpack(h), ds[i].unpack(d), olds[i].unpack(out);
                *reinterpret_cast<float4*>(w) = *reinterpret_cast<const float4*>(weight + first + i * 128);
                for (int j = 0; j < 4; ++j) out[j] += s * (d[j] * w[j] - g_sum - (h[j] - m) * s * gh_sum);
                store4(dx + at + i * 128, out);
            }
    }
    // The warps add up one after another.
    for (int turn = 0; turn < 8; ++turn) {
        if (warp == turn)
#pragma unroll
            for (int i = 0; i < CHUNKS; ++i)
                for (int j = 0; j < 4; ++j) {
                    int c = first + i * 128 + j;
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
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) layer_norm_backward_by_4_##CHUNKS(                       \
        const res* x, const int* source_of, const float* mean, const float* rstd, const float* weight, const act* dy,  \
        i64 rows, int dim, res* dx, float* partial) {                                                                  \
        backward_by_4<CHUNKS>(x, source_of, mean, rstd, weight, dy, rows, dim, dx, partial);                           \
    }
BACKWARD(1, 3) BACKWARD(2, 3) BACKWARD(3, 3) BACKWARD(4, 3) BACKWARD(5, 2) BACKWARD(6, 2) BACKWARD(7, 2) BACKWARD(8, 2)
