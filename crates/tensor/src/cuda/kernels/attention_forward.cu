// Attention, forward: bf16, heads of 64, tensor cores. attention_strips.cuh says how rows are shared out.

// What a warp knows of its 16 queries so far. A lane holds two rows; its sums are over its own columns only.
struct Attended {
    float out[8][4] = {}, sum[2] = {};
    float largest[2] = {minus_infinity(), minus_infinity()};
};

// Takes in GROUPS times 16 staged keys and values, of which all but the last group are full. `factor` is the scale of
// the scores times log2(e), since the powers are of two. At least one key counts, so the largest score is finite.
template <int GROUPS>
__device__ __forceinline__ void attend_groups(Attended& a, const u32 (&q)[4][4], u32 keys, u32 values, int valid,
                                              float factor, LaneOffsets lane) {
    constexpr int BLOCKS = 2 * GROUPS;
    float s[BLOCKS][4];
#pragma unroll
    for (int i = 0; i < BLOCKS; i++) multiply_by_rows(s[i], q, keys + i * (STRIP_BYTES / 2), lane);
    if (valid < GROUPS * STRIP) {
        int first = (GROUPS - 1) * STRIP + 2 * (threadIdx.x & 3);
#pragma unroll
        for (int e = 0; e < 8; e++)
            if (first + (e >> 2) * 8 + (e & 1) >= valid) s[BLOCKS - 2 + (e >> 2)][e & 3] = minus_infinity();
    }
#pragma unroll
    for (int row = 0; row < 2; row++) {
        float largest = a.largest[row];
#pragma unroll
        for (int i = 0; i < BLOCKS; i++) largest = fmaxf(largest, fmaxf(s[i][2 * row], s[i][2 * row + 1]));
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
        float shrink = power_of_two((a.largest[row] - largest) * factor);
        a.largest[row] = largest;
        float sum = 0.0f, shift = largest * factor;
#pragma unroll
        for (int i = 0; i < BLOCKS; i++) {
            s[i][2 * row] = power_of_two(fmaf(s[i][2 * row], factor, -shift));
            s[i][2 * row + 1] = power_of_two(fmaf(s[i][2 * row + 1], factor, -shift));
            sum += s[i][2 * row] + s[i][2 * row + 1];
        }
        a.sum[row] = fmaf(a.sum[row], shrink, sum);
#pragma unroll
        for (int n = 0; n < 8; n++) a.out[n][2 * row] *= shrink, a.out[n][2 * row + 1] *= shrink;
    }
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
        u32 weights[4];
        pack_operand(weights, s[2 * group], s[2 * group + 1]);
        add_weighted_rows(a.out, weights, values + group * STRIP_BYTES, lane);
    }
}

// Takes in up to 64 staged keys: a copy of the code for each number of groups, so that a short segment pays for the
// groups it has and the compiler can still interleave them.
__device__ __forceinline__ void attend_tile(Attended& a, const u32 (&q)[4][4], u32 keys, u32 values, int valid,
                                            float factor, LaneOffsets lane) {
    if (valid > 3 * STRIP) attend_groups<4>(a, q, keys, values, valid, factor, lane);
    else if (valid > 2 * STRIP) attend_groups<3>(a, q, keys, values, valid, factor, lane);
    else if (valid > STRIP) attend_groups<2>(a, q, keys, values, valid, factor, lane);
    else attend_groups<1>(a, q, keys, values, valid, factor, lane);
}

// Of the strip that starts at row `token`, the first `valid` rows.
__device__ __forceinline__ void store_attended(const Attended& a, bf16* out, float* lse, int token, int head, int heads,
                                               int valid, float scale) {
    int lane = threadIdx.x & 31;
    float inverse[2];
#pragma unroll
    for (int row = 0; row < 2; row++) {
        float sum = a.sum[row] + __shfl_xor_sync(0xffffffffu, a.sum[row], 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        inverse[row] = 1.0f / sum;
        int at = (lane >> 2) + 8 * row;
        if ((lane & 3) == 0 && at < valid)
            *place(lse, token + at, heads, head) = a.largest[row] * scale + logf(sum);
    }
    int dim = heads * HEAD;
    store_strip(place(out, token, dim, head * HEAD), dim, valid, a.out, inverse[0], inverse[1]);
}

// Grid: heads * segments. Block: 32 * warps threads, warps = ceil(strips / ceil(strips / 8)), at most 8. Dynamic shared
// memory: 4096 * strips bytes.
extern "C" __global__ void __launch_bounds__(256, 2)
    attention_forward(const bf16* __restrict__ qkv, const int* __restrict__ offsets, int first_segment, int heads,
                      float scale, bf16* __restrict__ out, float* __restrict__ lse) {
    extern __shared__ __align__(128) u8 attention_shared[];
    int head = blockIdx.x % heads, segment = first_segment + blockIdx.x / heads;
    int begin = offsets[segment], length = offsets[segment + 1] - begin;
    if (length <= 0) return;
    int dim = heads * HEAD, stride = 3 * dim, rows = (length + STRIP - 1) / STRIP * STRIP;
    u32 keys = shared_address(attention_shared), values = keys + rows * ROW_BYTES;
    stage_rows(keys, place(qkv, begin, stride, dim + head * HEAD), stride, length, rows);
    stage_rows(values, place(qkv, begin, stride, 2 * dim + head * HEAD), stride, length, rows);
    close_copies();

    int step = (blockDim.x >> 5) * STRIP, row = (threadIdx.x >> 5) * STRIP;
    LaneOffsets lane = lane_offsets();
    u32 q[4][4];
    load_strip(q, place(qkv, begin + row, stride, head * HEAD), stride, length - row);
    wait_for_copies<0>();
    __syncthreads();
    for (; row < length; row += step) {
        Attended a;
        for (int key = 0; key < length; key += TILE)
            attend_tile(a, q, keys + key * ROW_BYTES, values + key * ROW_BYTES, length - key, scale * LOG2_E, lane);
        load_strip(q, place(qkv, begin + row + step, stride, head * HEAD), stride, length - row - step);
        store_attended(a, out, lse, begin + row, head, heads, length - row, scale);
    }
}

// Grid: (ceil(longest / 128), heads, segments). Block: 256 threads. No dynamic shared memory.
extern "C" __global__ void __launch_bounds__(256, 2)
    attention_forward_long(const bf16* __restrict__ qkv, const int* __restrict__ offsets, int first_segment, int heads,
                           float scale, bf16* __restrict__ out, float* __restrict__ lse) {
    __shared__ __align__(128) u8 tiles[2][2][TILE_BYTES];
    int head = blockIdx.y, segment = first_segment + blockIdx.z;
    int begin = offsets[segment], length = offsets[segment + 1] - begin;
    int first = blockIdx.x * (blockDim.x >> 5) * STRIP;
    if (first >= length) return;
    int dim = heads * HEAD, stride = 3 * dim, row = first + (threadIdx.x >> 5) * STRIP;
    u32 shared = shared_address(tiles);
    LaneOffsets lane = lane_offsets();
    u32 q[4][4];
    load_strip(q, place(qkv, begin + row, stride, head * HEAD), stride, length - row);
    Attended a;
    auto stage = [&](int key, int buffer) {
        const bf16* from = place(qkv, begin + key, stride, dim + head * HEAD);
        stage_pair(shared + buffer * 2 * TILE_BYTES, from, stride, from + dim, stride, length - key);
    };
    stream_tiles(length, stage, [&](int key, int buffer) {
        u32 keys = shared + buffer * 2 * TILE_BYTES;
        if (row < length) attend_tile(a, q, keys, keys + TILE_BYTES, length - key, scale * LOG2_E, lane);
    });
    if (row < length) store_attended(a, out, lse, begin + row, head, heads, length - row, scale);
}
