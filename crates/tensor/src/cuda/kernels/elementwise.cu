// Small operations on whole vectors.

extern "C" __global__ void fill_f32(float* x, i64 count, float value) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i] = value;
}
extern "C" __global__ void fill_act(act* x, i64 count, float value) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i] = from_float<act>(value);
}

extern "C" __global__ void f32_to_act(const float* x, i64 count, act* y) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = from_float<act>(x[i]);
}

// out = a + factor b.
extern "C" __global__ void add_scaled(const float* a, float factor, const float* b, i64 count, float* out) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = fmaf(factor, b[i], a[i]);
}

// out = factor out + shift.
extern "C" __global__ void scale_and_shift(float* out, float factor, const float* shift, i64 count) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = fmaf(out[i], factor, shift[i]);
}

// out += a * b, element by element.
extern "C" __global__ void add_products(const float* a, const float* b, i64 count, float* out) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = fmaf(a[i], b[i], out[i]);
}

// value = momentum value + (1 - momentum) max(target, floor). A NaN of the target is kept: a floor must not hide it.
extern "C" __global__ void move_towards(float* value, const float* target, float momentum, float rest, float floor,
                                        i64 count) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float t = target[i];
    t = t < floor ? floor : t;
    value[i] = momentum * value[i] + rest * t;
}

// value -= rate velocity, then velocity *= momentum, where `group` elements share a rate.
extern "C" __global__ void momentum_step(float* value, float* velocity, const float* rates, i64 group, float momentum,
                                         i64 count) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float v = velocity[i];
    value[i] = fmaf(-rates[i / group], v, value[i]);
    velocity[i] = momentum * v;
}

// The paper's log-normaliser relative to kappa = 0 and its derivative by g, with kappa = |g| / tau and nu = p / 2 - 1:
//   s = sqrt(nu^2 + kappa^2), u = kappa^2 / (s + nu), Delta = nu log1p(u / 2 nu) - u + log1p(u / nu) / 2,
//   dDelta/dkappa = kappa / (2 s^2) - kappa / (nu + s).
// In double precision: the terms of Delta cancel, and there are only K of them.
extern "C" __global__ void vmf_log_normalizer(const float* g, double tau, double nu, i64 count, float* value, float* slope) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    double kappa = fabs((double)g[i]) / tau, s = sqrt(nu * nu + kappa * kappa);
    double u = kappa * (kappa / (s + nu)), ratio = u / nu;
    value[i] = (float)(nu * log1p(0.5 * ratio) - u + 0.5 * log1p(ratio));
    double derivative = 0.5 * (kappa / s) / s - kappa / (nu + s);
    slope[i] = (float)(derivative * copysign(1.0, (double)g[i]) / tau);
}

// Numbers between -1 and 1 without a pattern, for trying out matrix products.
extern "C" __global__ void noise(act* x, i64 count) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    u32 h = (u32)i * 2654435761u;
    h = (h ^ (h >> 16)) * 2246822519u, h = (h ^ (h >> 13)) * 3266489917u, h ^= h >> 16;
    x[i] = from_float<act>((float)(int)h / 2147483648.0f);
}

// Sets `differs` where two arrays of words are not the same.
extern "C" __global__ void compare_bits(const u32* a, const u32* b, i64 count, u32* differs) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count && a[i] != b[i]) *differs = 1;
}

// Fails, and takes the program's use of this GPU with it: for tests of what happens when one is lost.
extern "C" __global__ void fail() { asm volatile("trap;"); }
