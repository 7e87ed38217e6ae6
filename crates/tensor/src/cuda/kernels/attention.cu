// Attention of packed tokens among their own segment: bf16, heads of 64 numbers, tensor cores.
// `qkv` is [tokens, 3 * dim] with dim = 64 * heads; head h has its queries in columns 64 h, its keys in dim + 64 h and
// its values in 2 * dim + 64 h. Segment s owns rows offsets[s] to offsets[s + 1]. `lse` is [tokens, heads]: the natural
// logarithm of the sum of exp(scale * q.k) over a row; the backward pass rebuilds the probabilities from it.
//
// Everything is made of one scheme. A warp owns a strip of 16 rows, whose fragments stay in its registers, and walks
// over the other side in shared memory, 16 rows at a time. No number is summed by two warps, so nothing has to be
// exchanged and two runs give the same bits. The price is in the backward pass, which forms the scores twice, once from
// the side of the keys and once from the side of the queries: seven products instead of five, but no waiting.
//
// Two families. Segments of up to 256 tokens: one block per segment and head, the whole head in shared memory, all of
// it read once. Longer ones (`..._long`): a block per part of the strips, the other side streamed through two buffers.
// Both are right for every length that fits; only speed and shared memory differ. A launch may mix lengths; it is laid
// out for the longest, so launching each run of equal lengths by itself is faster.
//
// In the launch rules below, strips = ceil(longest / 16).

constexpr int HEAD = 64;
constexpr int STRIP = 16;
constexpr int TILE = 64;
constexpr int ROW_BYTES = HEAD * 2;
constexpr int STRIP_BYTES = STRIP * ROW_BYTES;
constexpr int TILE_BYTES = TILE * ROW_BYTES;
constexpr float LOG2_E = 1.4426950408889634f;

__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ u32 shared_address(const void* p) {
    u32 address;
    asm("{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }" : "=r"(address) : "l"(p));
    return address;
}

// ---------------------------------------------------------------------------------------- global to shared memory

// Asynchronous copies that write zeros where `inside` is false; `source` must be a valid address even then.
__device__ __forceinline__ void copy_16_bytes(u32 target, const void* source, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(inside ? 16 : 0)
                 : "memory");
}
__device__ __forceinline__ void copy_4_bytes(u32 target, const void* source, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(source), "r"(inside ? 4 : 0)
                 : "memory");
}
__device__ __forceinline__ void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int NEWER> __device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(NEWER) : "memory");
}

// Starts copying `rows` rows of a head, those from `valid` on as zeros: a zero row takes part in products harmlessly,
// where leftovers in shared memory could be NaN. The 16-byte pieces of a row are permuted by the row's number, so that
// eight rows read at the same column lie in different banks.
__device__ __forceinline__ void stage_rows(u32 target, const bf16* source, int stride, int valid, int rows) {
    int piece = threadIdx.x & 7, step = blockDim.x >> 3;
    const bf16* from = source + (i64)(threadIdx.x >> 3) * stride + piece * 8;
#pragma unroll 1
    for (int row = threadIdx.x >> 3; row < rows; row += step, from += (i64)step * stride) {
        bool inside = row < valid;
        copy_16_bytes(target + row * ROW_BYTES + ((piece ^ (row & 7)) << 4), inside ? from : source, inside);
    }
}

__device__ __forceinline__ void stage_pair(u32 target, const bf16* a, int a_stride, const bf16* b, int b_stride,
                                           int valid) {
    stage_rows(target, a, a_stride, valid, TILE);
    stage_rows(target + TILE_BYTES, b, b_stride, valid, TILE);
}

// Walks over the rows of a segment by tiles of 64, in two buffers: while `use(row, buffer)` works on one, `stage(row,
// buffer)` starts the copies of the next into the other. Every thread of the block must come here.
template <typename Stage, typename Use>
__device__ __forceinline__ void stream_tiles(int length, const Stage& stage, const Use& use) {
    stage(0, 0);
    close_copies();
    for (int row = 0, buffer = 0; row < length; row += TILE, buffer ^= 1) {
        if (row + TILE < length) stage(row + TILE, buffer ^ 1);
        close_copies();
        wait_for_copies<1>();
        __syncthreads();
        use(row, buffer);
        __syncthreads();
    }
}

// --------------------------------------------------------------------------------------------------- tensor cores

// What a lane adds to the address of staged rows to fetch its part of four 8 x 8 blocks with ldmatrix. `square` is for
// 16 rows and 16 columns (left operands, and right operands read transposed); the n-th 16 columns are reached by
// flipping bits, ^ (n << 5). `flat` is for 8 rows and 32 columns (right operands whose staged rows are the columns of
// the product); the second 32 columns are at ^ 64.
struct LaneOffsets {
    u32 square, flat;
};
__device__ __forceinline__ LaneOffsets lane_offsets() {
    u32 lane = threadIdx.x & 31, low = lane & 7;
    return {(lane & 15) * ROW_BYTES + (((lane >> 4) ^ low) << 4), low * ROW_BYTES + (((lane >> 3) ^ low) << 4)};
}

__device__ __forceinline__ void load_blocks(u32 (&m)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address));
}
__device__ __forceinline__ void load_blocks_transposed(u32 (&m)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address));
}

// c (16 x 8) += a (16 x 16) b (16 x 8). A lane's numbers of c are in row lane / 4 (c[0], c[1]) and the row eight
// further down (c[2], c[3]), columns 2 (lane % 4) and the next.
__device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two results of 16 x 8, side by side, as the left operand of the next product: the same lanes hold the same numbers.
__device__ __forceinline__ void pack_operand(u32 (&a)[4], const float (&left)[4], const float (&right)[4]) {
    a[0] = pack_bf16(left[0], left[1]), a[1] = pack_bf16(left[2], left[3]);
    a[2] = pack_bf16(right[0], right[1]), a[3] = pack_bf16(right[2], right[3]);
}

// c (16 x 8) = strip (16 x 64) times the transpose of 8 staged rows.
__device__ __forceinline__ void multiply_by_rows(float (&c)[4], const u32 (&strip)[4][4], u32 rows, LaneOffsets lane) {
    c[0] = c[1] = c[2] = c[3] = 0.0f;
#pragma unroll
    for (int n = 0; n < 2; n++) {
        u32 b[4];
        load_blocks(b, rows + (lane.flat ^ (n << 6)));
        multiply(c, strip[2 * n], b[0], b[1]);
        multiply(c, strip[2 * n + 1], b[2], b[3]);
    }
}

// c (16 x 64) += weights (16 x 16) times 16 staged rows.
__device__ __forceinline__ void add_weighted_rows(float (&c)[8][4], const u32 (&weights)[4], u32 rows,
                                                  LaneOffsets lane) {
#pragma unroll
    for (int n = 0; n < 4; n++) {
        u32 b[4];
        load_blocks_transposed(b, rows + (lane.square ^ (n << 5)));
        multiply(c[2 * n], weights, b[0], b[1]);
        multiply(c[2 * n + 1], weights, b[2], b[3]);
    }
}

// ------------------------------------------------------------------------------------------------ strips of 16 rows

// Among four neighbouring lanes: word j of lane i becomes word i of lane j. Fragments scatter a row over four lanes by
// single words; this turns them into pieces of 16 bytes and back.
__device__ __forceinline__ void transpose_among_four(u32 (&w)[4]) {
    bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
        u32 received = __shfl_xor_sync(0xffffffffu, odd ? w[j] : w[j + 1], 1);
        w[j] = odd ? received : w[j], w[j + 1] = odd ? w[j + 1] : received;
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
        u32 received = __shfl_xor_sync(0xffffffffu, upper ? w[j] : w[j + 2], 2);
        w[j] = upper ? received : w[j], w[j + 2] = upper ? w[j + 2] : received;
    }
}

// A strip as left operand, from global memory; rows from `valid` on are zero and not touched.
__device__ __forceinline__ void load_strip(u32 (&strip)[4][4], const bf16* source, int stride, int valid) {
    int lane = threadIdx.x & 31;
    uint4 pieces[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = (lane >> 2) + 8 * (i >> 1);
        const bf16* from = source + (i64)row * stride + ((i & 1) * 4 + (lane & 3)) * 8;
        pieces[i] = row < valid ? *reinterpret_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 w[4] = {pieces[i].x, pieces[i].y, pieces[i].z, pieces[i].w};
        transpose_among_four(w);
#pragma unroll
        for (int j = 0; j < 4; j++) strip[(i & 1) * 2 + (j >> 1)][(i >> 1) + 2 * (j & 1)] = w[j];
    }
}

// The same from staged rows.
__device__ __forceinline__ void load_staged_strip(u32 (&strip)[4][4], u32 rows, LaneOffsets lane) {
#pragma unroll
    for (int n = 0; n < 4; n++) load_blocks(strip[n], rows + (lane.square ^ (n << 5)));
}

// Writes the first `valid` rows of a strip, the upper eight times `upper`, the lower eight times `lower`.
__device__ __forceinline__ void store_strip(bf16* target, int stride, int valid, const float (&c)[8][4], float upper,
                                            float lower) {
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int half = i >> 1, part = i & 1, row = (lane >> 2) + 8 * half;
        float factor = half == 0 ? upper : lower;
        u32 w[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            w[j] = pack_bf16(c[part * 4 + j][2 * half] * factor, c[part * 4 + j][2 * half + 1] * factor);
        transpose_among_four(w);
        bf16* to = target + (i64)row * stride + (part * 4 + (lane & 3)) * 8;
        if (row < valid) *reinterpret_cast<uint4*>(to) = make_uint4(w[0], w[1], w[2], w[3]);
    }
}

// Where a row of a matrix of `stride` columns has its numbers from `column` on. Worked out afresh at each use:
// registers are short, and a pointer kept over a loop costs two.
template <typename T> __device__ __forceinline__ T* place(T* matrix, int row, int stride, int column) {
    return matrix + ((i64)row * stride + column);
}

// -------------------------------------------------------------------------------------------------------- forward

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

// ------------------------------------------------------------------------------------------------------- backward
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

// Writes all of d_qkv. Grid: heads * segments. Block: 32 * warps threads, warps = ceil(strips / ceil(strips / 7)), at
// most 7 (two such blocks fit an H200's multiprocessor at 197 tokens, in registers as in shared memory). Dynamic shared
// memory: 8320 * strips bytes.
extern "C" __global__ void __launch_bounds__(224, 2)
    attention_backward(const bf16* __restrict__ qkv, const int* __restrict__ offsets, int first_segment, int heads,
                       float scale, const bf16* __restrict__ out, const bf16* __restrict__ d_out,
                       const float* __restrict__ lse, bf16* __restrict__ d_qkv) {
    extern __shared__ __align__(128) u8 attention_shared[];
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
    // Strips of keys first: they cost more than those of queries, and a warp's last piece of work should be small.
    for (int item = threadIdx.x >> 5; item < 2 * strips; item += blockDim.x >> 5) {
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
        }
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
