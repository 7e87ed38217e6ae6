// Softmax over prototypes and the cross-entropy of student rows against teacher rows. Logits are scale * raw + shift_k.
// A block of up to 1024 threads takes a row, and goes over its columns twice.

#define LOWEST (-__int_as_float(0x7f800000))

// ln of the sum over the threads of a block of sum * exp(most).
__device__ float log_of_sum(float most, float sum, float* scratch) {
    float top = block_max(most, scratch);
    // A thread without columns has the sum zero and the maximum minus infinity.
    return top + logf(block_sum(most == LOWEST ? sum : sum * __expf(most - top), scratch));
}

// ln sum_k exp(scale raw_k + shift_k), for every thread of the block. Each thread keeps a running maximum and sum.
__device__ float log_sum_exp(const float* raw, float scale, const float* shift, int columns, float* scratch) {
    float most = LOWEST, sum = 0.0f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        float l = fmaf(raw[c], scale, shift[c]);
        if (l > most) {
            sum = sum * __expf(most - l) + 1.0f;
            most = l;
        } else {
            // Also where l is NaN: it must reach the sum.
            sum += __expf(l - most);
        }
    }
    return log_of_sum(most, sum, scratch);
}

extern "C" __global__ void row_log_sum_exp(const float* raw, float scale, const float* shift, int columns, float* lse) {
    __shared__ float scratch[32];
    float value = log_sum_exp(raw + (i64)blockIdx.x * columns, scale, shift, columns, scratch);
    if (threadIdx.x == 0) lse[blockIdx.x] = value;
}

extern "C" __global__ void softmax(const float* raw, float scale, const float* shift, int columns, float* out) {
    __shared__ float scratch[32];
    raw += (i64)blockIdx.x * columns, out += (i64)blockIdx.x * columns;
    float lse = log_sum_exp(raw, scale, shift, columns, scratch);
    for (int c = threadIdx.x; c < columns; c += blockDim.x) out[c] = expf(fmaf(raw[c], scale, shift[c]) - lse);
}

// out = weight p (slope - sum p slope): the gradient of a function of probabilities with this slope.
extern "C" __global__ void softmax_gradient(const float* raw, float scale, const float* shift, const float* slope,
                                            float weight, int columns, act* out) {
    __shared__ float scratch[32];
    raw += (i64)blockIdx.x * columns, out += (i64)blockIdx.x * columns;
    float lse = log_sum_exp(raw, scale, shift, columns, scratch), mean = 0.0f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) mean += expf(fmaf(raw[c], scale, shift[c]) - lse) * slope[c];
    mean = block_sum(mean, scratch);
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        out[c] = from_float<act>(weight * expf(fmaf(raw[c], scale, shift[c]) - lse) * (slope[c] - mean));
}

// out_k = ln mean_b exp(scale raw_bk + shift_k - lse_b), in the log domain: the mean itself may underflow.
extern "C" __global__ void log_mean_softmax(const float* raw, float scale, const float* shift, const float* lse, i64 rows,
                                            int columns, float* out) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= columns) return;
    float most = LOWEST, sum = 0.0f;
    for (i64 b = 0; b < rows; ++b) most = fmaxf(most, fmaf(raw[b * columns + c], scale, shift[c]) - lse[b]);
    for (i64 b = 0; b < rows; ++b) sum += expf(fmaf(raw[b * columns + c], scale, shift[c]) - lse[b] - most);
    out[c] = most + logf(sum / rows);
}

// Entropy of each row of probabilities, and the first column of its largest.
extern "C" __global__ void row_summaries(const float* p, int columns, float* entropy, int* best) {
    __shared__ float scratch[32];
    __shared__ int places[1024];
    p += (i64)blockIdx.x * columns;
    float sum = 0.0f, most = LOWEST;
    int place = 0;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        float x = p[c];
        if (x > most) most = x, place = c;
        // Not x > 0: a NaN must reach the sum.
        if (x != 0.0f) sum -= x * logf(x);
    }
    sum = block_sum(sum, scratch);
    float top = block_max(most, scratch);
    places[threadIdx.x] = most == top ? place : columns;
    __syncthreads();
    if (threadIdx.x == 0) {
        int first = columns;
        for (int i = 0; i < blockDim.x; ++i) first = min(first, places[i]);
        entropy[blockIdx.x] = sum;
        best[blockIdx.x] = first < columns ? first : 0;
    }
}

// The first column of the largest element of row r beside column first + r.
extern "C" __global__ void largest_beside(const float* x, i64 first, int columns, int* best) {
    __shared__ float scratch[32];
    __shared__ int places[1024];
    x += (i64)blockIdx.x * columns;
    i64 beside = first + blockIdx.x;
    float most = LOWEST;
    int place = columns;
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        if (c != beside && x[c] > most) most = x[c], place = c;
    float top = block_max(most, scratch);
    places[threadIdx.x] = most == top ? place : columns;
    __syncthreads();
    if (threadIdx.x == 0) {
        int found = columns;
        for (int i = 0; i < blockDim.x; ++i) found = min(found, places[i]);
        // Where nothing is larger than minus infinity, any other column.
        best[blockIdx.x] = found < columns ? found : (beside == 0 ? 1 : 0);
    }
}

// WIDTH neighbouring numbers.
template <int WIDTH> __device__ __forceinline__ void load_some(const float* p, float* x) {
    if (WIDTH == 4) *reinterpret_cast<float4*>(x) = *reinterpret_cast<const float4*>(p);
    else x[0] = p[0];
}

// Row r meets the teacher rows terms[3 r] and terms[3 r + 1] (-1: none): both are summed while they are read. terms[3 r + 2]
// holds the bits of its weight.
// losses[r] = sum over its targets of -sum_k q_k ln p_k; d_logits = weight (n p - sum q), the gradient with respect to
// scale raw + shift, in the type that the matrix products after it read. The first `held` logits of a row wait for the
// second pass in shared memory: of 65536 an eighth does not fit. A thread takes WIDTH columns at a time.
template <int WIDTH>
__device__ __forceinline__ void
    row_cross_entropy(const float* __restrict__ raw, float scale, const float* __restrict__ shift,
                      const float* __restrict__ targets, const int* terms, int columns, int held,
                      act* __restrict__ d_logits, float* losses) {
    extern __shared__ __align__(16) float logits[];
    __shared__ float scratch[32];
    raw += (i64)blockIdx.x * columns, d_logits += (i64)blockIdx.x * columns;
    float most = LOWEST, sum = 0.0f;
#pragma unroll 2
    for (int c = threadIdx.x * WIDTH; c < columns; c += blockDim.x * WIDTH) {
        float __align__(16) l[WIDTH], __align__(16) s[WIDTH];
        load_some<WIDTH>(raw + c, l), load_some<WIDTH>(shift + c, s);
        float top = LOWEST;
        for (int j = 0; j < WIDTH; ++j) l[j] = fmaf(l[j], scale, s[j]), top = fmaxf(top, l[j]);
        if (c < held)
            for (int j = 0; j < WIDTH; ++j) logits[c + j] = l[j];
        if (top > most) sum *= __expf(most - top), most = top;
        // Also where a logit is NaN: it must reach the sum.
        for (int j = 0; j < WIDTH; ++j) sum += __expf(l[j] - most);
    }
    float lse = log_of_sum(most, sum, scratch), loss = 0.0f;

    terms += 3 * blockIdx.x;
    int first = terms[0], second = terms[1];
    float weight = __int_as_float(terms[2]);
    const float* q1 = targets + (i64)first * columns;
    const float* q2 = targets + (i64)second * columns;
    float pairs = (first >= 0) + (second >= 0);
#pragma unroll 2
    for (int c = threadIdx.x * WIDTH; c < columns; c += blockDim.x * WIDTH) {
        float __align__(16) l[WIDTH], __align__(16) s[WIDTH], __align__(16) q[4] = {}, __align__(16) other[4] = {};
        if (c < held) {
            load_some<WIDTH>(logits + c, l);
        } else {
            load_some<WIDTH>(raw + c, l), load_some<WIDTH>(shift + c, s);
            for (int j = 0; j < WIDTH; ++j) l[j] = fmaf(l[j], scale, s[j]);
        }
        if (first >= 0) load_some<WIDTH>(q1 + c, q);
        if (second >= 0) load_some<WIDTH>(q2 + c, other);
        for (int j = 0; j < WIDTH; ++j) {
            float below = l[j] - lse;
            q[j] += other[j];
            loss -= q[j] * below;
            q[j] = weight * (pairs * __expf(below) - q[j]);
        }
        if (WIDTH == 4) store4(d_logits + c, q);
        else d_logits[c] = from_float<act>(q[0]);
    }
    loss = block_sum(loss, scratch);
    if (threadIdx.x == 0) losses[blockIdx.x] = loss;
}

extern "C" __global__ void __launch_bounds__(1024, 1)
    cross_entropy_by_4(const float* raw, float scale, const float* shift, const float* targets, const int* terms,
                       int columns, int held, act* d_logits, float* losses) {
    row_cross_entropy<4>(raw, scale, shift, targets, terms, columns, held, d_logits, losses);
}
extern "C" __global__ void __launch_bounds__(1024, 1)
    cross_entropy_by_1(const float* raw, float scale, const float* shift, const float* targets, const int* terms,
                       int columns, int held, act* d_logits, float* losses) {
    row_cross_entropy<1>(raw, scale, shift, targets, terms, columns, held, d_logits, losses);
}
