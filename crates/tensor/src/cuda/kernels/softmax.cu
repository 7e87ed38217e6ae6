// Softmax over prototypes and the cross-entropy of student rows against teacher rows. Logits are scale * raw + shift_k.
// A block takes a row, and goes over its columns twice; a thread takes WIDTH columns at a time, which is four where K is a
// multiple of four.

#define LOWEST (-__int_as_float(0x7f800000))

// WIDTH neighbouring numbers.
template <int WIDTH> __device__ __forceinline__ void load_some(const float* p, float* x) {
    if (WIDTH == 4) *reinterpret_cast<float4*>(x) = *reinterpret_cast<const float4*>(p);
    else x[0] = p[0];
}
template <int WIDTH, typename T> __device__ __forceinline__ void store_some(T* p, const float* x) {
    if (WIDTH == 4) store4(p, x);
    else p[0] = from_float<T>(x[0]);
}

// WIDTH neighbouring logits.
template <int WIDTH>
__device__ __forceinline__ void load_logits(const float* raw, float scale, const float* shift, float* l) {
    float __align__(16) s[WIDTH];
    load_some<WIDTH>(raw, l), load_some<WIDTH>(shift, s);
    for (int j = 0; j < WIDTH; ++j) l[j] = fmaf(l[j], scale, s[j]);
}

// Takes WIDTH logits into a sum of exponentials relative to the largest so far.
template <int WIDTH> __device__ __forceinline__ void take_in(const float* l, float& most, float& sum) {
    float top = LOWEST;
    for (int j = 0; j < WIDTH; ++j) top = fmaxf(top, l[j]);
    if (top > most) sum *= __expf(most - top), most = top;
    // Also where a logit is NaN: it must reach the sum.
    for (int j = 0; j < WIDTH; ++j) sum += __expf(l[j] - most);
}

// ln of the sum over the threads of a block of sum * exp(most).
__device__ float log_of_sum(float most, float sum, float* scratch) {
    float top = block_max(most, scratch);
    // A thread without columns has the sum zero and the maximum minus infinity.
    return top + logf(block_sum(most == LOWEST ? sum : sum * __expf(most - top), scratch));
}

// ln sum_k exp(scale raw_k + shift_k), for every thread of the block.
template <int WIDTH>
__device__ __forceinline__ float log_sum_exp(const float* raw, float scale, const float* shift, int columns, float* scratch) {
    float most = LOWEST, sum = 0.0f;
#pragma unroll 4
    for (int c = threadIdx.x * WIDTH; c < columns; c += blockDim.x * WIDTH) {
        float __align__(16) l[WIDTH];
        load_logits<WIDTH>(raw + c, scale, shift + c, l);
        take_in<WIDTH>(l, most, sum);
    }
    return log_of_sum(most, sum, scratch);
}

template <int WIDTH>
__device__ __forceinline__ void row_log_sum_exp(const float* raw, float scale, const float* shift, int columns, float* lse) {
    __shared__ float scratch[32];
    float value = log_sum_exp<WIDTH>(raw + (i64)blockIdx.x * columns, scale, shift, columns, scratch);
    if (threadIdx.x == 0) lse[blockIdx.x] = value;
}
extern "C" __global__ void row_log_sum_exp_by_4(const float* raw, float scale, const float* shift, int columns, float* lse) {
    row_log_sum_exp<4>(raw, scale, shift, columns, lse);
}
extern "C" __global__ void row_log_sum_exp_by_1(const float* raw, float scale, const float* shift, int columns, float* lse) {
    row_log_sum_exp<1>(raw, scale, shift, columns, lse);
}

template <int WIDTH>
__device__ __forceinline__ void row_softmax(const float* raw, float scale, const float* shift, int columns, float* out) {
    __shared__ float scratch[32];
    raw += (i64)blockIdx.x * columns, out += (i64)blockIdx.x * columns;
    float lse = log_sum_exp<WIDTH>(raw, scale, shift, columns, scratch);
    for (int c = threadIdx.x * WIDTH; c < columns; c += blockDim.x * WIDTH) {
        float __align__(16) l[WIDTH];
        load_logits<WIDTH>(raw + c, scale, shift + c, l);
        for (int j = 0; j < WIDTH; ++j) l[j] = expf(l[j] - lse);
        store_some<WIDTH>(out + c, l);
    }
}
extern "C" __global__ void softmax_by_4(const float* raw, float scale, const float* shift, int columns, float* out) {
    row_softmax<4>(raw, scale, shift, columns, out);
}
extern "C" __global__ void softmax_by_1(const float* raw, float scale, const float* shift, int columns, float* out) {
    row_softmax<1>(raw, scale, shift, columns, out);
}

// out = weight p (slope - sum p slope): the gradient of a function of probabilities with this slope.
extern "C" __global__ void softmax_gradient(const float* raw, float scale, const float* shift, const float* slope,
                                            float weight, int columns, act* out) {
    __shared__ float scratch[32];
    raw += (i64)blockIdx.x * columns, out += (i64)blockIdx.x * columns;
    float lse = log_sum_exp<1>(raw, scale, shift, columns, scratch), mean = 0.0f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) mean += expf(fmaf(raw[c], scale, shift[c]) - lse) * slope[c];
    mean = block_sum(mean, scratch);
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        out[c] = from_float<act>(weight * expf(fmaf(raw[c], scale, shift[c]) - lse) * (slope[c] - mean));
}

// ln mean_b exp(scale raw_bk + shift_k - lse_b), in the log domain: the mean itself may underflow. In two steps and always in
// the same order: here the rows of a part give each column the largest of its terms and the sum of all relative to it,
// partial[part, 2, columns]; the next kernel puts the parts together. Rows may be many and columns few, so that one thread for
// a column would leave most of a GPU idle. A thread takes WIDTH columns, and ROWS rows at a time.
template <int WIDTH>
__device__ __forceinline__ void columns_log_sum_exp(const float* raw, float scale, const float* shift, const float* lse,
                                                    i64 rows, int columns, int per_part, float* partial) {
    const int ROWS = 4;
    int c = (blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
    if (c >= columns) return;
    i64 first = (i64)blockIdx.y * per_part, last = first + per_part < rows ? first + per_part : rows;
    float __align__(16) s[WIDTH], __align__(16) most[WIDTH], __align__(16) sum[WIDTH];
    load_some<WIDTH>(shift + c, s);
    for (int j = 0; j < WIDTH; ++j) most[j] = LOWEST, sum[j] = 0.0f;
    for (i64 row = first; row < last; row += ROWS) {
        float __align__(16) l[ROWS][WIDTH];
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            // The last row once more where there are no more: it does not change the maximum, and is not added.
            i64 r = row + i < last ? row + i : last - 1;
            load_some<WIDTH>(raw + r * columns + c, l[i]);
            float below = lse[r];
            for (int j = 0; j < WIDTH; ++j) l[i][j] = fmaf(l[i][j], scale, s[j]) - below;
        }
        for (int j = 0; j < WIDTH; ++j) {
            float top = most[j];
#pragma unroll
            for (int i = 0; i < ROWS; ++i) top = fmaxf(top, l[i][j]);
            sum[j] = most[j] == LOWEST ? sum[j] : sum[j] * __expf(most[j] - top);
#pragma unroll
            // Also where a logit is NaN: it must reach the sum.
            for (int i = 0; i < ROWS; ++i) sum[j] += row + i < last ? expf(l[i][j] - top) : 0.0f;
            most[j] = top;
        }
    }
    partial += (i64)blockIdx.y * 2 * columns + c;
    for (int j = 0; j < WIDTH; ++j) partial[j] = most[j], partial[columns + j] = sum[j];
}
extern "C" __global__ void columns_log_sum_exp_by_4(const float* raw, float scale, const float* shift, const float* lse,
                                                    i64 rows, int columns, int per_part, float* partial) {
    columns_log_sum_exp<4>(raw, scale, shift, lse, rows, columns, per_part, partial);
}
extern "C" __global__ void columns_log_sum_exp_by_1(const float* raw, float scale, const float* shift, const float* lse,
                                                    i64 rows, int columns, int per_part, float* partial) {
    columns_log_sum_exp<1>(raw, scale, shift, lse, rows, columns, per_part, partial);
}

// out_k = ln of the sum of what all parts have for column k, over `rows`, for blocks of 32 x 32 threads: each row of threads
// takes every 32nd part.
extern "C" __global__ void log_mean_of_parts(const float* partial, int parts, i64 rows, int columns, float* out) {
    __shared__ float tops[32][33], sums[32][33];
    int c = blockIdx.x * 32 + threadIdx.x;
    float most = LOWEST, sum = 0.0f;
    for (int part = threadIdx.y; c < columns && part < parts; part += 32) {
        const float* p = partial + (i64)part * 2 * columns + c;
        float top = fmaxf(most, p[0]);
        sum = (most == LOWEST ? sum : sum * __expf(most - top)) + p[columns] * __expf(p[0] - top);
        most = top;
    }
    tops[threadIdx.y][threadIdx.x] = most, sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    // From here on a warp has a column.
    most = tops[threadIdx.x][threadIdx.y], sum = sums[threadIdx.x][threadIdx.y];
    float top = warp_max(most);
    sum = warp_sum(most == LOWEST ? sum : sum * __expf(most - top));
    c = blockIdx.x * 32 + threadIdx.y;
    if (threadIdx.x == 0 && c < columns) out[c] = top + logf(sum / rows);
}

// value_k = ln(share exp(value_k) + (1 - share) exp(other_k)): the logarithm of a mean from those of two parts.
extern "C" __global__ void log_mean_with(float* value, float share, const float* other, i64 count) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float a = value[i], b = other[i], top = fmaxf(a, b);
    value[i] = top + logf(share * expf(a - top) + (1.0f - share) * expf(b - top));
}

// The first of the columns of a block's threads whose element is the largest of all; `columns` where there is none.
__device__ __forceinline__ int first_of_largest(float most, int place, int columns, float* scratch) {
    __shared__ int places[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    int first = __reduce_min_sync(0xffffffffu, most == block_max(most, scratch) ? place : columns);
    if (lane == 0) places[warp] = first;
    __syncthreads();
    return __reduce_min_sync(0xffffffffu, lane < warps ? places[lane] : columns);
}

// Entropy of each row of probabilities, and the first column of its largest.
extern "C" __global__ void row_summaries(const float* p, int columns, float* entropy, int* best) {
    __shared__ float scratch[32];
    p += (i64)blockIdx.x * columns;
    float sum = 0.0f, most = LOWEST;
    int place = 0;
#pragma unroll 4
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        float x = p[c];
        if (x > most) most = x, place = c;
        // Not x > 0: a NaN must reach the sum.
        if (x != 0.0f) sum -= x * logf(x);
    }
    sum = block_sum(sum, scratch);
    int first = first_of_largest(most, place, columns, scratch);
    if (threadIdx.x > 0) return;
    entropy[blockIdx.x] = sum;
    best[blockIdx.x] = first < columns ? first : 0;
}

// The first column of the largest element of row r beside column first + r.
extern "C" __global__ void largest_beside(const float* x, i64 first, int columns, int* best) {
    __shared__ float scratch[32];
    x += (i64)blockIdx.x * columns;
    i64 beside = first + blockIdx.x;
    float most = LOWEST;
    int place = columns;
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        if (c != beside && x[c] > most) most = x[c], place = c;
    int found = first_of_largest(most, place, columns, scratch);
    // Where nothing is larger than minus infinity, any other column.
    if (threadIdx.x == 0) best[blockIdx.x] = found < columns ? found : (beside == 0 ? 1 : 0);
}

// Row r meets the teacher rows terms[3 r] and terms[3 r + 1] (-1: none): both are summed while they are read. terms[3 r + 2]
// holds the bits of its weight.
// losses[r] = sum over its targets of -sum_k q_k ln p_k; d_logits = weight (n p - sum q), the gradient with respect to
// scale raw + shift, in the type that the matrix products after it read. The first `held` logits of a row wait for the
// second pass in shared memory: of 65536 an eighth does not fit.
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
        float __align__(16) l[WIDTH];
        load_logits<WIDTH>(raw + c, scale, shift + c, l);
        if (c < held)
            for (int j = 0; j < WIDTH; ++j) logits[c + j] = l[j];
        take_in<WIDTH>(l, most, sum);
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
        float __align__(16) l[WIDTH], __align__(16) q[4] = {}, __align__(16) other[4] = {};
        if (c < held)
            load_some<WIDTH>(logits + c, l);
        else
            load_logits<WIDTH>(raw + c, scale, shift + c, l);
        if (first >= 0) load_some<WIDTH>(q1 + c, q);
        if (second >= 0) load_some<WIDTH>(q2 + c, other);
        for (int j = 0; j < WIDTH; ++j) {
            float below = l[j] - lse;
            q[j] += other[j];
            loss -= q[j] * below;
            q[j] = weight * (pairs * __expf(below) - q[j]);
        }
        store_some<WIDTH>(d_logits + c, q);
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
