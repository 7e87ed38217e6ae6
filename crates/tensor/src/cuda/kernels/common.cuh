// What every kernel file starts with. It is put in front of each of them, so that none needs a CUDA header: a machine
// with a driver and NVRTC is enough.
//
// `act` is the type of activations and of the copies of weights that matrix products read: bf16 in training, float where
// results are compared digit by digit (ACT_IS_FLOAT). `res` is the type of the residual stream and of its gradient: that of
// activations, or float beside bf16 activations (RES_IS_FLOAT). All arithmetic is in float.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct bf16 {
    u16 bits;
};

__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
__device__ __forceinline__ float to_float(float x) { return x; }

// Two floats as two bf16 in one word, `low` in the lower half; rounds to nearest even, keeps NaN.
__device__ __forceinline__ u32 pack_bf16(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ float low_half(u32 both) { return __uint_as_float(both << 16); }
__device__ __forceinline__ float high_half(u32 both) { return __uint_as_float(both & 0xffff0000u); }

template <typename T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x) { return x; }
template <> __device__ __forceinline__ bf16 from_float<bf16>(float x) {
    bf16 r;
    r.bits = (u16)pack_bf16(x, 0.0f);
    return r;
}

#ifdef ACT_IS_FLOAT
typedef float act;
#else
typedef bf16 act;
#endif

#ifdef RES_IS_FLOAT
typedef float res;
#else
typedef act res;
#endif

// Words to global memory in one piece: the compiler likes to cut a store up when it is conditional.
__device__ __forceinline__ void store_words(void* p, uint4 w) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w) : "memory");
}
__device__ __forceinline__ void store_words(void* p, uint2 w) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(p), "r"(w.x), "r"(w.y) : "memory");
}

// Eight neighbouring elements, read or written as one or two 16-byte words.
__device__ __forceinline__ void load8(const bf16* p, float* x) {
    uint4 w = *reinterpret_cast<const uint4*>(p);
    x[0] = low_half(w.x), x[1] = high_half(w.x), x[2] = low_half(w.y), x[3] = high_half(w.y);
    x[4] = low_half(w.z), x[5] = high_half(w.z), x[6] = low_half(w.w), x[7] = high_half(w.w);
}
__device__ __forceinline__ void load8(const float* p, float* x) {
    float4 a = reinterpret_cast<const float4*>(p)[0], b = reinterpret_cast<const float4*>(p)[1];
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}
// Four neighbouring elements as they are in memory, which for bf16 is half the registers.
template <typename T> struct Four;
template <> struct Four<bf16> {
    uint2 w;
    __device__ __forceinline__ void load(const bf16* p) { w = *reinterpret_cast<const uint2*>(p); }
    __device__ __forceinline__ void unpack(float* x) const {
        x[0] = low_half(w.x), x[1] = high_half(w.x), x[2] = low_half(w.y), x[3] = high_half(w.y);
    }
};
template <> struct Four<float> {
    float4 w;
    __device__ __forceinline__ void load(const float* p) { w = *reinterpret_cast<const float4*>(p); }
    __device__ __forceinline__ void unpack(float* x) const { x[0] = w.x, x[1] = w.y, x[2] = w.z, x[3] = w.w; }
};
__device__ __forceinline__ void store4(bf16* p, const float* x) {
    store_words(p, make_uint2(pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3])));
}
__device__ __forceinline__ void store4(float* p, const float* x) {
    *reinterpret_cast<float4*>(p) = make_float4(x[0], x[1], x[2], x[3]);
}

__device__ __forceinline__ void store8(bf16* p, const float* x) {
    uint4 w = make_uint4(pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]), pack_bf16(x[6], x[7]));
    store_words(p, w);
}
__device__ __forceinline__ void store8(float* p, const float* x) {
    reinterpret_cast<float4*>(p)[0] = make_float4(x[0], x[1], x[2], x[3]);
    reinterpret_cast<float4*>(p)[1] = make_float4(x[4], x[5], x[6], x[7]);
}

// Where a map sends a row; a null map is the identity.
__device__ __forceinline__ i64 mapped(const int* map, i64 row) { return map ? map[row] : row; }

// Sums over a warp, and over a block of up to 1024 threads; every thread gets the result. The order of additions depends
// on nothing but the shape of the block, so that a run can be repeated bit by bit.
__device__ __forceinline__ float warp_sum(float x) {
    for (int step = 16; step > 0; step >>= 1) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}
__device__ __forceinline__ float warp_max(float x) {
    for (int step = 16; step > 0; step >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}
__device__ __forceinline__ float block_sum(float x, float* shared) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    x = warp_sum(x);
    __syncthreads();
    if (lane == 0) shared[warp] = x;
    __syncthreads();
    return warp_sum(lane < warps ? shared[lane] : 0.0f);
}
__device__ __forceinline__ float block_max(float x, float* shared) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    x = warp_max(x);
    __syncthreads();
    if (lane == 0) shared[warp] = x;
    __syncthreads();
    return warp_max(lane < warps ? shared[lane] : -__int_as_float(0x7f800000));
}

// The end of a kernel whose blocks of 32 x 8 threads sum over rows, eight columns a thread: the eight rows of threads are
// added up, and the block's sums go to row blockIdx.y of `partial`.
__device__ __forceinline__ void store_column_partials(const float* sum, int columns, float* partial) {
    __shared__ float shared[8][32 * 8 + 1];
    for (int j = 0; j < 8; ++j) shared[threadIdx.y][threadIdx.x * 8 + j] = sum[j];
    __syncthreads();
    int i = threadIdx.y * 32 + threadIdx.x, column = blockIdx.x * 256 + i;
    if (column >= columns) return;
    float total = 0.0f;
    for (int y = 0; y < 8; ++y) total += shared[y][i];
    partial[(i64)blockIdx.y * columns + column] = total;
}
