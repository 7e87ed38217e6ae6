// Attention of heads of 64 columns in float, forward: what features and evaluations are computed with.
//
// Four neighbouring lanes share four queries: each has 16 columns of every one of them, in registers with 16 columns of
// their results. So a warp takes 32 queries, and a lane reads a quarter of a key once for four queries. Keys and values come by 32
// through shared memory; weights are relative to the largest score so far, and results are scaled anew where that grows.
//
// Grid (heads * segments, parts): the blocks of a segment share out its queries.

#ifdef ACT_IS_FLOAT

constexpr int EXACT_HEAD = 64, EXACT_KEYS = 32, EXACT_SLICE = 16, EXACT_QUERIES = 4;

// Of a row of 64 columns, four and the same four of each sixteen after them: so that the lanes of four slices read neighbouring
// banks of shared memory.
__device__ __forceinline__ void load_slice(const float* from, float* to) {
#pragma unroll
    for (int i = 0; i < EXACT_SLICE / 4; ++i)
        *reinterpret_cast<float4*>(to + 4 * i) = *reinterpret_cast<const float4*>(from + 16 * i);
}

extern "C" __global__ void __launch_bounds__(256)
    attention_exact_forward(const float* __restrict__ qkv, const int* __restrict__ offsets, int first_segment, int heads,
                            float scale, float* __restrict__ out, float* __restrict__ lse) {
    __shared__ float __align__(16) keys[EXACT_KEYS][EXACT_HEAD];
    __shared__ float __align__(16) values[EXACT_KEYS][EXACT_HEAD];
    int head = blockIdx.x % heads, segment = first_segment + blockIdx.x / heads;
    i64 start = offsets[segment];
    int length = offsets[segment + 1] - (int)start, dim = heads * EXACT_HEAD, lane = threadIdx.x & 31;
    int slice = (lane & 3) * 4;
    int first = (blockIdx.y * (blockDim.x >> 5) + (threadIdx.x >> 5)) * 32 + (lane >> 2) * EXACT_QUERIES;

    float __align__(16) q[EXACT_QUERIES][EXACT_SLICE], __align__(16) sums[EXACT_QUERIES][EXACT_SLICE] = {};
    float most[EXACT_QUERIES], sum[EXACT_QUERIES] = {};
#pragma unroll
    for (int r = 0; r < EXACT_QUERIES; ++r) {
        // Where there is no query, the last one once more, which is not written.
        load_slice(qkv + (start + min(first + r, length - 1)) * 3 * dim + head * EXACT_HEAD + slice, q[r]);
        for (int c = 0; c < EXACT_SLICE; ++c) q[r][c] *= scale;
        most[r] = -__int_as_float(0x7f800000);
    }

    for (int base = 0; base < length; base += EXACT_KEYS) {
        int count = min(EXACT_KEYS, length - base);
        __syncthreads();
        for (int i = threadIdx.x; i < EXACT_KEYS * EXACT_HEAD / 4; i += blockDim.x) {
            int key = i / (EXACT_HEAD / 4), c = i % (EXACT_HEAD / 4) * 4;
            // Four keys are taken at a time, so there may be some that do not exist: the last one stands there, with weight 0.
            const float* row = qkv + (start + base + min(key, count - 1)) * 3 * dim + head * EXACT_HEAD + c;
            *reinterpret_cast<float4*>(&keys[key][c]) = *reinterpret_cast<const float4*>(row + dim);
            *reinterpret_cast<float4*>(&values[key][c]) = *reinterpret_cast<const float4*>(row + 2 * dim);
        }
        __syncthreads();
        for (int key = 0; key < count; key += 4) {
            float p[EXACT_QUERIES][4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                float __align__(16) k[EXACT_SLICE];
                load_slice(&keys[key + j][slice], k);
#pragma unroll
                for (int r = 0; r < EXACT_QUERIES; ++r) {
                    float dot = 0.0f;
                    for (int c = 0; c < EXACT_SLICE; ++c) dot = fmaf(q[r][c], k[c], dot);
                    dot += __shfl_xor_sync(0xffffffffu, dot, 1);
                    dot += __shfl_xor_sync(0xffffffffu, dot, 2);
                    p[r][j] = key + j < count ? dot : -__int_as_float(0x7f800000);
                }
            }
            float now[EXACT_QUERIES];
            bool grows = false;
#pragma unroll
            for (int r = 0; r < EXACT_QUERIES; ++r) {
                now[r] = fmaxf(fmaxf(fmaxf(p[r][0], p[r][1]), fmaxf(p[r][2], p[r][3])), most[r]);
                grows |= now[r] > most[r];
            }
            if (__any_sync(0xffffffffu, grows))
#pragma unroll
                for (int r = 0; r < EXACT_QUERIES; ++r) {
                    float shrink = expf(most[r] - now[r]);
                    most[r] = now[r], sum[r] *= shrink;
                    for (int c = 0; c < EXACT_SLICE; ++c) sums[r][c] *= shrink;
                }
#pragma unroll
            for (int r = 0; r < EXACT_QUERIES; ++r)
                for (int j = 0; j < 4; ++j) p[r][j] = expf(p[r][j] - most[r]), sum[r] += p[r][j];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                float __align__(16) v[EXACT_SLICE];
                load_slice(&values[key + j][slice], v);
#pragma unroll
                for (int r = 0; r < EXACT_QUERIES; ++r)
                    for (int c = 0; c < EXACT_SLICE; ++c) sums[r][c] = fmaf(p[r][j], v[c], sums[r][c]);
            }
        }
    }

#pragma unroll
    for (int r = 0; r < EXACT_QUERIES; ++r) {
        int row = first + r;
        if (row >= length) break;
        float share = 1.0f / sum[r];
        float* to = out + (start + row) * dim + head * EXACT_HEAD + slice;
        for (int c = 0; c < EXACT_SLICE; ++c) sums[r][c] *= share;
#pragma unroll
        for (int i = 0; i < EXACT_SLICE / 4; ++i) store4(to + 16 * i, sums[r] + 4 * i);
        if (slice == 0) lse[(start + row) * heads + head] = most[r] + logf(sum[r]);
    }
}

#endif
