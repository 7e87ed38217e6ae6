// All parameters in one launch: AdamW, the teacher's moving average, and the copies of both that matrix products read.

// One tensor of the network. A null copy is one that nothing reads; with a null teacher, nothing follows the value.
// The teacher moves by `rest` of its distance to the value: one minus its momentum.
struct Parameter {
    float *value, *first, *second, *teacher;
    const float* gradient;
    act *value_copy, *teacher_copy;
    i64 count;
    float shrink, clip, step_size, inverse_sqrt_correction2;
    int frozen;
    float rest;
};

// Block b takes CHUNK elements of parameter where[2 b], from where[2 b + 1] chunks on.
#define CHUNK 8192

// t + (1 - m) (p - t) rather than m t + (1 - m) p: rounded to float, m and 1 - m do not add up to one.
extern "C" __global__ void adamw_and_average(const Parameter* parameters, const int* where, float beta1, float beta2,
                                             float keep1, float keep2, float epsilon) {
    Parameter p = parameters[where[2 * blockIdx.x]];
    i64 first = (i64)where[2 * blockIdx.x + 1] * CHUNK, last = first + CHUNK < p.count ? first + CHUNK : p.count;
    for (i64 i = first + threadIdx.x; i < last; i += blockDim.x) {
        float value = p.value[i];
        if (!p.frozen) {
            float g = p.gradient[i] * p.clip;
            float m = beta1 * p.first[i] + keep1 * g, v = beta2 * p.second[i] + keep2 * g * g;
            p.first[i] = m, p.second[i] = v;
            value = value * p.shrink - p.step_size * (m / (sqrtf(v) * p.inverse_sqrt_correction2 + epsilon));
            p.value[i] = value;
            if (p.value_copy) p.value_copy[i] = from_float<act>(value);
        }
        if (p.teacher) {
            float teacher = p.teacher[i];
            teacher = fmaf(p.rest, value - teacher, teacher);
            p.teacher[i] = teacher;
            if (p.teacher_copy) p.teacher_copy[i] = from_float<act>(teacher);
        }
    }
}

struct Span {
    float* data;
    i64 count;
};

extern "C" __global__ void clear_all(const Span* spans, const int* where) {
    Span s = spans[where[2 * blockIdx.x]];
    i64 first = (i64)where[2 * blockIdx.x + 1] * CHUNK, last = first + CHUNK < s.count ? first + CHUNK : s.count;
    for (i64 i = first + threadIdx.x; i < last; i += blockDim.x) s.data[i] = 0.0f;
}

// Sum of squares of one chunk, then of each tensor's chunks in order. In double precision from the second step on.
extern "C" __global__ void squared_chunks(const Span* spans, const int* where, double* partial) {
    __shared__ float scratch[32];
    Span s = spans[where[2 * blockIdx.x]];
    i64 first = (i64)where[2 * blockIdx.x + 1] * CHUNK, last = first + CHUNK < s.count ? first + CHUNK : s.count;
    float sum = 0.0f;
    for (i64 i = first + threadIdx.x; i < last; i += blockDim.x) sum += s.data[i] * s.data[i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) partial[blockIdx.x] = (double)sum;
}

// Tensor t's chunks are starts[t]..starts[t + 1].
extern "C" __global__ void squared_norms(const double* partial, const int* starts, double* out) {
    int t = blockIdx.x;
    __shared__ double shared[256];
    double sum = 0.0;
    for (int i = starts[t] + threadIdx.x; i < starts[t + 1]; i += blockDim.x) sum += partial[i];
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        double total = 0.0;
        for (int i = 0; i < blockDim.x; ++i) total += shared[i];
        out[t] = total;
    }
}
