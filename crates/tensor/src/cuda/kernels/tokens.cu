// From pixels to packed tokens.

// One group of equal images: patches in order, each channel by channel. Bytes are HWC and become
// (u / 255 - mean) / deviation in single precision as torchvision computes it. A block takes a patch: its bytes go
// through shared memory, so that both sides are read and written in order.
extern "C" __global__ void patchify_bytes(const u8* pixels, const float* mean, const float* deviation, int height,
                                          int width, int channels, int patch, act* out) {
    extern __shared__ u8 levels[];
    int across = width / patch, down = height / patch, values = channels * patch * patch, line = patch * channels;
    i64 image = blockIdx.x / (down * across);
    int cell = (int)(blockIdx.x - image * (down * across)), y = cell / across * patch, x = cell % across * patch;
    const u8* corner = pixels + ((image * height + y) * width + x) * channels;
    for (int i = threadIdx.x; i < values; i += blockDim.x)
        levels[i] = corner[(i64)(i / line) * width * channels + i % line];
    __syncthreads();
    out += (i64)blockIdx.x * values;
    for (int i = threadIdx.x; i < values; i += blockDim.x) {
        int c = i / (patch * patch), place = i - c * patch * patch;
        out[i] = from_float<act>(((float)levels[place * channels + c] / 255.0f - mean[c]) / deviation[c]);
    }
}

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

// Tokens of one group: a class token, then the patches, each with its position.
extern "C" __global__ void assemble(const act* patches, const float* class_token, const float* position,
                                    const float* mixed, i64 count, int grid, int dim, act* x) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count * (grid + 1) * dim) return;
    i64 token = i / dim, image = token / (grid + 1);
    int c = (int)(i - token * dim), p = (int)(token - image * (grid + 1)) - 1;
    x[i] = from_float<act>(p < 0 ? class_token[c] + position[c]
                                 : to_float(patches[(image * grid + p) * dim + c]) + mixed[p * dim + c]);
}

// The gradient of the patches of one group is a copy, and that of each place of the grid a sum over images. A thread
// takes one column of one place (0: the class token) and some of the images, in order; partial is [parts, places, dim].
extern "C" __global__ void assemble_backward(const act* dx, i64 count, int grid, int dim, int per_part, act* d_patches,
                                             float* partial) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, columns = (i64)(grid + 1) * dim;
    if (i >= columns) return;
    int place = (int)(i / dim), c = (int)(i % dim);
    i64 first = (i64)blockIdx.y * per_part, last = first + per_part < count ? first + per_part : count;
    float sum = 0.0f;
    for (i64 image = first; image < last; ++image) {
        act d = dx[(image * (grid + 1) + place) * dim + c];
        if (place > 0) d_patches[(image * grid + place - 1) * dim + c] = d;
        sum += to_float(d);
    }
    partial[blockIdx.y * columns + i] = sum;
}

// Adds the gradients of a group's places to those of the class token and the learnt positions: the
// transpose of mix_positions.
extern "C" __global__ void add_place_gradients(const float* d_places, const float* mix, int patches, int learnt, int dim,
                                               float* d_class, float* d_position) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (i64)(learnt + 1) * dim) return;
    int l = (int)(i / dim) - 1, c = (int)(i % dim);
    if (l < 0) {
        d_class[c] += d_places[c];
        d_position[c] += d_places[c];
        return;
    }
    float sum = 0.0f;
    if (!mix) sum = d_places[(i64)(1 + l) * dim + c];
    else
        for (int p = 0; p < patches; ++p)
            if (mix[p * learnt + l] != 0.0f) sum += mix[p * learnt + l] * d_places[(i64)(1 + p) * dim + c];
    d_position[i] += sum;
}
