// Softmax over prototypes and the cross-entropy of student rows against teacher rows. Logits are scale * raw + shift_k.
// A block of up to 1024 threads takes a row; the columns of a row are read twice, the second time from the cache.

#define LOWEST (-__int_as_float(0x7f800000))

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
    float top = block_max(most, scratch);
    // A thread without columns has the sum zero and the maximum minus infinity.
    sum = block_sum(most == LOWEST ? sum : sum * __expf(most - top), scratch);
    return top + logf(sum);
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

// Row r meets the teacher rows targets_of[2 r] and targets_of[2 r + 1] (-1: none): both are summed while they are read.
// losses[r] = sum over its targets of -sum_k q_k ln p_k; raw becomes weight (n p - sum q), the gradient with respect to
// scale raw + shift.
extern "C" __global__ void cross_entropy(float* raw, float scale, const float* shift, const float* targets,
                                         const int* targets_of, float weight, int columns, float* losses) {
    __shared__ float scratch[32];
    raw += (i64)blockIdx.x * columns;
    int first = targets_of[2 * blockIdx.x], second = targets_of[2 * blockIdx.x + 1];
    const float* q1 = targets + (i64)first * columns;
    const float* q2 = targets + (i64)second * columns;
    float pairs = (first >= 0) + (second >= 0);
    float lse = log_sum_exp(raw, scale, shift, columns, scratch);
    float loss = 0.0f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        float below = fmaf(raw[c], scale, shift[c]) - lse;
        float q = (first >= 0 ? q1[c] : 0.0f) + (second >= 0 ? q2[c] : 0.0f);
        loss -= q * below;
        raw[c] = weight * (pairs * __expf(below) - q);
    }
    loss = block_sum(loss, scratch);
    if (threadIdx.x == 0) losses[blockIdx.x] = loss;
}
