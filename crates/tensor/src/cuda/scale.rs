//! A factor for each row.

use super::{Cuda, arguments};
use crate::tensor::Tensor;

/// y_r = f_r x_r.
pub(crate) fn forward(cuda: &Cuda, x: &Tensor, factors: &Tensor, y: &mut Tensor) {
    let (rows, columns) = (x.rows(), x.columns());
    let arguments =
        arguments![x.cuda_address(), factors.cuda_address(), rows as i64, columns as i32, y.cuda_address_mut()];
    cuda.launch_flat(("scale", "scale_rows"), rows * columns, &arguments);
}

/// dx_r += f_r dy_r and df_r += <x_r, dy_r>.
pub(crate) fn backward(
    cuda: &Cuda,
    x: &Tensor,
    factors: &Tensor,
    dy: &Tensor,
    dx: &mut Tensor,
    d_factors: &mut Tensor,
) {
    let (rows, columns) = (x.rows(), x.columns());
    let arguments = arguments![
        x.cuda_address(),
        factors.cuda_address(),
        dy.cuda_address(),
        rows as i64,
        columns as i32,
        dx.cuda_address_mut(),
        d_factors.cuda_address_mut(),
    ];
    cuda.launch_rows(("scale", "scale_rows_backward"), rows, &arguments);
}
