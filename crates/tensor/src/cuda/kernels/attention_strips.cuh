// Attention of packed tokens among their own segment: bf16, heads of 64 numbers, tensor cores.
// `qkv` is [tokens, 3 * dim] with dim = 64 * heads; head h has its queries in columns 64 h, its keys in dim + 64 h and
// its values in 2 * dim + 64 h. Segment s owns rows offsets[s] to offsets[s + 1]. `lse` is [tokens, heads]: the natural
// logarithm of the sum of exp(scale * q.k) over a row; the backward pass rebuilds the probabilities from it.
//
// Everything is made of one scheme. A warp owns a strip of 16 rows (or two), whose fragments stay in its registers, and walks
// over the other side in shared memory, 16 rows at a time. No number is summed by two warps, so nothing has to be
// exchanged and two runs give the same bits. The price is in the backward pass, which forms the scores twice, once from
// the side of the keys and once from the side of the queries: seven products instead of five, but no waiting. (Keeping
// their gradient in shared memory instead leaves room for one block, and was slower.)
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
        if (row < valid) store_words(to, make_uint4(w[0], w[1], w[2], w[3]));
    }
}

// Where a row of a matrix of `stride` columns has its numbers from `column` on. Worked out afresh at each use:
// registers are short, and a pointer kept over a loop costs two.
template <typename T> __device__ __forceinline__ T* place(T* matrix, int row, int stride, int column) {
    return matrix + ((i64)row * stride + column);
}
