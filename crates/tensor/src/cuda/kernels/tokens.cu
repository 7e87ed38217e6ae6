// From pixels to packed tokens.

// One group of equal images: patches in order, each channel by channel. Bytes are HWC and become levels[c, byte], a table
// of what (byte / 255 - mean) / deviation is for each channel. A thread makes WIDTH neighbours of a patch's row.
template <int WIDTH>
__device__ __forceinline__ void patchify(const u8* pixels, const float* levels, i64 count, int height, int width,
                                         int channels, int patch, act* out) {
    int across = width / patch, down = height / patch, per_row = patch / WIDTH, per_patch = channels * patch * per_row;
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, token = i / per_patch;
    if (token >= count * down * across) return;
    int at = (int)(i - token * per_patch), line = at / per_row, px = (at - line * per_row) * WIDTH;
    int c = line / patch, py = line - c * patch;
    i64 image = token / (down * across);
    int cell = (int)(token - image * (down * across)), y = cell / across * patch + py, x = cell % across * patch + px;
    const u8* from = pixels + ((image * height + y) * width + x) * channels + c;
    float v[8];
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) v[j] = levels[c * 256 + from[j * channels]];
    if (WIDTH == 8) store8(out + i * 8, v);
    else if (WIDTH == 4) store4(out + i * 4, v);
    else out[i] = from_float<act>(v[0]);
}

#define PATCHIFY(WIDTH)                                                                                                \
    extern "C" __global__ void patchify_bytes_by_##WIDTH(const u8* pixels, const float* levels, i64 count, int height, \
                                                         int width, int channels, int patch, act* out) {               \
        patchify<WIDTH>(pixels, levels, count, height, width, channels, patch, out);                                   \
    }
PATCHIFY(1) PATCHIFY(4) PATCHIFY(8)

// The same from values that are ready for the network, CHW; a thread makes one of them.
extern "C" __global__ void patchify_values(const float* pixels, i64 count, int height, int width, int channels, int patch,
                                           act* out) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    int across = width / patch, down = height / patch, values = channels * patch * patch;
    if (i >= count * down * across * values) return;
    i64 row = i / values;
    int at = (int)(i - row * values), c = at / (patch * patch), py = at / patch % patch, px = at % patch;
    i64 image = row / (down * across);
    int cell = (int)(row - image * (down * across)), y = cell / across * patch + py, x = cell % across * patch + px;
    out[i] = from_float<act>(pixels[((image * channels + c) * height + y) * width + x]);
}

// Position embeddings of a grid: row p of `out` is row 1 + l of `position` mixed by mix[p, l], or row 1 + p itself where
// mix is null.
extern "C" __global__ void mix_positions(const float* position, const float* mix, int patches, int learnt, int dim,
                                         float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= patches * dim) return;
    int p = i / dim, c = i % dim;
    float sum = 0.0f;
    if (!mix) sum = position[(i64)(1 + p) * dim + c];
    else
        for (int l = 0; l < learnt; ++l)
            if (mix[p * learnt + l] != 0.0f) sum += mix[p * learnt + l] * position[(i64)(1 + l) * dim + c];
    out[i] = sum;
}

// Tokens of one group: a class token, registers, then the patches, each but the registers with its position. Of an image's
// tokens `others` are no patches. A thread makes WIDTH columns.
template <int WIDTH>
__device__ __forceinline__ void assemble(const act* patches, const float* class_token, const float* registers,
                                         const float* position, const float* mixed, i64 count, int others, int grid,
                                         int dim, res* x) {
    int per_token = dim / WIDTH;
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, token = i / per_token, image = token / (grid + others);
    if (image >= count) return;
    int c = (int)(i - token * per_token) * WIDTH, t = (int)(token - image * (grid + others)), p = t - others;
    const float* given = t == 0 ? class_token : registers + (t - 1) * dim;
    const float* place = p >= 0 ? mixed + p * dim : t == 0 ? position : nullptr;
    float v[WIDTH], at[WIDTH];
    if (WIDTH == 8) {
        if (p < 0) load8(given + c, v);
        else load8(patches + (image * grid + p) * dim + c, v);
        if (place) {
            load8(place + c, at);
            for (int j = 0; j < WIDTH; ++j) v[j] += at[j];
        }
        store8(x + token * dim + c, v);
    } else {
        v[0] = p < 0 ? given[c] : to_float(patches[(image * grid + p) * dim + c]);
        x[token * dim + c] = from_float<res>(place ? v[0] + place[c] : v[0]);
    }
}

#define ASSEMBLE(WIDTH)                                                                                                \
    extern "C" __global__ void assemble_by_##WIDTH(const act* patches, const float* class_token,                       \
                                                   const float* registers, const float* position, const float* mixed,  \
                                                   i64 count, int others, int grid, int dim, res* x) {                 \
        assemble<WIDTH>(patches, class_token, registers, position, mixed, count, others, grid, dim, x);                \
    }
ASSEMBLE(1) ASSEMBLE(8)

// The gradient of the patches of one group is a copy in the type of activations, and that of each place of an image a sum
// over images. A thread takes one column of one place (0: the class token, then the registers) and some of the images, in
// order; partial is [parts, places, dim].
extern "C" __global__ void assemble_backward(const res* dx, i64 count, int others, int grid, int dim, int per_part,
                                             act* d_patches, float* partial) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, columns = (i64)(grid + others) * dim;
    if (i >= columns) return;
    int place = (int)(i / dim), c = (int)(i % dim);
    i64 first = (i64)blockIdx.y * per_part, last = first + per_part < count ? first + per_part : count;
    float sum = 0.0f;
    for (i64 image = first; image < last; ++image) {
        float d = to_float(dx[(image * (grid + others) + place) * dim + c]);
        if (place >= others) d_patches[(image * grid + place - others) * dim + c] = from_float<act>(d);
        sum += d;
    }
    partial[blockIdx.y * columns + i] = sum;
}

// Adds the gradients of a group's places to those of the class token, the registers and the learnt positions: for the last
// the transpose of mix_positions.
extern "C" __global__ void add_place_gradients(const float* d_places, const float* mix, int others, int patches, int learnt,
                                               int dim, float* d_class, float* d_registers, float* d_position) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (i64)(learnt + others) * dim) return;
    int place = (int)(i / dim), l = place - others, c = (int)(i % dim);
    if (place == 0) {
        d_class[c] += d_places[c];
        d_position[c] += d_places[c];
        return;
    }
    if (l < 0) {
        d_registers[(place - 1) * dim + c] += d_places[i];
        return;
    }
    float sum = 0.0f;
    if (!mix) sum = d_places[i];
    else
        for (int p = 0; p < patches; ++p)
            if (mix[p * learnt + l] != 0.0f) sum += mix[p * learnt + l] * d_places[(i64)(others + p) * dim + c];
    d_position[(i64)(1 + l) * dim + c] += sum;
}
