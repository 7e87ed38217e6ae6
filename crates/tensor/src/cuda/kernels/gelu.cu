// GELU with the exact error function, and its derivative. cuBLASLt's own epilogue is the tanh form, so it is not used.

#ifdef ACT_IS_FLOAT
// x becomes gelu(x) = x cdf(x); the result is its derivative, cdf(x) + x pdf(x), of the standard normal distribution.
__device__ __forceinline__ float through_gelu(float& x) {
    float cdf = 0.5f * (1.0f + erff(x * 0.70710678f)), slope = cdf + x * 0.39894228f * expf(-0.5f * x * x);
    x *= cdf;
    return slope;
}
#else
__device__ __forceinline__ float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float one_over(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The same by the smaller tail of the distribution, 1 - cdf(|x|), to 1e-7 (Abramowitz and Stegun, 7.1.26): bf16 sees nothing
// below 2e-3. One exponential serves tail and density, and gelu(x) = max(x, 0) - |x| tail needs no sign: so the kernels are
// bound by memory instead of arithmetic.
__device__ __forceinline__ float through_gelu(float& x) {
    float e = exp2_of(x * x * -0.72134752f), t = one_over(fmaf(fabsf(x), 0.23164190f, 1.0f));
    float series = fmaf(t, fmaf(t, fmaf(t, fmaf(t, 0.5307027145f, -0.7265760135f), 0.7107068705f), -0.142248368f), 0.127414796f);
    float tail = t * series * e, slope = fmaf(x * 0.39894228f, e, 0.5f + copysignf(0.5f - tail, x));
    x = fmaf(-fabsf(x), tail, fmaxf(x, 0.0f));
    return slope;
}
#endif

__device__ __forceinline__ float gelu(float x) {
    through_gelu(x);
    return x;
}

extern "C" __global__ void gelu_forward(const act* x, i64 count, act* y) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = from_float<act>(gelu(to_float(x[i])));
}

// y = gelu(x + bias) for widths that are a multiple of eight; bias may be null. The bias is added here and not by the
// matrix product, which is slower for it. A thread takes eight columns of a row and of the row half the matrix further
// down: one bias for both, and both are on their way before the first is worked on.
extern "C" __global__ void gelu_forward_by_8(const act* x, const float* bias, i64 rows, int columns, act* y) {
    u32 per_row = columns / 8, piece = blockIdx.x * blockDim.x + threadIdx.x, row = piece / per_row;
    i64 half = (rows + 1) / 2, i = (i64)piece * 8, k = i + half * columns;
    if (row >= half) return;
    bool both = row + half < rows;
    float v[8], w[8], b[8] = {};
    load8(x + i, v), load8(x + (both ? k : i), w);
    if (bias) load8(bias + (piece - row * per_row) * 8, b);
    for (int j = 0; j < 8; ++j) v[j] = gelu(v[j] + b[j]);
    store8(y + i, v);
    if (!both) return;
    for (int j = 0; j < 8; ++j) w[j] = gelu(w[j] + b[j]);
    store8(y + k, w);
}

// d *= gelu'(x), and x becomes gelu(x): the activations are the other factor of a gradient of weights, and recomputing them
// here is cheaper than keeping them.
extern "C" __global__ void gelu_backward(act* d, act* x, i64 count) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float v = to_float(x[i]);
    d[i] = from_float<act>(to_float(d[i]) * through_gelu(v));
    x[i] = from_float<act>(v);
}

// The same for widths that are a multiple of eight, at x + bias, with partial sums [chunks, columns] of the new d. A thread
// takes two rows at a time, so that both are on their way before the first is worked on.
extern "C" __global__ void __launch_bounds__(256, 4)
    gelu_backward_by_8(act* d, act* x, const float* bias, i64 rows, int columns, int per_chunk, float* partial) {
    int c = (blockIdx.x * 32 + threadIdx.x) * 8;
    i64 first = (i64)blockIdx.y * per_chunk, last = first + per_chunk < rows ? first + per_chunk : rows;
    float sum[8] = {}, b[8] = {};
    if (bias && c < columns) load8(bias + c, b);
    if (c < columns)
        for (i64 row = first + threadIdx.y; row < last; row += 16) {
            i64 at = row * columns + c, second = at + (row + 8 < last ? 8 * (i64)columns : 0);
            float v[2][8], g[2][8];
            load8(x + at, v[0]), load8(d + at, g[0]), load8(x + second, v[1]), load8(d + second, g[1]);
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                if (r == 1 && second == at) break;
                for (int j = 0; j < 8; ++j) {
                    v[r][j] += b[j];
                    g[r][j] *= through_gelu(v[r][j]);
                    sum[j] += g[r][j];
                }
                store8(d + (r ? second : at), g[r]);
                store8(x + (r ? second : at), v[r]);
            }
        }
    store_column_partials(sum, columns, partial);
}
