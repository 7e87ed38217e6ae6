// Numbers that travel between GPUs: rounded to bf16 and read again, added up as they arrive, or copied as they are.

// Some neighbouring numbers. Block b of a kernel takes CHUNK of them, of leg where[2 b], from where[2 b + 1] chunks on.
struct Leg {
    const void* from;
    void* to;
    i64 count;
};
#define CHUNK 8192

template <typename From, typename To> __device__ void run_leg(const Leg* legs, const int* where) {
    Leg leg = legs[where[2 * blockIdx.x]];
    const From* from = (const From*)leg.from;
    To* to = (To*)leg.to;
    i64 first = (i64)where[2 * blockIdx.x + 1] * CHUNK, last = first + CHUNK < leg.count ? first + CHUNK : leg.count;
    for (i64 i = first + threadIdx.x; i < last; i += blockDim.x) to[i] = from_float<To>(to_float(from[i]));
}

extern "C" __global__ void round_to_wire(const Leg* legs, const int* where) { run_leg<float, bf16>(legs, where); }
extern "C" __global__ void read_from_wire(const Leg* legs, const int* where) { run_leg<bf16, float>(legs, where); }
extern "C" __global__ void copy_numbers(const Leg* legs, const int* where) { run_leg<float, float>(legs, where); }

// sum[i] = parts[0, i] + parts[1, i] + ..., in this order and in double precision, rounded once: `parts` has a row of `share`
// numbers of each process. Sums of bf16 are exact in double precision unless their sizes are 2^45 times apart.
extern "C" __global__ void add_on_wire(const bf16* parts, int ranks, i64 share, bf16* sum) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= share) return;
    double total = (double)to_float(parts[i]);
    for (int rank = 1; rank < ranks; ++rank) total += (double)to_float(parts[rank * share + i]);
    sum[i] = from_float<bf16>((float)total);
}
