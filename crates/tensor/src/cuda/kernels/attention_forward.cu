// Attention, forward: bf16, heads of 64, tensor cores. attention_strips.cuh says how rows are shared out.

// How far, as a power of two, a score may lie above its row's shift before the shift moves. Sums in single precision and
// weights in bf16 lose nothing by a factor of 256, and most groups of keys then need no look at other lanes.
constexpr float SLACK = 8.0f;

// What a warp knows of its R strips of 16 queries so far. A lane holds two rows of each strip; its sums are over its own
// columns only. The weights are 2^(factor * score - shift).
template <int R> struct Attended {
    float out[R][8][4] = {}, sum[R][2] = {}, shift[R][2] = {};
};

// Takes in 16 staged keys and values, of which `valid` count: at least one. `factor` is the scale of the scores times
// log2(e), since the powers are of two. The first keys set the shift; one of their weights is one, so no sum is zero.
template <int R>
__device__ __forceinline__ void attend(Attended<R>& a, const u32 (&q)[R][4][4], u32 keys, u32 values, int valid,
                                       bool is_first, float factor, LaneOffsets lane) {
    float s[R][2][4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 b[4];
        load_blocks(b, keys + (i >> 1) * (STRIP_BYTES / 2) + (lane.flat ^ ((i & 1) << 6)));
#pragma unroll
        for (int r = 0; r < R; r++) {
            multiply(s[r][i >> 1], q[r][2 * (i & 1)], b[0], b[1]);
            multiply(s[r][i >> 1], q[r][2 * (i & 1) + 1], b[2], b[3]);
        }
    }
    bool grows = is_first;
    float largest[R][2];
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            float& x = s[r][e >> 2][e & 3];
            x = fmaf(x, factor, -a.shift[r][(e >> 1) & 1]);
            if (valid < STRIP && (e >> 2) * 8 + 2 * (threadIdx.x & 3) + (e & 1) >= valid) x = minus_infinity();
        }
#pragma unroll
        for (int row = 0; row < 2; row++) {
            largest[r][row] = fmaxf(fmaxf(s[r][0][2 * row], s[r][0][2 * row + 1]),
                                    fmaxf(s[r][1][2 * row], s[r][1][2 * row + 1]));
            grows |= largest[r][row] > SLACK;
        }
    }
    if (__any_sync(0xffffffffu, grows)) {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int row = 0; row < 2; row++) {
                float by = fmaxf(largest[r][row], __shfl_xor_sync(0xffffffffu, largest[r][row], 1));
                by = fmaxf(by, __shfl_xor_sync(0xffffffffu, by, 2));
                if (!is_first) by = fmaxf(by, 0.0f);
                a.shift[r][row] += by;
                float shrink = is_first ? 1.0f : power_of_two(-by);
                a.sum[r][row] *= shrink;
#pragma unroll
                for (int n = 0; n < 8; n++) a.out[r][n][2 * row] *= shrink, a.out[r][n][2 * row + 1] *= shrink;
#pragma unroll
                for (int half = 0; half < 2; half++) s[r][half][2 * row] -= by, s[r][half][2 * row + 1] -= by;
            }
    }
    u32 weights[R][4];
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            float& x = s[r][e >> 2][e & 3];
            x = power_of_two(x);
            a.sum[r][(e >> 1) & 1] += x;
        }
        pack_operand(weights[r], s[r][0], s[r][1]);
    }
#pragma unroll
    for (int n = 0; n < 4; n++) {
        u32 b[4];
        load_blocks_transposed(b, values + (lane.square ^ (n << 5)));
#pragma unroll
        for (int r = 0; r < R; r++) {
            multiply(a.out[r][2 * n], weights[r], b[0], b[1]);
            multiply(a.out[r][2 * n + 1], weights[r], b[2], b[3]);
        }
    }
}

template <int R>
__device__ __forceinline__ void load_queries(u32 (&q)[R][4][4], const bf16* qkv, int token, int stride, int head,
                                             int valid) {
#pragma unroll
    for (int r = 0; r < R; r++)
        load_strip(q[r], place(qkv, token + r * STRIP, stride, head * HEAD), stride, valid - r * STRIP);
}

// Of the strips that start at row `token`, the first `valid` rows.
template <int R>
__device__ __forceinline__ void store_attended(const Attended<R>& a, bf16* out, float* lse, int token, int head,
                                               int heads, int valid) {
    int lane = threadIdx.x & 31, dim = heads * HEAD;
#pragma unroll
    for (int r = 0; r < R; r++) {
        float inverse[2];
#pragma unroll
        for (int row = 0; row < 2; row++) {
            float sum = a.sum[r][row] + __shfl_xor_sync(0xffffffffu, a.sum[r][row], 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            inverse[row] = 1.0f / sum;
            int at = r * STRIP + (lane >> 2) + 8 * row;
            if ((lane & 3) == 0 && at < valid)
                *place(lse, token + at, heads, head) = fmaf(a.shift[r][row], 1.0f / LOG2_E, logf(sum));
        }
        bf16* to = place(out, token + r * STRIP, dim, head * HEAD);
        store_strip(to, dim, valid - r * STRIP, a.out[r], inverse[0], inverse[1]);
    }
}

// Grid: heads * segments. Block: 32 * warps threads, warps = ceil(strips / ceil(strips / 7)), at most 7. Dynamic shared
// memory: 4096 * strips bytes. One strip a warp at a time takes few registers, and four blocks share a multiprocessor:
// while one waits for memory the others compute.
extern "C" __global__ void __launch_bounds__(224, 4)
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

    int row = (threadIdx.x >> 5) * STRIP, step = (blockDim.x >> 5) * STRIP;
    LaneOffsets lane = lane_offsets();
    u32 q[1][4][4];
    load_queries<1>(q, qkv, begin + row, stride, head, length - row);
    wait_for_copies<0>();
    __syncthreads();
#pragma unroll 1
    while (row < length) {
        Attended<1> a;
#pragma unroll 1
        for (int key = 0; key < length; key += STRIP)
            attend<1>(a, q, keys + key * ROW_BYTES, values + key * ROW_BYTES, length - key, key == 0, scale * LOG2_E,
                      lane);
        store_attended<1>(a, out, lse, begin + row, head, heads, length - row);
        row += step;
        if (row < length) load_queries<1>(q, qkv, begin + row, stride, head, length - row);
    }
}

// Two strips a warp, so that every fragment of keys and values is used twice. Grid: (ceil(longest / 128), heads,
// segments). Block: 128 threads. No dynamic shared memory.
extern "C" __global__ void __launch_bounds__(128, 3)
    attention_forward_long(const bf16* __restrict__ qkv, const int* __restrict__ offsets, int first_segment, int heads,
                           float scale, bf16* __restrict__ out, float* __restrict__ lse) {
    __shared__ __align__(128) u8 tiles[2][2][TILE_BYTES];
    int head = blockIdx.y, segment = first_segment + blockIdx.z;
    int begin = offsets[segment], length = offsets[segment + 1] - begin;
    int first = blockIdx.x * (blockDim.x >> 5) * 2 * STRIP;
    if (first >= length) return;
    int dim = heads * HEAD, stride = 3 * dim, row = first + (threadIdx.x >> 5) * 2 * STRIP;
    u32 shared = shared_address(tiles);
    LaneOffsets lane = lane_offsets();
    u32 q[2][4][4];
    load_queries<2>(q, qkv, begin + row, stride, head, length - row);
    Attended<2> a;
    auto stage = [&](int key, int buffer) {
        const bf16* from = place(qkv, begin + key, stride, dim + head * HEAD);
        stage_pair(shared + buffer * 2 * TILE_BYTES, from, stride, from + dim, stride, length - key);
    };
    stream_tiles(length, stage, [&](int key, int buffer) {
        u32 keys = shared + buffer * 2 * TILE_BYTES;
        int end = row < length ? min(TILE, length - key) : 0;
#pragma unroll 1
        for (int i = 0; i < end; i += STRIP)
            attend<2>(a, q, keys + i * ROW_BYTES, keys + TILE_BYTES + i * ROW_BYTES, length - key - i, key + i == 0,
                      scale * LOG2_E, lane);
    });
    if (row < length) store_attended<2>(a, out, lse, begin + row, head, heads, length - row);
}
