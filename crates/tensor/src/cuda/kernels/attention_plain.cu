// Attention written to be read: any head dimension up to 128, any lengths, `act` of either type. It is what the fast
// kernels are compared with, and what runs where they do not apply.
//
// Queries and keys may be different tokens: segment s owns query rows query_offsets[s] to query_offsets[s + 1] and key
// rows key_offsets[s] to key_offsets[s + 1]. Head h is head_dim columns wide and starts at column h * head_dim of `q`,
// at k_column and v_column more than that in `kv`. `out` and `d_out` are [query rows, heads * head_dim], `lse` is
// [query rows, heads]: the natural logarithm of the sum of exp(scale * q.k).
//
// Self-attention over packed qkv: kv = q, both strides 3 * dim, k_column = dim, v_column = 2 * dim, and the two lists
// of offsets the same.
//
// A warp takes one row. It meets the other side 32 rows at a time: first each lane takes one of them and computes whole
// dot products, then each lane takes up to four columns and sums over the 32.
//
// Both kernels: grid (segments, heads, parts) with any number of parts >= 1, among which the rows of a segment are
// dealt out (ceil(longest / 16) is a fair choice); block 128 threads; no dynamic shared memory.

constexpr int PLAIN_WARPS = 4;
constexpr int PLAIN_WIDTH = 128;
constexpr int PLAIN_COLUMNS = PLAIN_WIDTH / 32;

// The product of a row in shared memory and one in global memory.
__device__ __forceinline__ float plain_dot(const float* a, const act* b, int head_dim) {
    float sum = 0.0f;
    for (int c = 0; c < head_dim; c++) sum = fmaf(a[c], to_float(b[c]), sum);
    return sum;
}

// A row of a head into shared memory, by a warp.
__device__ __forceinline__ void plain_fetch(float* target, const act* row, int head_dim) {
    for (int c = threadIdx.x & 31; c < head_dim; c += 32) target[c] = to_float(row[c]);
}

// sums += weight of each of `count` lanes times that lane's row; rows are `stride` apart.
__device__ __forceinline__ void plain_add_rows(float (&sums)[PLAIN_COLUMNS], float weight, const act* rows, int stride,
                                               int count, int head_dim) {
    int lane = threadIdx.x & 31;
    for (int j = 0; j < count; j++) {
        float w = __shfl_sync(0xffffffffu, weight, j);
        for (int i = 0; i < PLAIN_COLUMNS; i++) {
            int c = lane + 32 * i;
            if (c < head_dim) sums[i] = fmaf(w, to_float(rows[(i64)j * stride + c]), sums[i]);
        }
    }
}

__device__ __forceinline__ void plain_store(act* row, const float (&sums)[PLAIN_COLUMNS], float factor, int head_dim) {
    for (int i = 0; i < PLAIN_COLUMNS; i++) {
        int c = (threadIdx.x & 31) + 32 * i;
        if (c < head_dim) row[c] = from_float<act>(sums[i] * factor);
    }
}

extern "C" __global__ void __launch_bounds__(128)
    attention_plain_forward(const act* __restrict__ q, int q_stride, const act* __restrict__ kv, int kv_stride,
                            int k_column, int v_column, const int* __restrict__ query_offsets,
                            const int* __restrict__ key_offsets, int heads, int head_dim, float scale,
                            act* __restrict__ out, float* __restrict__ lse) {
    __shared__ float query_rows[PLAIN_WARPS][PLAIN_WIDTH];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, segment = blockIdx.x, head = blockIdx.y;
    int start = query_offsets[segment] + blockIdx.z * PLAIN_WARPS + warp, end = query_offsets[segment + 1];
    int first = key_offsets[segment], keys = key_offsets[segment + 1] - first;
    const act* k = kv + (i64)first * kv_stride + k_column + head * head_dim;
    const act* v = kv + (i64)first * kv_stride + v_column + head * head_dim;
    float* query = query_rows[warp];

    for (i64 row = start; row < end; row += gridDim.z * PLAIN_WARPS) {
        plain_fetch(query, q + row * q_stride + head * head_dim, head_dim);
        __syncwarp();
        float largest = __int_as_float(0xff800000), sum = 0.0f, sums[PLAIN_COLUMNS] = {};
        for (int base = 0; base < keys; base += 32) {
            int count = min(32, keys - base);
            float score = __int_as_float(0xff800000);
            if (lane < count) score = scale * plain_dot(query, k + (i64)(base + lane) * kv_stride, head_dim);
            float now = fmaxf(largest, warp_max(score));
            float shrink = expf(largest - now), p = expf(score - now);
            largest = now;
            sum = sum * shrink + warp_sum(p);
            for (int i = 0; i < PLAIN_COLUMNS; i++) sums[i] *= shrink;
            plain_add_rows(sums, p, v + (i64)base * kv_stride, kv_stride, count, head_dim);
        }
        plain_store(out + (row * heads + head) * head_dim, sums, keys > 0 ? 1.0f / sum : 0.0f, head_dim);
        if (lane == 0) lse[row * heads + head] = largest + logf(sum);
        __syncwarp();
    }
}

// With P the probabilities, dP = d_out V^T and D = rowsum(d_out * out), the gradient of the scores is
// dS = P * (dP - D); then dq = scale * dS k, dk = scale * dS^T q, dv = P^T d_out. Head h starts at column h * head_dim
// of `dq`, at dk_column and dv_column more than that in `dkv`. D is computed wherever it is needed, which is slow and
// needs no room.
extern "C" __global__ void __launch_bounds__(128)
    attention_plain_backward(const act* __restrict__ q, int q_stride, const act* __restrict__ kv, int kv_stride,
                             int k_column, int v_column, const int* __restrict__ query_offsets,
                             const int* __restrict__ key_offsets, int heads, int head_dim, float scale,
                             const act* __restrict__ out, const float* __restrict__ lse,
                             const act* __restrict__ d_out, act* __restrict__ dq, int dq_stride, act* __restrict__ dkv,
                             int dkv_stride, int dk_column, int dv_column) {
    __shared__ float first_rows[PLAIN_WARPS][PLAIN_WIDTH], second_rows[PLAIN_WARPS][PLAIN_WIDTH];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, segment = blockIdx.x, head = blockIdx.y;
    int dim = heads * head_dim, column = head * head_dim;
    i64 first_query = query_offsets[segment], first_key = key_offsets[segment];
    int queries = query_offsets[segment + 1] - (int)first_query, keys = key_offsets[segment + 1] - (int)first_key;
    const act* q_rows = q + first_query * q_stride + column;
    const act* k_rows = kv + first_key * kv_stride + k_column + column;
    const act* v_rows = kv + first_key * kv_stride + v_column + column;
    const act* out_rows = out + first_query * dim + column;
    const act* d_out_rows = d_out + first_query * dim + column;
    const float* lse_rows = lse + first_query * heads + head;
    float *first = first_rows[warp], *second = second_rows[warp];
    int start = blockIdx.z * PLAIN_WARPS + warp, step = gridDim.z * PLAIN_WARPS;

    // A query and its row of d_out against all keys.
    for (i64 row = start; row < queries; row += step) {
        plain_fetch(first, q_rows + row * q_stride, head_dim);
        plain_fetch(second, d_out_rows + row * dim, head_dim);
        __syncwarp();
        float dot = plain_dot(second, out_rows + row * dim, head_dim), row_lse = lse_rows[row * heads];
        float sums[PLAIN_COLUMNS] = {};
        for (int base = 0; base < keys; base += 32) {
            int count = min(32, keys - base);
            float ds = 0.0f;
            if (lane < count) {
                i64 place = (i64)(base + lane) * kv_stride;
                float p = expf(scale * plain_dot(first, k_rows + place, head_dim) - row_lse);
                ds = p * (plain_dot(second, v_rows + place, head_dim) - dot);
            }
            plain_add_rows(sums, ds, k_rows + (i64)base * kv_stride, kv_stride, count, head_dim);
        }
        plain_store(dq + (first_query + row) * dq_stride + column, sums, scale, head_dim);
        __syncwarp();
    }

    // A key and its value against all queries.
    for (i64 row = start; row < keys; row += step) {
        plain_fetch(first, k_rows + row * kv_stride, head_dim);
        plain_fetch(second, v_rows + row * kv_stride, head_dim);
        __syncwarp();
        float dk[PLAIN_COLUMNS] = {}, dv[PLAIN_COLUMNS] = {};
        for (int base = 0; base < queries; base += 32) {
            int count = min(32, queries - base);
            float p = 0.0f, ds = 0.0f;
            if (lane < count) {
                i64 place = base + lane;
                const act *o = out_rows + place * dim, *d = d_out_rows + place * dim;
                float dot = 0.0f;
                for (int c = 0; c < head_dim; c++) dot = fmaf(to_float(d[c]), to_float(o[c]), dot);
                p = expf(scale * plain_dot(first, q_rows + place * q_stride, head_dim) - lse_rows[place * heads]);
                ds = p * (plain_dot(second, d, head_dim) - dot);
            }
            plain_add_rows(dk, ds, q_rows + (i64)base * q_stride, q_stride, count, head_dim);
            plain_add_rows(dv, p, d_out_rows + (i64)base * dim, dim, count, head_dim);
        }
        act* target = dkv + (first_key + row) * dkv_stride + column;
        plain_store(target + dk_column, dk, scale, head_dim);
        plain_store(target + dv_column, dv, 1.0f, head_dim);
        __syncwarp();
    }
}
