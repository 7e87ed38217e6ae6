//! Linear layers.

use std::ops::Range;

use super::gemm::{Matrix, Product};
use super::{Cuda, CudaBuffer, arguments, norm};
use crate::ops::Norm;
use crate::rows::Rows;
use crate::tensor::{DType, Tensor};

/// Some outputs of a layer: weight and bias from row `first` on.
#[derive(Clone, Copy)]
pub(crate) struct Layer<'a> {
    pub weight: &'a Tensor,
    pub bias: Option<&'a Tensor>,
    pub first: usize,
    pub outputs: usize,
}

impl Layer<'_> {
    fn weight(&self, cuda: &Cuda) -> Matrix {
        let inputs = self.weight.columns();
        let skipped = self.first * inputs * cuda.dtype().size();
        Matrix::new(cuda.for_product(self.weight) + skipped as u64, self.outputs, inputs)
    }

    /// The bias for a matrix product to add, which cuBLASLt takes in the type of the result only.
    fn bias(&self, cuda: &Cuda, result: DType) -> Option<u64> {
        let values = |b| if result == DType::F32 { Tensor::cuda_address(b) } else { cuda.for_product(b) };
        self.bias.map(|b| values(b) + (self.first * result.size()) as u64)
    }

    /// The bias for a kernel to add; null where there is none.
    fn exact_bias(&self) -> u64 {
        self.bias.map_or(0, |b| b.cuda_address() + (self.first * DType::F32.size()) as u64)
    }
}

/// y = x W^T + b.
pub(crate) fn forward(cuda: &Cuda, x: &Tensor, layer: Layer<'_>, y: &mut Tensor) {
    let to = Product { bias: layer.bias(cuda, y.dtype()), ..Product::to(y.cuda_address_mut(), y.dtype()) };
    cuda.product(Matrix::of(x), layer.weight(cuda).transposed(), to);
}

/// out = stream + scale (x W^T + b) in the rows that take the branch.
pub(crate) fn residual(
    cuda: &Cuda,
    stream: &Tensor,
    rows: &Rows,
    scale: f64,
    x: &Tensor,
    layer: Layer<'_>,
    out: &mut Tensor,
) {
    let map = cuda.rows(rows);
    if map.is_whole() && scale == 1.0 {
        let to = Product::to(out.cuda_address_mut(), out.dtype());
        let to = Product { added_to: Some(stream.cuda_address()), bias: layer.bias(cuda, out.dtype()), ..to };
        cuda.product(Matrix::of(x), layer.weight(cuda).transposed(), to);
        return;
    }
    let branch = without_bias(cuda, x, layer);
    let dim = out.columns();
    let (kernel, width) = if dim.is_multiple_of(8) { ("add_branch_by_8", 8) } else { ("add_branch_by_1", 1) };
    let arguments = arguments![
        stream.cuda_address(),
        branch.cuda_address(),
        layer.exact_bias(),
        map.compact_of(),
        out.rows() as i64,
        dim as i32,
        scale as f32,
        out.cuda_address_mut(),
    ];
    cuda.launch_flat(("residual", kernel), out.rows() * dim / width, &arguments);
}

/// The same, and the LayerNorm of some rows of the result: y with mean and reciprocal standard deviation of each row.
pub(crate) fn residual_norm(
    cuda: &Cuda,
    stream: &Tensor,
    rows: &Rows,
    scale: f64,
    x: &Tensor,
    layer: Layer<'_>,
    norm: &Norm<'_>,
    [out, y, mean, rstd]: [&mut Tensor; 4],
) {
    let (map, dim) = (cuda.rows(rows), out.columns());
    let kernel = norm::after_branch(dim).filter(|_| !(map.is_whole() && scale == 1.0));
    let Some(kernel) = kernel else {
        residual(cuda, stream, rows, scale, x, layer, out);
        return norm::layer_forward(cuda, out, norm, [y, mean, rstd]);
    };
    let branch = without_bias(cuda, x, layer);
    let arguments = arguments![
        stream.cuda_address(),
        branch.cuda_address(),
        layer.exact_bias(),
        map.compact_of(),
        scale as f32,
        cuda.rows(norm.rows).compact_of(),
        norm.weight.cuda_address(),
        norm.bias.cuda_address(),
        out.rows() as i64,
        dim as i32,
        norm.epsilon as f32,
        out.cuda_address_mut(),
        y.cuda_address_mut(),
        mean.cuda_address_mut(),
        rstd.cuda_address_mut(),
    ];
    cuda.launch_rows(("layer_norm", kernel), out.rows(), &arguments);
}

/// x W^T.
fn without_bias(cuda: &Cuda, x: &Tensor, layer: Layer<'_>) -> Tensor {
    let mut y = x.device().empty(&[x.rows(), layer.outputs]);
    forward(cuda, x, Layer { bias: None, ..layer }, &mut y);
    y
}

/// dx = dy W.
pub(crate) fn backward_input(cuda: &Cuda, dy: &Tensor, layer: Layer<'_>, dx: &mut Tensor) {
    cuda.product(Matrix::of(dy), layer.weight(cuda), Product::to(dx.cuda_address_mut(), dx.dtype()));
}

/// Adds dy^T x to the weight's gradient and the column sums of dy to the bias's.
pub(crate) fn backward_weight(
    cuda: &Cuda,
    x: &Tensor,
    dy: &Tensor,
    outputs: Range<usize>,
    d_weight: &mut Tensor,
    d_bias: &mut Tensor,
) {
    let skipped = |per_output: usize| (outputs.start * per_output * DType::F32.size()) as u64;
    let inputs = d_weight.columns();
    let address = d_weight.cuda_address_mut() + skipped(inputs);
    let to = Product { added_to: Some(address), ..Product::to(address, DType::F32) };
    // Not by cuBLASLt's own epilogue: it makes the product slower by more than the sums cost.
    cuda.product(Matrix::of(dy).transposed(), Matrix::of(x), to);
    add_column_sums(cuda, dy, d_bias.cuda_address_mut() + skipped(1));
}

/// Adds partial sums [chunks, columns] to a vector of floats.
pub(super) fn add_partials(cuda: &Cuda, partial: u64, chunks: usize, columns: usize, to: u64) {
    let arguments = arguments![partial, chunks as i32, columns as i32, to];
    cuda.launch(("reduce", "add_partials"), (columns.div_ceil(32) as u32, 1, 1), (32, 32), 0, &arguments);
}

/// Blocks of 32 x 8 threads that sum over rows. Fixed, for the same sums on any GPU.
const COLUMN_BLOCKS: usize = 528;

/// How a kernel that sums over rows cuts up a matrix: blocks of 32 x 8 threads, each for some columns and a chunk of rows.
pub(super) struct ColumnGrid {
    pub per_chunk: usize,
    pub chunks: usize,
    pub grid: (u32, u32, u32),
}

impl ColumnGrid {
    /// With `width` columns for a thread. As many blocks as an H200 has room for at a time: a block more would begin when the
    /// others end, and few blocks leave few sums.
    pub(super) fn new(rows: usize, columns: usize, width: usize) -> Self {
        let tiles = columns.div_ceil(32 * width);
        let per_chunk = rows.div_ceil((COLUMN_BLOCKS / tiles.max(1)).max(1)).max(8);
        let chunks = rows.div_ceil(per_chunk);
        Self { per_chunk, chunks, grid: (tiles as u32, chunks as u32, 1) }
    }
}

/// Adds the sums over rows to a vector of floats.
pub(crate) fn add_column_sums(cuda: &Cuda, x: &Tensor, to: u64) {
    let (rows, columns) = (x.rows(), x.columns());
    if rows == 0 || columns == 0 {
        return;
    }
    if let Some(sums) = x.cuda_buffer().column_sums() {
        return add_partials(cuda, sums.address(), sums.len / columns, columns, to);
    }
    let cut = ColumnGrid::new(rows, columns, width_of_sums(columns));
    let chunks = cut.chunks;
    let partial = column_partials(cuda, x, cut);
    add_partials(cuda, partial.address(), chunks, columns, to);
}

/// Columns that a thread takes which sums over rows.
fn width_of_sums(columns: usize) -> usize {
    if columns.is_multiple_of(8) { 8 } else { 1 }
}

/// Sums over the rows of each chunk: [chunks, columns].
fn column_partials(cuda: &Cuda, x: &Tensor, ColumnGrid { per_chunk, chunks, grid }: ColumnGrid) -> CudaBuffer {
    let (rows, columns) = (x.rows(), x.columns());
    let kernel = match (width_of_sums(columns), x.dtype() == DType::F32) {
        (8, false) => "column_partials_act_by_8",
        (_, false) => "column_partials_act_by_1",
        (8, true) => "column_partials_f32_by_8",
        (_, true) => "column_partials_f32_by_1",
    };
    let partial = cuda.allocate(chunks * columns, DType::F32);
    let arguments = arguments![x.cuda_address(), rows as i64, columns as i32, per_chunk as i32, partial.address()];
    cuda.launch(("reduce", kernel), grid, (32, 8), 0, &arguments);
    partial
}

/// The means of as many equal parts of x as `means` has rows.
pub(crate) fn row_means(cuda: &Cuda, x: &Tensor, means: &mut Tensor) {
    let (chunks, columns) = (means.rows(), means.columns());
    if columns == 0 {
        return;
    }
    let per_chunk = x.rows() / chunks;
    let tiles = columns.div_ceil(32 * width_of_sums(columns));
    let partial = column_partials(cuda, x, ColumnGrid { per_chunk, chunks, grid: (tiles as u32, chunks as u32, 1) });
    let arguments = arguments![partial.address(), means.len() as i64, 1.0 / per_chunk as f32, means.cuda_address_mut()];
    cuda.launch_flat(("reduce", "scaled_partials"), means.len(), &arguments);
}

/// pre = x W^T and activated = gelu(pre + b), or where the kernel cannot add the bias, pre = x W^T + b and activated =
/// gelu(pre). Returns the bias that `pre` lacks.
pub(crate) fn forward_gelu<'a>(
    cuda: &Cuda,
    x: &Tensor,
    layer: Layer<'a>,
    pre: &mut Tensor,
    activated: &mut Tensor,
) -> Option<&'a Tensor> {
    let apart = if layer.outputs.is_multiple_of(8) && layer.first == 0 { layer.bias } else { None };
    let bias = if apart.is_some() { None } else { layer.bias };
    forward(cuda, x, Layer { bias, ..layer }, pre);
    gelu(cuda, pre, apart, activated);
    apart
}

/// y = gelu(x + bias).
pub(crate) fn gelu(cuda: &Cuda, x: &Tensor, bias: Option<&Tensor>, y: &mut Tensor) {
    let (rows, columns) = (x.rows(), x.columns());
    if !columns.is_multiple_of(8) || rows == 0 {
        debug_assert!(bias.is_none() || rows == 0, "a width whose bias the product adds");
        let arguments = arguments![x.cuda_address(), x.len() as i64, y.cuda_address_mut()];
        return cuda.launch_flat(("gelu", "gelu_forward"), x.len(), &arguments);
    }
    let arguments = arguments![
        x.cuda_address(),
        bias.map_or(0, Tensor::cuda_address),
        rows as i64,
        columns as i32,
        y.cuda_address_mut(),
    ];
    cuda.launch_flat(("gelu", "gelu_forward_by_8"), rows.div_ceil(2) * columns / 8, &arguments);
}

/// d *= gelu'(x + bias), and x becomes gelu(x + bias). Leaves the column sums of d with it: whoever takes the gradient of a
/// layer's bias needs them.
pub(crate) fn gelu_backward(cuda: &Cuda, x: &mut Tensor, bias: Option<&Tensor>, d: &mut Tensor) {
    let (rows, columns) = (x.rows(), x.columns());
    if !columns.is_multiple_of(8) || rows == 0 {
        debug_assert!(bias.is_none() || rows == 0, "a width whose bias the product adds");
        let arguments = arguments![d.cuda_address_mut(), x.cuda_address_mut(), x.len() as i64];
        return cuda.launch_flat(("gelu", "gelu_backward"), x.len(), &arguments);
    }
    let ColumnGrid { per_chunk, chunks, grid } = ColumnGrid::new(rows, columns, 8);
    let partial = cuda.allocate(chunks * columns, DType::F32);
    let arguments = arguments![
        d.cuda_address_mut(),
        x.cuda_address_mut(),
        bias.map_or(0, Tensor::cuda_address),
        rows as i64,
        columns as i32,
        per_chunk as i32,
        partial.address(),
    ];
    cuda.launch(("gelu", "gelu_backward_by_8"), grid, (32, 8), 0, &arguments);
    d.keep_column_sums(partial);
}
