// The k largest elements of each row, in the order of their columns. A block takes a row: it reads it up to three times
// to find the least key that is taken, eleven bits of it at a time, and once more to write what is not below it.

constexpr int THREADS = 512, WARPS = THREADS / 32;
// A thread reads four neighbouring columns at a time.
constexpr int STEP = 4 * THREADS;
constexpr int BITS = 11, BINS = 1 << BITS;
// Similarities lie close together, so most of a warp would count in a few bins: neighbouring lanes count in different copies
// of the bins, and the same bin of each copy is in another memory bank.
constexpr int COPIES = 4, STRIDE = BINS + 8;

// Orders as the numbers do: NaN is below all others, -0 equals 0.
__device__ __forceinline__ u32 key_of(float x) {
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0;
    if (bits == 0x80000000u) bits = 0;
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Four neighbouring columns, or as many as there are; returns how many.
__device__ __forceinline__ int load_up_to_4(const float* __restrict__ x, int c, int columns, float* v) {
    if (columns % 4 == 0) {
        // Every row is aligned to 16 bytes.
        if (c >= columns) return 0;
        *reinterpret_cast<float4*>(v) = *reinterpret_cast<const float4*>(x + c);
        return 4;
    }
    int here = max(0, min(4, columns - c));
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = j < here ? x[c + j] : 0.0f;
    return here;
}

// The sum over the threads before this one, and over all. `sums` must be other memory than in the last call, or a barrier
// must lie between: some warps may still read it.
__device__ __forceinline__ u32 sum_before(u32 x, u32* sums, u32* total) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u32 until = x;
#pragma unroll
    for (int step = 1; step < 32; step <<= 1) {
        u32 other = __shfl_up_sync(0xffffffffu, until, step);
        if (lane >= step) until += other;
    }
    if (lane == 31) sums[warp] = until;
    __syncthreads();
    u32 before = 0, all = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        u32 sum = sums[w];
        before += w < warp ? sum : 0;
        all += sum;
    }
    *total = all;
    return before + until - x;
}

// What a pass over the bits found: in which bin the last of those taken is, how many are taken of that bin, and how many are
// in it.
struct Bin {
    u32 digit, taken, inside;
};

// The bin of the `wanted`-th largest of the keys that were counted. Each thread looks at four bins, the first at the highest.
__device__ __forceinline__ void find_bin(const u32* counts, u32 wanted, u32* sums, Bin* found) {
    static_assert(BINS == 4 * THREADS, "four bins a thread");
    u32 n[4] = {}, total;
    int first = BINS - 4 * (threadIdx.x + 1);
#pragma unroll
    for (int copy = 0; copy < COPIES; ++copy) {
        uint4 of_copy = *reinterpret_cast<const uint4*>(counts + copy * STRIDE + first);
        n[0] += of_copy.x, n[1] += of_copy.y, n[2] += of_copy.z, n[3] += of_copy.w;
    }
    u32 above = sum_before(n[0] + n[1] + n[2] + n[3], sums, &total);
#pragma unroll
    for (int j = 3; j >= 0; --j) {
        // True in one bin of one thread.
        if (above < wanted && wanted <= above + n[j]) *found = Bin{(u32)(first + j), wanted - above, n[j]};
        above += n[j];
    }
}

// k is at most the number of columns, and not zero.
extern "C" __global__ void __launch_bounds__(THREADS)
    largest(const float* __restrict__ x, int columns, int k, float* values, u32* places) {
    __shared__ u32 __align__(16) counts[COPIES * STRIDE];
    __shared__ u32 sums[2][WARPS];
    __shared__ Bin found;
    x += (i64)blockIdx.x * columns, values += (i64)blockIdx.x * k, places += (i64)blockIdx.x * k;

    // The bits of the least key that are known so far, and how many of the keys that have them are taken.
    u32 known = 0, least = 0, taken_of_least = k;
    u32* own = counts + (threadIdx.x % COPIES) * STRIDE;
    // The last two steps share a bit.
    for (int shift = 32 - BITS;; shift = max(shift - BITS, 0)) {
        for (int i = threadIdx.x; i < COPIES * STRIDE / 4; i += THREADS)
            reinterpret_cast<uint4*>(counts)[i] = make_uint4(0, 0, 0, 0);
        __syncthreads();
#pragma unroll 4
        for (int c = 4 * threadIdx.x; c < columns; c += STEP) {
            float __align__(16) v[4];
            int here = load_up_to_4(x, c, columns, v);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                u32 key = key_of(v[j]);
                if (j < here && (key & known) == least) atomicAdd(own + (key >> shift & (BINS - 1)), 1u);
            }
        }
        __syncthreads();
        find_bin(counts, taken_of_least, sums[0], &found);
        __syncthreads();
        known |= (u32)(BINS - 1) << shift;
        least |= found.digit << shift;
        taken_of_least = found.taken;
        // Where all of a bin are taken, their other bits decide nothing.
        if (shift == 0 || found.taken == found.inside) break;
    }

    // Step by step, so that the order of columns decides which of equal keys are taken, and where all go.
    u32 above = 0, equal = 0;
    for (int start = 0, turn = 0; start < columns; start += STEP, turn ^= 1) {
        float __align__(16) v[4];
        int c = start + 4 * threadIdx.x, here = load_up_to_4(x, c, columns, v);
        // How many keys are above the least one, and in the upper half of the word, how many equal it.
        u32 mine = 0, total;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            u32 key = key_of(v[j]) & known;
            if (j < here) mine += key > least ? 1u : key == least ? 1u << 16 : 0u;
        }
        u32 before = sum_before(mine, sums[turn], &total);
        u32 above_here = above + (before & 0xffffu), equal_here = equal + (before >> 16);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            u32 key = key_of(v[j]) & known;
            if (j >= here || key < least) continue;
            if (key > least || equal_here < taken_of_least) {
                u32 place = above_here + min(equal_here, taken_of_least);
                values[place] = v[j], places[place] = c + j;
            }
            if (key > least) ++above_here;
            else ++equal_here;
        }
        above += total & 0xffffu, equal += total >> 16;
        if (above + min(equal, taken_of_least) == k) break;
    }
}
