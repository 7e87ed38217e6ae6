// What the loader leaves to do to RGB views, bytes in HWC: colours, blur, solarisation. Every operation rounds to bytes
// before the next begins and gives the loader's bytes, so no product and sum may be contracted: hence __fmul_rn.

// As ViewEdit is packed in cuda/views.rs.
struct Edit {
    u32 kind[4];
    float amount[4];
    u32 gray;
    // Values from here on are inverted; 256 inverts none.
    u32 solarize_from;
    // Of a box blur; negative for none.
    int radius;
    u32 inner, outer;
};
enum { NOTHING, BRIGHTNESS, CONTRAST, SATURATION, HUE };

struct Rgb {
    u32 r, g, b;
};

// Truncated, and the nearest end of the range where it lies outside. What is not a number is 0.
__device__ __forceinline__ u32 to_byte(float x) { return (u32)(int)fminf(fmaxf(x, 0.0f), 255.0f); }

__device__ __forceinline__ u32 luma(Rgb p) { return (19595u * p.r + 38470u * p.g + 7471u * p.b + 32768u) >> 16; }

__device__ __forceinline__ u32 blend(u32 degenerate, u32 value, float factor) {
    float d = (float)degenerate;
    return to_byte(__fadd_rn(d, __fmul_rn(factor, (float)value - d)));
}

__device__ __forceinline__ Rgb blend(u32 degenerate, Rgb p, float factor) {
    return {blend(degenerate, p.r, factor), blend(degenerate, p.g, factor), blend(degenerate, p.b, factor)};
}

// The way through Pillow's 8-bit HSV and back, with a turn of `shift` steps of 1/255 between.
__device__ __forceinline__ Rgb turn_hue(Rgb p, u32 shift) {
    u32 high = max(p.r, max(p.g, p.b)), low = min(p.r, min(p.g, p.b)), middle = p.r + p.g + p.b - high - low;
    float range = (float)(high - low), share = __fdiv_rn((float)(high - middle), range);
    // The channel in the middle says how far into a sixth of the circle the hue is, from its start or from its end.
    float start = p.r == high ? 0.0f : p.g == high ? 2.0f : 4.0f;
    bool forward = (p.r == high ? p.b : p.g == high ? p.r : p.g) == low;
    float sixths = forward ? start + 1.0f - share : start - 1.0f + share;
    float turn = __fdiv_rn(sixths, 6.0f);
    if (turn < 0.0f) turn += 1.0f;
    // A grey has no hue, black no saturation: 0 / 0 is not a number, and becomes 0.
    u32 h = (to_byte(turn * 255.0f) + shift) & 255u, s = to_byte(__fdiv_rn(range, (float)high) * 255.0f);

    u32 place = h * 6, sector = place / 255;
    float f = __fdiv_rn((float)(place - sector * 255), 255.0f), strength = __fdiv_rn((float)s, 255.0f), v = (float)high;
    // One channel has the value, one what saturation leaves of it, and the third is on its way between them: up in the
    // even sectors and down in the odd ones.
    float way = sector % 2 == 1 ? f : 1.0f - f;
    u32 least = to_byte(__fadd_rn(__fmul_rn(v, 1.0f - strength), 0.5f));
    u32 between = to_byte(__fadd_rn(__fmul_rn(v, __fsub_rn(1.0f, __fmul_rn(strength, way))), 0.5f));
    switch (sector) {
    case 1: return {between, high, least};
    case 2: return {least, high, between};
    case 3: return {least, between, high};
    case 4: return {between, least, high};
    case 5: return {high, least, between};
    // The circle ends where it begins: sector 6 is sector 0.
    default: return {high, between, least};
    }
}

// The first `count` colour steps of an edit.
__device__ __forceinline__ Rgb color_steps(const Edit& edit, int count, u32 mean, Rgb p) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        if (k >= count) break;
        float amount = edit.amount[k];
        switch (edit.kind[k]) {
        case BRIGHTNESS: p = blend(0, p, amount); break;
        case CONTRAST: p = blend(mean, p, amount); break;
        case SATURATION: p = blend(luma(p), p, amount); break;
        case HUE: p = turn_hue(p, (u32)amount); break;
        }
    }
    return p;
}

__device__ __forceinline__ u32 solarized(u32 value, u32 from) { return value < from ? value : 255u - value; }

// N neighbouring pixels. Four are three words.
template <int N> struct Pixels;
template <> struct Pixels<1> {
    Rgb p[1];
    __device__ __forceinline__ void load(const u8* from) { p[0] = {from[0], from[1], from[2]}; }
    __device__ __forceinline__ void store(u8* to) const { to[0] = (u8)p[0].r, to[1] = (u8)p[0].g, to[2] = (u8)p[0].b; }
};
template <> struct Pixels<4> {
    Rgb p[4];
    __device__ __forceinline__ void load(const u8* from) {
        const u32* words = reinterpret_cast<const u32*>(from);
        u32 a = words[0], b = words[1], c = words[2];
        p[0] = {a & 255u, a >> 8 & 255u, a >> 16 & 255u}, p[1] = {a >> 24, b & 255u, b >> 8 & 255u};
        p[2] = {b >> 16 & 255u, b >> 24, c & 255u}, p[3] = {c >> 8 & 255u, c >> 16 & 255u, c >> 24};
    }
    __device__ __forceinline__ void store(u8* to) const {
        u32* words = reinterpret_cast<u32*>(to);
        words[0] = p[0].r | p[0].g << 8 | p[0].b << 16 | p[1].r << 24;
        words[1] = p[1].g | p[1].b << 8 | p[2].r << 16 | p[2].g << 24;
        words[2] = p[2].b | p[3].r << 8 | p[3].g << 16 | p[3].b << 24;
    }
};

// Colour steps, their loss, and solarisation where no blur comes before it. One block a view of `pixels` pixels, which
// are a multiple of N.
template <int N> __device__ __forceinline__ void edit_colors(u8* views, const Edit* edits, int pixels) {
    __shared__ u64 sums[32];
    const Edit edit = edits[blockIdx.x];
    u8* view = views + (i64)blockIdx.x * pixels * 3;
    u32 solarize_from = edit.radius < 0 ? edit.solarize_from : 256u;
    if (edit.kind[0] == NOTHING && !edit.gray && solarize_from > 255u) return;
    int contrast = 4;
    for (int k = 3; k >= 0; --k)
        if (edit.kind[k] == CONTRAST) contrast = k;
    u32 mean = 0;
    // Contrast needs the mean luma of what the steps before it have left.
    if (contrast < 4) {
        u64 sum = 0;
        for (int i = threadIdx.x * N; i < pixels; i += blockDim.x * N) {
            Pixels<N> some;
            some.load(view + (i64)i * 3);
            u32 lumas = 0;
            for (int j = 0; j < N; ++j) lumas += luma(color_steps(edit, contrast, 0, some.p[j]));
            sum += lumas;
        }
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
        __syncthreads();
        sum = 0;
        for (int warp = 0; warp < blockDim.x / 32; ++warp) sum += sums[warp];
        mean = (u32)(__ddiv_rn((double)sum, (double)pixels) + 0.5);
    }
    for (int i = threadIdx.x * N; i < pixels; i += blockDim.x * N) {
        Pixels<N> some;
        some.load(view + (i64)i * 3);
        for (int j = 0; j < N; ++j) {
            Rgb p = color_steps(edit, 4, mean, some.p[j]);
            if (edit.gray) {
                u32 gray = luma(p);
                p = {gray, gray, gray};
            }
            some.p[j] = {solarized(p.r, solarize_from), solarized(p.g, solarize_from), solarized(p.b, solarize_from)};
        }
        some.store(view + (i64)i * 3);
    }
}
extern "C" __global__ void edit_colors_by_1(u8* views, const Edit* edits, int pixels) {
    edit_colors<1>(views, edits, pixels);
}
extern "C" __global__ void edit_colors_by_4(u8* views, const Edit* edits, int pixels) {
    edit_colors<4>(views, edits, pixels);
}

// One value of one pass of an extended box along a line of `length` values that are `step` bytes apart, the first at
// `line`; beyond its ends the line goes on with its last value.
__device__ __forceinline__ u32 boxed(const Edit& edit, const u8* line, int at, int length, int step) {
    int reach = edit.radius + 1;
    u32 inner = 0;
    for (int d = 1 - reach; d < reach; ++d) inner += line[min(max(at + d, 0), length - 1) * step];
    u32 outer = line[max(at - reach, 0) * step] + line[min(at + reach, length - 1) * step];
    return (edit.inner * inner + edit.outer * outer + (1u << 23)) >> 24;
}

const int PASSES = 3;

// All passes along the rows. A block has blockDim.y rows of view blockIdx.x, twice, in shared memory.
extern "C" __global__ void blur_rows(u8* views, const Edit* edits, int height, int width) {
    extern __shared__ u8 lines[];
    const Edit edit = edits[blockIdx.x];
    if (edit.radius < 0) return;
    int stride = width * 3, y = blockIdx.y * blockDim.y + threadIdx.y;
    bool inside = y < height;
    u8* row = views + ((i64)blockIdx.x * height + y) * stride;
    u8 *from = lines + threadIdx.y * stride, *to = from + blockDim.y * stride;
    if (inside)
        for (int i = threadIdx.x; i < stride; i += blockDim.x) from[i] = row[i];
    for (int pass = 0; pass < PASSES; ++pass) {
        __syncthreads();
        if (inside)
            for (int i = threadIdx.x; i < stride; i += blockDim.x)
                to[i] = (u8)boxed(edit, from + i % 3, i / 3, width, 3);
        u8* swap = from;
        from = to, to = swap;
    }
    if (inside)
        for (int i = threadIdx.x; i < stride; i += blockDim.x) row[i] = from[i];
}

// All passes along the columns, then solarisation. A block has blockDim.x neighbouring bytes of every row of view
// blockIdx.x, twice, in shared memory.
extern "C" __global__ void blur_columns(u8* views, const Edit* edits, int height, int width) {
    extern __shared__ u8 lines[];
    const Edit edit = edits[blockIdx.x];
    if (edit.radius < 0) return;
    int stride = width * 3, x = blockIdx.y * blockDim.x + threadIdx.x, across = blockDim.x;
    bool inside = x < stride;
    u8* column = views + (i64)blockIdx.x * height * stride + x;
    u8 *from = lines + threadIdx.x, *to = from + height * across;
    if (inside)
        for (int y = threadIdx.y; y < height; y += blockDim.y) from[y * across] = column[(i64)y * stride];
    for (int pass = 0; pass < PASSES; ++pass) {
        __syncthreads();
        if (inside)
            for (int y = threadIdx.y; y < height; y += blockDim.y)
                to[y * across] = (u8)boxed(edit, from, y, height, across);
        u8* swap = from;
        from = to, to = swap;
    }
    if (inside)
        for (int y = threadIdx.y; y < height; y += blockDim.y)
            column[(i64)y * stride] = (u8)solarized(from[y * across], edit.solarize_from);
}
