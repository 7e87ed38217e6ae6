// Attention of one query per segment, the class token's, over the tokens of its segment; heads of 64 numbers. Bound by
// reading keys and values, which is done once in each direction.
//
// `q`, `out` and their gradients are [segments, dim] with dim = 64 * heads; `kv` and its gradient are
// [tokens, 2 * dim], keys first. Segment s owns rows offsets[s] to offsets[s + 1] of kv. `lse` is [segments, heads]:
// the natural logarithm of the sum of exp(scale * q.k).
//
// A block takes one head of one segment. Eight neighbouring lanes, an octet, share a key: each reads 16 bytes of it (32
// if act is float), so that an octet reads a whole row of the head. The 16 octets of a block take every 16th key, four
// of them at a time so that enough reads are under way, and join their sums at the end in a fixed order.
//
// Both kernels: grid heads * segments; block 128 threads; no dynamic shared memory.

constexpr int CLASS_HEAD = 64;
constexpr int CLASS_OCTETS = 16;
constexpr int CLASS_AHEAD = 4;
// Stands for "no score yet": far below any score, yet finite, so that differences of it are numbers.
constexpr float CLASS_LOWEST = -1e30f;

// The product of two rows spread over an octet; each of its lanes gets it.
__device__ __forceinline__ float octet_dot(const float (&a)[8], const float (&b)[8]) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) sum = fmaf(a[i], b[i], sum);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 4);
}

// Sum over the 16 octets of eight columns each; right in the first octet. `shared` is [4][64].
__device__ __forceinline__ void join_octets(float (&x)[8], float* shared) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, column = (lane & 7) * 8;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x[i] += __shfl_xor_sync(0xffffffffu, x[i], 8);
        x[i] += __shfl_xor_sync(0xffffffffu, x[i], 16);
        if (lane < 8) shared[warp * CLASS_HEAD + column + i] = x[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float* from = shared + column + i;
        x[i] = (from[0] + from[CLASS_HEAD]) + (from[2 * CLASS_HEAD] + from[3 * CLASS_HEAD]);
    }
}

// An octet's next keys and values, from row `base` of the segment on; past its end, the last row.
__device__ __forceinline__ void load_ahead(const act* kv, int begin, int base, int length, int dim, int column,
                                           float (&k)[CLASS_AHEAD][8], float (&v)[CLASS_AHEAD][8]) {
#pragma unroll
    for (int i = 0; i < CLASS_AHEAD; i++) {
        const act* row = kv + (i64)(begin + min(base + i * CLASS_OCTETS, length - 1)) * 2 * dim + column;
        load8(row, k[i]), load8(row + dim, v[i]);
    }
}

extern "C" __global__ void __launch_bounds__(128)
    class_attention_forward(const act* __restrict__ q, const act* __restrict__ kv, const int* __restrict__ offsets,
                            int heads, float scale, act* __restrict__ out, float* __restrict__ lse) {
    __shared__ float joined[4 * CLASS_HEAD], largest_of[CLASS_OCTETS], sum_of[CLASS_OCTETS];
    int head = blockIdx.x % heads, segment = blockIdx.x / heads, octet = threadIdx.x >> 3;
    int begin = offsets[segment], length = offsets[segment + 1] - begin, dim = heads * CLASS_HEAD;
    int column = head * CLASS_HEAD + (threadIdx.x & 7) * 8;
    i64 place = (i64)segment * dim + column;
    float query[8], sums[8] = {}, largest = CLASS_LOWEST, sum = 0.0f;
    load8(q + place, query);

    // All octets run the same number of rounds, since they exchange numbers within warps.
    for (int base = octet; base < length + octet; base += CLASS_AHEAD * CLASS_OCTETS) {
        float k[CLASS_AHEAD][8], v[CLASS_AHEAD][8], score[CLASS_AHEAD], now = largest;
        load_ahead(kv, begin, base, length, dim, column, k, v);
#pragma unroll
        for (int i = 0; i < CLASS_AHEAD; i++) {
            score[i] = scale * octet_dot(query, k[i]);
            if (base + i * CLASS_OCTETS >= length) score[i] = __int_as_float(0xff800000);
            now = fmaxf(now, score[i]);
        }
        float shrink = expf(largest - now);
        largest = now, sum *= shrink;
#pragma unroll
        for (int j = 0; j < 8; j++) sums[j] *= shrink;
#pragma unroll
        for (int i = 0; i < CLASS_AHEAD; i++) {
            float p = expf(score[i] - now);
            sum += p;
#pragma unroll
            for (int j = 0; j < 8; j++) sums[j] = fmaf(p, v[i][j], sums[j]);
        }
    }

    if ((threadIdx.x & 7) == 0) largest_of[octet] = largest, sum_of[octet] = sum;
    __syncthreads();
    float overall = CLASS_LOWEST, total = 0.0f;
    for (int i = 0; i < CLASS_OCTETS; i++) overall = fmaxf(overall, largest_of[i]);
    for (int i = 0; i < CLASS_OCTETS; i++) total = fmaf(sum_of[i], expf(largest_of[i] - overall), total);
    float factor = length > 0 ? expf(largest - overall) / total : 0.0f;
#pragma unroll
    for (int j = 0; j < 8; j++) sums[j] *= factor;
    join_octets(sums, joined);
    if (octet == 0) store8(out + place, sums);
    if (threadIdx.x == 0) lse[(i64)segment * heads + head] = overall + logf(total);
}

// Writes all of dq and of the rows of dkv that belong to segments.
extern "C" __global__ void __launch_bounds__(128)
    class_attention_backward(const act* __restrict__ q, const act* __restrict__ kv, const int* __restrict__ offsets,
                             int heads, float scale, const act* __restrict__ out, const float* __restrict__ lse,
                             const act* __restrict__ d_out, act* __restrict__ dq, act* __restrict__ dkv) {
    __shared__ float joined[4 * CLASS_HEAD];
    int head = blockIdx.x % heads, segment = blockIdx.x / heads, octet = threadIdx.x >> 3;
    int begin = offsets[segment], length = offsets[segment + 1] - begin, dim = heads * CLASS_HEAD;
    int column = head * CLASS_HEAD + (threadIdx.x & 7) * 8;
    i64 place = (i64)segment * dim + column;
    float query[8], gradient[8], sums[8] = {};
    load8(q + place, query), load8(d_out + place, gradient);
    float dot, row_lse = lse[(i64)segment * heads + head];
    {
        float output[8];
        load8(out + place, output);
        dot = octet_dot(gradient, output);
    }

    for (int base = octet; base < length + octet; base += CLASS_AHEAD * CLASS_OCTETS) {
        float k[CLASS_AHEAD][8], v[CLASS_AHEAD][8];
        load_ahead(kv, begin, base, length, dim, column, k, v);
#pragma unroll
        for (int i = 0; i < CLASS_AHEAD; i++) {
            float p = expf(scale * octet_dot(query, k[i]) - row_lse);
            float ds = scale * p * (octet_dot(gradient, v[i]) - dot);
            if (base + i * CLASS_OCTETS < length) {
                float dk[8], dv[8];
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    sums[j] = fmaf(ds, k[i][j], sums[j]);
                    dk[j] = ds * query[j], dv[j] = p * gradient[j];
                }
                act* row = dkv + (i64)(begin + base + i * CLASS_OCTETS) * 2 * dim + column;
                store8(row, dk), store8(row + dim, dv);
            }
        }
    }
    join_octets(sums, joined);
    if (octet == 0) store8(dq + place, sums);
}
