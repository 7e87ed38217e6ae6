//! Normalisation over rows and columns.

use super::{Cuda, REDUCTION_BLOCKS, arguments};
use crate::ops::Norm;
use crate::rows::Rows;
use crate::tensor::{DType, Tensor};

/// The kernels for rows of up to 128, 256, ... 1024 columns.
const FORWARD: [&str; 8] = [
    "layer_norm_forward_by_4_1",
    "layer_norm_forward_by_4_2",
    "layer_norm_forward_by_4_3",
    "layer_norm_forward_by_4_4",
    "layer_norm_forward_by_4_5",
    "layer_norm_forward_by_4_6",
    "layer_norm_forward_by_4_7",
    "layer_norm_forward_by_4_8",
];
const AFTER_BRANCH: [&str; 8] = [
    "after_branch_by_4_1",
    "after_branch_by_4_2",
    "after_branch_by_4_3",
    "after_branch_by_4_4",
    "after_branch_by_4_5",
    "after_branch_by_4_6",
    "after_branch_by_4_7",
    "after_branch_by_4_8",
];
const BACKWARD: [&str; 8] = [
    "layer_norm_backward_by_4_1",
    "layer_norm_backward_by_4_2",
    "layer_norm_backward_by_4_3",
    "layer_norm_backward_by_4_4",
    "layer_norm_backward_by_4_5",
    "layer_norm_backward_by_4_6",
    "layer_norm_backward_by_4_7",
    "layer_norm_backward_by_4_8",
];

/// Which of the kernels that keep a row in registers takes this width.
fn in_registers(dim: usize) -> Option<usize> {
    (dim.is_multiple_of(4) && (1..=1024).contains(&dim)).then(|| dim.div_ceil(128) - 1)
}

/// The kernel that adds a residual branch to rows of this width and normalises them.
pub(super) fn after_branch(dim: usize) -> Option<&'static str> {
    in_registers(dim).map(|i| AFTER_BRANCH[i])
}

pub(crate) fn layer_forward(cuda: &Cuda, x: &Tensor, norm: &Norm<'_>, [y, mean, rstd]: [&mut Tensor; 3]) {
    let &Norm { rows, weight, bias, epsilon } = norm;
    let dim = weight.len();
    let (kernel, rows_per_warp) = in_registers(dim).map_or(("layer_norm_forward", 1), |i| (FORWARD[i], 2));
    let arguments = arguments![
        x.cuda_address(),
        cuda.rows(rows).source_of(),
        weight.cuda_address(),
        bias.cuda_address(),
        rows.count() as i64,
        dim as i32,
        epsilon as f32,
        y.cuda_address_mut(),
        mean.cuda_address_mut(),
        rstd.cuda_address_mut(),
    ];
    cuda.launch_rows(("layer_norm", kernel), rows.count().div_ceil(rows_per_warp), &arguments);
}

/// Adds to dx and to the parameters' gradients.
pub(crate) fn layer_backward(
    cuda: &Cuda,
    x: &Tensor,
    rows: &Rows,
    [mean, rstd, weight, dy]: [&Tensor; 4],
    [dx, d_weight, d_bias]: [&mut Tensor; 3],
) {
    let (count, dim) = (rows.count(), weight.len());
    if count == 0 {
        return;
    }
    let (kernel, rows_per_block, threads) =
        in_registers(dim).map_or(("layer_norm_backward", 1, 128), |i| (BACKWARD[i], 8, 256));
    // As many as an H200 has room for at a time, which is fewer where a row takes more registers.
    let most = if dim > 512 { REDUCTION_BLOCKS * 2 / 3 } else { REDUCTION_BLOCKS };
    let blocks = count.div_ceil(rows_per_block).min(most);
    let partial = cuda.allocate(blocks * 2 * dim, DType::F32);
    let arguments = arguments![
        x.cuda_address(),
        cuda.rows(rows).source_of(),
        mean.cuda_address(),
        rstd.cuda_address(),
        weight.cuda_address(),
        dy.cuda_address(),
        count as i64,
        dim as i32,
        dx.cuda_address_mut(),
        partial.address(),
    ];
    cuda.launch(("layer_norm", kernel), (blocks as u32, 1, 1), (threads, 1), 2 * dim * 4, &arguments);
    let arguments = arguments![
        partial.address(),
        blocks as i32,
        dim as i32,
        d_weight.cuda_address_mut(),
        d_bias.cuda_address_mut(),
    ];
    cuda.launch(("reduce", "add_partial_pairs"), ((2 * dim).div_ceil(32) as u32, 1, 1), (32, 32), 0, &arguments);
}

pub(crate) fn l2_forward(cuda: &Cuda, x: &Tensor, epsilon: f64, y: &mut Tensor, norms: &mut Tensor) {
    let (rows, dim) = (x.rows(), x.columns());
    let arguments = arguments![
        x.cuda_address(),
        rows as i64,
        dim as i32,
        epsilon as f32,
        y.cuda_address_mut(),
        norms.cuda_address_mut(),
    ];
    cuda.launch_rows(("prototypes", "l2_normalize_forward"), rows, &arguments);
}

pub(crate) fn l2_backward(cuda: &Cuda, y: &Tensor, norms: &Tensor, epsilon: f64, dy: &Tensor, dx: &mut Tensor) {
    let (rows, dim) = (y.rows(), y.columns());
    let arguments = arguments![
        y.cuda_address(),
        norms.cuda_address(),
        dy.cuda_address(),
        rows as i64,
        dim as i32,
        epsilon as f32,
        dx.cuda_address_mut(),
    ];
    cuda.launch_rows(("prototypes", "l2_normalize_backward"), rows, &arguments);
}

/// The grid and block of the batch-norm kernels.
fn over_columns(columns: usize) -> ((u32, u32, u32), (u32, u32)) {
    ((columns.div_ceil(32) as u32, 1, 1), (32, 32))
}

pub(crate) fn batch_forward(
    cuda: &Cuda,
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    epsilon: f64,
    [y, mean, variance]: [&mut Tensor; 3],
) {
    let arguments = arguments![
        x.cuda_address(),
        weight.cuda_address(),
        bias.cuda_address(),
        x.rows() as i64,
        x.columns() as i32,
        epsilon as f32,
        y.cuda_address_mut(),
        mean.cuda_address_mut(),
        variance.cuda_address_mut(),
    ];
    let (grid, block) = over_columns(x.columns());
    cuda.launch(("prototypes", "batch_norm_forward"), grid, block, 0, &arguments);
}

pub(crate) fn batch_backward(
    cuda: &Cuda,
    [x, mean, variance, weight, dy]: [&Tensor; 5],
    epsilon: f64,
    [dx, d_weight, d_bias]: [&mut Tensor; 3],
) {
    let arguments = arguments![
        x.cuda_address(),
        mean.cuda_address(),
        variance.cuda_address(),
        weight.cuda_address(),
        epsilon as f32,
        dy.cuda_address(),
        x.rows() as i64,
        x.columns() as i32,
        dx.cuda_address_mut(),
        d_weight.cuda_address_mut(),
        d_bias.cuda_address_mut(),
    ];
    let (grid, block) = over_columns(x.columns());
    cuda.launch(("prototypes", "batch_norm_backward"), grid, block, 0, &arguments);
}

pub(crate) fn batch_apply(cuda: &Cuda, [x, mean, variance, weight, bias]: [&Tensor; 5], epsilon: f64, y: &mut Tensor) {
    let arguments = arguments![
        x.cuda_address(),
        mean.cuda_address(),
        variance.cuda_address(),
        weight.cuda_address(),
        bias.cuda_address(),
        epsilon as f32,
        x.rows() as i64,
        x.columns() as i32,
        y.cuda_address_mut(),
    ];
    let (grid, block) = over_columns(x.columns());
    cuda.launch(("prototypes", "batch_norm_apply"), grid, block, 0, &arguments);
}

pub(crate) fn batch_sums(
    cuda: &Cuda,
    [x, mean, variance, dy]: [&Tensor; 4],
    epsilon: f64,
    [of_dy, of_dy_hat]: [&mut Tensor; 2],
) {
    let arguments = arguments![
        x.cuda_address(),
        mean.cuda_address(),
        variance.cuda_address(),
        epsilon as f32,
        dy.cuda_address(),
        x.rows() as i64,
        x.columns() as i32,
        of_dy.cuda_address_mut(),
        of_dy_hat.cuda_address_mut(),
    ];
    let (grid, block) = over_columns(x.columns());
    cuda.launch(("prototypes", "batch_norm_sums"), grid, block, 0, &arguments);
}

pub(crate) fn batch_input_gradient(
    cuda: &Cuda,
    [x, mean, variance, weight, dy, mean_dy, mean_dy_hat]: [&Tensor; 7],
    epsilon: f64,
    dx: &mut Tensor,
) {
    let arguments = arguments![
        x.cuda_address(),
        mean.cuda_address(),
        variance.cuda_address(),
        weight.cuda_address(),
        epsilon as f32,
        dy.cuda_address(),
        mean_dy.cuda_address(),
        mean_dy_hat.cuda_address(),
        x.rows() as i64,
        x.columns() as i32,
        dx.cuda_address_mut(),
    ];
    let (grid, block) = over_columns(x.columns());
    cuda.launch(("prototypes", "batch_norm_input_gradient"), grid, block, 0, &arguments);
}
