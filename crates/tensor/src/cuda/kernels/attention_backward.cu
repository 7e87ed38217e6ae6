// The derivative of attention: bf16, heads of 64, tensor cores. attention_strips.cuh says how rows are shared out.

//
// With P the probabilities, dP = dO V^T and D = rowsum(dO * O), the gradient of the scores is dS = P * (dP - D); then
// dV = P^T dO, dK = scale * dS^T Q, dQ = scale * dS K.

// dK and dV of 16 keys from 16 staged queries; columns are queries. Queries past the end need no mask: their staged
// rows, lse and D are all zero, so that P is one, but is multiplied by nothing but zeros.
__device__ __forceinline__ void add_queries(float (&dk)[8][4], float (&dv)[8][4], const u32 (&k)[4][4],
                                            const u32 (&v)[4][4], u32 queries, u32 d_outs, const float2* statistics,
                                            float factor, LaneOffsets lane) {
    float p[2][4], ds[2][4];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        multiply_by_rows(p[half], k, queries + half * (STRIP_BYTES / 2), lane);
        multiply_by_rows(ds[half], v, d_outs + half * (STRIP_BYTES / 2), lane);
        // Of two neighbouring queries: lse, D, lse, D.
        float4 two = *reinterpret_cast<const float4*>(statistics + half * 8 + 2 * (threadIdx.x & 3));
#pragma unroll
        for (int e = 0; e < 4; e++) {
            p[half][e] = power_of_two(fmaf(p[half][e], factor, -(e & 1 ? two.z : two.x) * LOG2_E));
            ds[half][e] = p[half][e] * (ds[half][e] - (e & 1 ? two.w : two.y));
        }
    }
    u32 weights[4];
    pack_operand(weights, p[0], p[1]);
    add_weighted_rows(dv, weights, d_outs, lane);
    pack_operand(weights, ds[0], ds[1]);
    add_weighted_rows(dk, weights, queries, lane);
}

// dQ of 16 queries from 16 staged keys, of which `valid` exist; columns are keys. `shift` and `dot` are of the lane's
// two rows: lse * log2(e), and D. The power of a key that does not exist may overflow, hence the mask.
__device__ __forceinline__ void add_keys(float (&dq)[8][4], const u32 (&q)[4][4], const u32 (&d_out)[4][4], u32 keys,
                                         u32 values, int valid, const float (&shift)[2], const float (&dot)[2],
                                         float factor, LaneOffsets lane) {
    float ds[2][4];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float p[4];
        multiply_by_rows(p, q, keys + half * (STRIP_BYTES / 2), lane);
        multiply_by_rows(ds[half], d_out, values + half * (STRIP_BYTES / 2), lane);
#pragma unroll
        for (int e = 0; e < 4; e++)
            ds[half][e] = power_of_two(fmaf(p[e], factor, -shift[e >> 1])) * (ds[half][e] - dot[e >> 1]);
    }
    if (valid < STRIP) {
        int first = 2 * (threadIdx.x & 3);
#pragma unroll
        for (int e = 0; e < 8; e++)
            if (first + (e >> 2) * 8 + (e & 1) >= valid) ds[e >> 2][e & 3] = 0.0f;
    }
    u32 weights[4];
    pack_operand(weights, ds[0], ds[1]);
    add_weighted_rows(dq, weights, keys, lane);
}

// D of a row and head, by eight neighbouring lanes, each with eight of the 64 numbers.
__device__ __forceinline__ float row_dot(const bf16* out, const bf16* d_out) {
    float o[8], d[8], sum = 0.0f;
    load8(out, o), load8(d_out, d);
#pragma unroll
    for (int j = 0; j < 8; j++) sum = fmaf(o[j], d[j], sum);
    return sum;
}
__device__ __forceinline__ float sum_of_eight_lanes(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    x += __shfl_xor_sync(0xffffffffu, x, 2);
    return x + __shfl_xor_sync(0xffffffffu, x, 4);
}

// Adds the sums over the 16 rows of a strip to 64 numbers that are the warp's own.
__device__ __forceinline__ void add_sums_of_strip(float* sums, const float (&x)[8][4]) {
#pragma unroll
    for (int e = 0; e < 16; e++) {
        float sum = x[e >> 1][e & 1] + x[e >> 1][(e & 1) + 2];
        sum += __shfl_xor_sync(0xffffffffu, sum, 4);
        sum += __shfl_xor_sync(0xffffffffu, sum, 8);
        sum += __shfl_xor_sync(0xffffffffu, sum, 16);
        if ((threadIdx.x & 31) < 4) sums[(e >> 1) * 8 + 2 * (threadIdx.x & 3) + (e & 1)] += sum;
    }
}

// The sums over a warp's share of some staged rows, into 64 numbers that are the warp's own. A lane has two columns.
__device__ __forceinline__ void sum_staged_rows(float* sums, const u8* staged, int rows) {
    int word = threadIdx.x & 31;
    float low = 0.0f, high = 0.0f;
    for (int row = threadIdx.x >> 5; row < rows; row += blockDim.x >> 5) {
        int at = row * ROW_BYTES + (((word >> 2) ^ (row & 7)) << 4) + (word & 3) * 4;
        u32 both = *reinterpret_cast<const u32*>(staged + at);
        low += low_half(both), high += high_half(both);
    }
    sums[2 * word] = low, sums[2 * word + 1] = high;
}

constexpr int MOST_WARPS = 7;

// Writes all of d_qkv, and unless it is null `sums` [segments, 3 dim]: the sums over the rows of each segment. Those of
// keys are nothing, since a number added to all of them changes no probability; those of values are those of d_out,
// since probabilities add up to one. Grid: heads * segments. Block: 32 * warps threads, warps = ceil(strips /
// ceil(strips / 7)), at most 7 (two such blocks fit an H200's multiprocessor at 197 tokens, in registers as in shared
// memory). Dynamic shared memory: 8320 * strips bytes.
extern "C" __global__ void __launch_bounds__(224, 2)
    attention_backward(const bf16* __restrict__ qkv, const int* __restrict__ offsets, int first_segment, int heads,
                       float scale, const bf16* __restrict__ out, const bf16* __restrict__ d_out,
                       const float* __restrict__ lse, bf16* __restrict__ d_qkv, float* __restrict__ sums) {
    extern __shared__ __align__(128) u8 attention_shared[];
    __shared__ float query_sums[MOST_WARPS][HEAD], value_sums[MOST_WARPS][HEAD];
    int head = blockIdx.x % heads, segment = first_segment + blockIdx.x / heads;
    int begin = offsets[segment], length = offsets[segment + 1] - begin;
    if (length <= 0) return;
    int dim = heads * HEAD, stride = 3 * dim, strips = (length + STRIP - 1) / STRIP, rows = strips * STRIP;
    u32 queries = shared_address(attention_shared), keys = queries + rows * ROW_BYTES;
    u32 values = keys + rows * ROW_BYTES, d_outs = values + rows * ROW_BYTES;
    float2* statistics = reinterpret_cast<float2*>(attention_shared + 4 * rows * ROW_BYTES);
    const bf16* from = place(qkv, begin, stride, head * HEAD);
    stage_rows(queries, from, stride, length, rows);
    stage_rows(keys, from + dim, stride, length, rows);
    stage_rows(values, from + 2 * dim, stride, length, rows);
    stage_rows(d_outs, place(d_out, begin, dim, head * HEAD), dim, length, rows);
    close_copies();

    // Four rows at a time for each eight lanes, read before any is summed: this hides behind the copies under way.
    for (int i = threadIdx.x; i < rows * 8; i += 4 * blockDim.x) {
        float dot[4], row_lse[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int row = min((i + j * (int)blockDim.x) >> 3, length - 1);
            i64 at = (i64)(begin + row) * dim + head * HEAD + (i & 7) * 8;
            dot[j] = row_dot(out + at, d_out + at), row_lse[j] = *place(lse, begin + row, heads, head);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int row = (i + j * (int)blockDim.x) >> 3;
            float whole = sum_of_eight_lanes(dot[j]);
            float2 known = row < length ? make_float2(row_lse[j], whole) : make_float2(0.0f, 0.0f);
            if ((i & 7) == 0 && row < rows) statistics[row] = known;
        }
    }
    wait_for_copies<0>();
    __syncthreads();

    LaneOffsets lane = lane_offsets();
    float factor = scale * LOG2_E;
    int warp = threadIdx.x >> 5;
    if (sums) {
        sum_staged_rows(value_sums[warp], attention_shared + 3 * rows * ROW_BYTES, rows);
        for (int c = threadIdx.x & 31; c < HEAD; c += 32) query_sums[warp][c] = 0.0f;
        __syncwarp();
    }
    // Strips of keys first: they cost more than those of queries, and a warp's last piece of work should be small.
    for (int item = warp; item < 2 * strips; item += blockDim.x >> 5) {
        int strip = item < strips ? item : item - strips, row = strip * STRIP;
        if (item < strips) {
            u32 k[4][4], v[4][4];
            load_staged_strip(k, keys + strip * STRIP_BYTES, lane);
            load_staged_strip(v, values + strip * STRIP_BYTES, lane);
            float dk[8][4] = {}, dv[8][4] = {};
#pragma unroll 1
            for (int query = 0; query < length; query += STRIP)
                add_queries(dk, dv, k, v, queries + query * ROW_BYTES, d_outs + query * ROW_BYTES, statistics + query,
                            factor, lane);
            bf16* to = place(d_qkv, begin + row, stride, dim + head * HEAD);
            store_strip(to, stride, length - row, dk, scale, scale);
            store_strip(to + dim, stride, length - row, dv, 1.0f, 1.0f);
        } else {
            u32 q[4][4], d[4][4];
            load_staged_strip(q, queries + strip * STRIP_BYTES, lane);
            load_staged_strip(d, d_outs + strip * STRIP_BYTES, lane);
            float dq[8][4] = {}, shift[2], dot[2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float2 known = statistics[row + ((threadIdx.x & 31) >> 2) + 8 * half];
                shift[half] = known.x * LOG2_E, dot[half] = known.y;
            }
#pragma unroll 1
            for (int key = 0; key < length; key += STRIP)
                add_keys(dq, q, d, keys + key * ROW_BYTES, values + key * ROW_BYTES, length - key, shift, dot, factor,
                         lane);
            store_strip(place(d_qkv, begin + row, stride, head * HEAD), stride, length - row, dq, scale, scale);
            // Rows beyond the end are zero.
            if (sums) add_sums_of_strip(query_sums[warp], dq);
        }
    }
    if (!sums) return;
    __syncthreads();
    float* to = sums + (i64)segment * stride + head * HEAD;
    for (int c = threadIdx.x; c < HEAD; c += blockDim.x) {
        float of_queries = 0.0f, of_values = 0.0f;
        for (int w = 0; w < blockDim.x >> 5; w++) of_queries += query_sums[w][c], of_values += value_sums[w][c];
        to[c] = of_queries * scale, to[dim + c] = 0.0f, to[2 * dim + c] = of_values;
    }
}

// D into `dots` [tokens, heads], which the two long kernels read. `pairs` is tokens * heads. Grid: ceil(pairs / 32).
// Block: 256 threads.
extern "C" __global__ void __launch_bounds__(256)
    attention_backward_dots(const bf16* __restrict__ out, const bf16* __restrict__ d_out, i64 pairs,
                            float* __restrict__ dots) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, pair = i >> 3;
    float dot = sum_of_eight_lanes(pair < pairs ? row_dot(out + i * 8, d_out + i * 8) : 0.0f);
    if (pair < pairs && (i & 7) == 0) dots[pair] = dot;
}

// Writes the columns of keys and values of d_qkv. Grid: (ceil(strips / 7), heads, segments). Block: 224 threads. No
// dynamic shared memory.
extern "C" __global__ void __launch_bounds__(224, 2)
    attention_backward_keys_long(const bf16* __restrict__ qkv, const int* __restrict__ offsets, int first_segment,
                                 int heads, float scale, const bf16* __restrict__ d_out, const float* __restrict__ lse,
                                 const float* __restrict__ dots, bf16* __restrict__ d_qkv) {
    __shared__ __align__(128) u8 tiles[2][2][TILE_BYTES];
    __shared__ __align__(16) float2 statistics[2][TILE];
    int head = blockIdx.y, segment = first_segment + blockIdx.z;
    int begin = offsets[segment], length = offsets[segment + 1] - begin;
    int first = blockIdx.x * (blockDim.x >> 5) * STRIP;
    if (first >= length) return;
    int dim = heads * HEAD, stride = 3 * dim, row = first + (threadIdx.x >> 5) * STRIP;
    u32 shared = shared_address(tiles), shared_statistics = shared_address(statistics);
    LaneOffsets lane = lane_offsets();
    u32 k[4][4], v[4][4];
    const bf16* from = place(qkv, begin + row, stride, dim + head * HEAD);
    load_strip(k, from, stride, length - row);
    load_strip(v, from + dim, stride, length - row);
    float dk[8][4] = {}, dv[8][4] = {};
    auto stage = [&](int query, int buffer) {
        int valid = length - query, token = begin + query;
        stage_pair(shared + buffer * 2 * TILE_BYTES, place(qkv, token, stride, head * HEAD), stride,
                   place(d_out, token, dim, head * HEAD), dim, valid);
        if (threadIdx.x < 2 * TILE) {
            int i = threadIdx.x / 2;
            const float* at = place(threadIdx.x & 1 ? dots : lse, token + (i < valid ? i : 0), heads, head);
            copy_4_bytes(shared_statistics + (buffer * 2 * TILE + threadIdx.x) * 4, at, i < valid);
        }
    };
    stream_tiles(length, stage, [&](int query, int buffer) {
        u32 queries = shared + buffer * 2 * TILE_BYTES;
        int end = row < length ? min(TILE, length - query) : 0;
#pragma unroll 1
        for (int i = 0; i < end; i += STRIP)
            add_queries(dk, dv, k, v, queries + i * ROW_BYTES, queries + TILE_BYTES + i * ROW_BYTES,
                        statistics[buffer] + i, scale * LOG2_E, lane);
    });
    if (row >= length) return;
    bf16* to = place(d_qkv, begin + row, stride, dim + head * HEAD);
    store_strip(to, stride, length - row, dk, scale, scale);
    store_strip(to + dim, stride, length - row, dv, 1.0f, 1.0f);
}

// Writes the columns of queries of d_qkv. Grid: (ceil(longest / 128), heads, segments). Block: 256 threads. No dynamic
// shared memory.
extern "C" __global__ void __launch_bounds__(256, 2)
    attention_backward_queries_long(const bf16* __restrict__ qkv, const int* __restrict__ offsets, int first_segment,
                                    int heads, float scale, const bf16* __restrict__ d_out,
                                    const float* __restrict__ lse, const float* __restrict__ dots,
                                    bf16* __restrict__ d_qkv) {
    __shared__ __align__(128) u8 tiles[2][2][TILE_BYTES];
    int head = blockIdx.y, segment = first_segment + blockIdx.z;
    int begin = offsets[segment], length = offsets[segment + 1] - begin;
    int first = blockIdx.x * (blockDim.x >> 5) * STRIP;
    if (first >= length) return;
    int dim = heads * HEAD, stride = 3 * dim, row = first + (threadIdx.x >> 5) * STRIP;
    u32 shared = shared_address(tiles);
    LaneOffsets lane = lane_offsets();
    u32 q[4][4], d[4][4];
    load_strip(q, place(qkv, begin + row, stride, head * HEAD), stride, length - row);
    load_strip(d, place(d_out, begin + row, dim, head * HEAD), dim, length - row);
    float dq[8][4] = {}, shift[2], dot[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int at = row + ((threadIdx.x & 31) >> 2) + 8 * half;
        shift[half] = at < length ? *place(lse, begin + at, heads, head) * LOG2_E : 0.0f;
        dot[half] = at < length ? *place(dots, begin + at, heads, head) : 0.0f;
    }
    auto stage = [&](int key, int buffer) {
        const bf16* from = place(qkv, begin + key, stride, dim + head * HEAD);
        stage_pair(shared + buffer * 2 * TILE_BYTES, from, stride, from + dim, stride, length - key);
    };
    stream_tiles(length, stage, [&](int key, int buffer) {
        u32 keys = shared + buffer * 2 * TILE_BYTES;
        int end = row < length ? min(TILE, length - key) : 0;
#pragma unroll 1
        for (int i = 0; i < end; i += STRIP)
            add_keys(dq, q, d, keys + i * ROW_BYTES, keys + TILE_BYTES + i * ROW_BYTES, length - key - i, shift, dot,
                     scale * LOG2_E, lane);
    });
    if (row < length)
        store_strip(place(d_qkv, begin + row, stride, head * HEAD), stride, length - row, dq, scale, scale);
}
