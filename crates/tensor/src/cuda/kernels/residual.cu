// Rows between a packed matrix and a compact one. source_of[r] is the packed row of compact row r; compact_of[r] is the
// compact row of packed row r, or -1. A null map is the identity.
//
// Columns are taken eight at a time where the width allows (`by_8`), else one at a time.

// Where a residual branch has rows: out = stream + scale (branch + bias) there, stream elsewhere.
template <int WIDTH>
__device__ void add_branch(const res* stream, const act* branch, const float* bias, const int* compact_of, i64 rows,
                           int dim, float scale, res* out) {
    int per_row = dim / WIDTH;
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * per_row) return;
    i64 row = i / per_row;
    int c = (int)(i - row * per_row) * WIDTH;
    i64 compact = mapped(compact_of, row);
    float x[8], b[8], d[8];
    if (WIDTH == 8) {
        load8(stream + row * dim + c, x);
        if (compact >= 0) {
            load8(branch + compact * dim + c, b), load8(bias + c, d);
            for (int j = 0; j < 8; ++j) x[j] += scale * (b[j] + d[j]);
        }
        store8(out + row * dim + c, x);
    } else {
        x[0] = to_float(stream[row * dim + c]);
        if (compact >= 0) x[0] += scale * (to_float(branch[compact * dim + c]) + bias[c]);
        out[row * dim + c] = from_float<res>(x[0]);
    }
}

#define ADD_BRANCH(WIDTH)                                                                                              \
    extern "C" __global__ void add_branch_by_##WIDTH(const res* stream, const act* branch, const float* bias,          \
                                                     const int* compact_of, i64 rows, int dim, float scale,            \
                                                     res* out) {                                                       \
        add_branch<WIDTH>(stream, branch, bias, compact_of, rows, dim, scale, out);                                    \
    }
ADD_BRANCH(1) ADD_BRANCH(8)

// compact[r] = scale x[source_of[r]], with partial sums [chunks, dim] of the result where columns are taken by eight.
template <typename From, typename To>
__device__ __forceinline__ void gather_by_8(const From* x, const int* source_of, i64 rows, int dim, int per_chunk,
                                            float scale, To* compact, float* partial) {
    int c = (blockIdx.x * 32 + threadIdx.x) * 8;
    i64 first = (i64)blockIdx.y * per_chunk, last = first + per_chunk < rows ? first + per_chunk : rows;
    float sum[8] = {};
    if (c < dim)
        // Two rows at a time, so that both are on their way before the first is written.
        for (i64 row = first + threadIdx.y; row < last; row += 16) {
            bool both = row + 8 < last;
            float v[8], w[8];
            load8(x + mapped(source_of, row) * dim + c, v);
            load8(x + mapped(source_of, both ? row + 8 : row) * dim + c, w);
            for (int j = 0; j < 8; ++j) v[j] *= scale, sum[j] += v[j];
            store8(compact + row * dim + c, v);
            if (!both) break;
            for (int j = 0; j < 8; ++j) w[j] *= scale, sum[j] += w[j];
            store8(compact + (row + 8) * dim + c, w);
        }
    store_column_partials(sum, dim, partial);
}
template <typename From, typename To>
__device__ __forceinline__ void gather_by_1(const From* x, const int* source_of, i64 rows, int dim, float scale,
                                            To* compact) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * dim) return;
    compact[i] = from_float<To>(scale * to_float(x[mapped(source_of, i / dim) * dim + i % dim]));
}

#define GATHER(NAME, FROM, TO)                                                                                         \
    extern "C" __global__ void NAME##_by_8(const FROM* x, const int* source_of, i64 rows, int dim, int per_chunk,      \
                                           float scale, TO* compact, float* partial) {                                 \
        gather_by_8(x, source_of, rows, dim, per_chunk, scale, compact, partial);                                      \
    }                                                                                                                  \
    extern "C" __global__ void NAME##_by_1(const FROM* x, const int* source_of, i64 rows, int dim, float scale,        \
                                           TO* compact) {                                                              \
        gather_by_1(x, source_of, rows, dim, scale, compact);                                                          \
    }
// Activations, the stream, and from the gradient of the stream to that of a branch.
GATHER(gather_act, act, act)
GATHER(gather_res, res, res)
GATHER(gather_res_to_act, res, act)

// x[source_of[r]] += scale compact[r]; the sources are different rows, so no two threads meet.
template <typename T>
__device__ __forceinline__ void scatter_add(const T* compact, const int* source_of, i64 rows, int dim, float scale, T* x) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * dim) return;
    i64 at = mapped(source_of, i / dim) * dim + i % dim;
    x[at] = from_float<T>(to_float(x[at]) + scale * to_float(compact[i]));
}

#define SCATTER_ADD(TYPE)                                                                                              \
    extern "C" __global__ void scatter_add_##TYPE(const TYPE* compact, const int* source_of, i64 rows, int dim,        \
                                                  float scale, TYPE* x) {                                              \
        scatter_add(compact, source_of, rows, dim, scale, x);                                                          \
    }
SCATTER_ADD(act) SCATTER_ADD(res)

// x[source_of[r]] = value, or zero where there is none.
extern "C" __global__ void fill_rows(const float* value, const int* source_of, i64 rows, int dim, act* x) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * dim) return;
    int c = (int)(i % dim);
    x[mapped(source_of, i / dim) * dim + c] = from_float<act>(value ? value[c] : 0.0f);
}

// Some segments of a packed matrix: segment s is rows starts[s].. of it and offsets[s]..offsets[s + 1] of the compact
// one, in the same order. As cuda/rows.rs writes it.
struct Segments {
    const int *starts, *offsets;
    int *source_of, *compact_of;
    int count, source_rows;
};

// The two maps of each of some. A block takes a segment of one of them and the rows of no segment before it; one block
// more takes those after the last.
extern "C" __global__ void row_maps(const Segments* all) {
    const Segments m = all[blockIdx.y];
    int s = blockIdx.x;
    if (s > m.count) return;
    int start = s < m.count ? m.starts[s] : m.source_rows;
    int before = s > 0 ? m.starts[s - 1] + m.offsets[s] - m.offsets[s - 1] : 0;
    for (int row = before + threadIdx.x; row < start; row += blockDim.x) m.compact_of[row] = -1;
    if (s == m.count) return;
    int offset = m.offsets[s], length = m.offsets[s + 1] - offset;
    for (int i = threadIdx.x; i < length; i += blockDim.x) {
        m.source_of[offset + i] = start + i;
        m.compact_of[start + i] = offset + i;
    }
}
