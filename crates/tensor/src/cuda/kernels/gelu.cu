// GELU with the exact error function, and its derivative. cuBLASLt's own epilogue is the tanh form, so it is not used.

#ifdef ACT_IS_FLOAT
// The standard normal distribution and its density.
__device__ __forceinline__ void normal(float x, float& cdf, float& pdf) {
    cdf = 0.5f * (1.0f + erff(x * 0.70710678f));
    pdf = 0.39894228f * expf(-0.5f * x * x);
}
#else
// The same to 1.5e-7 by one exponential for both (Abramowitz and Stegun, 7.1.26): bf16 sees nothing below 2e-3, and the
// kernel is bound by memory instead of arithmetic.
__device__ __forceinline__ void normal(float x, float& cdf, float& pdf) {
    float z = fabsf(x) * 0.70710678f, e = __expf(-z * z), t = __fdividef(1.0f, fmaf(0.3275911f, z, 1.0f));
    float tail = t * fmaf(t, fmaf(t, fmaf(t, fmaf(t, 1.061405429f, -1.453152027f), 1.421413741f), -0.284496736f), 0.254829592f) * e;
    cdf = 0.5f * (1.0f + copysignf(1.0f - tail, x));
    pdf = 0.39894228f * e;
}
#endif

__device__ __forceinline__ float gelu(float x) {
    float cdf, pdf;
    normal(x, cdf, pdf);
    return x * cdf;
}

extern "C" __global__ void gelu_forward(const act* x, i64 count, act* y) {
    i64 i = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (i + 8 <= count) {
        float v[8];
        load8(x + i, v);
        for (int j = 0; j < 8; ++j) v[j] = gelu(v[j]);
        store8(y + i, v);
    } else {
        for (; i < count; ++i) y[i] = from_float<act>(gelu(to_float(x[i])));
    }
}

// d *= gelu'(x), and x becomes gelu(x) where `again` is set: the activations are the other factor of a gradient of weights,
// and making them here is cheaper than keeping them.
__device__ __forceinline__ void through_gelu(float& d, float& x) {
    float cdf, pdf;
    normal(x, cdf, pdf);
    d *= cdf + x * pdf;
    x *= cdf;
}

extern "C" __global__ void gelu_backward(act* d, act* x, i64 count, int again) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float v = to_float(x[i]), g = to_float(d[i]);
    through_gelu(g, v);
    d[i] = from_float<act>(g);
    if (again) x[i] = from_float<act>(v);
}

// The same for widths that are a multiple of eight, with partial sums [chunks, columns] of the new d.
extern "C" __global__ void gelu_backward_by_8(act* d, act* x, i64 rows, int columns, int per_chunk, int again,
                                              float* partial) {
    int c = (blockIdx.x * 32 + threadIdx.x) * 8;
    i64 first = (i64)blockIdx.y * per_chunk, last = first + per_chunk < rows ? first + per_chunk : rows;
    float sum[8] = {};
    if (c < columns)
        for (i64 row = first + threadIdx.y; row < last; row += 8) {
            i64 at = row * columns + c;
            float v[8], g[8];
            load8(x + at, v), load8(d + at, g);
            for (int j = 0; j < 8; ++j) {
                through_gelu(g[j], v[j]);
                sum[j] += g[j];
            }
            store8(d + at, g);
            if (again) store8(x + at, v);
        }
    store_column_partials(sum, columns, partial);
}
