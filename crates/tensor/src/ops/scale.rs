//! A factor for each row of a parameter: LayerScale, which multiplies the outputs of a linear layer, is one for each row of
//! its weight and bias.

use crate::cpu::{on_device, scale as cpu};
use crate::cuda::scale as gpu;
use crate::tensor::Tensor;

/// Row r of a parameter times factor r.
pub fn scale_rows(x: &Tensor, factors: &Tensor) -> Tensor {
    assert_eq!(x.rows(), factors.len(), "a factor for each row");
    let mut y = x.device().empty_exact(x.shape());
    on_device!(
        x,
        T => cpu::forward(x.device().as_cpu(), T::slice(x), T::slice(factors), T::slice_mut(&mut y)),
        cuda => gpu::forward(cuda, x, factors, &mut y),
    );
    y
}

/// Adds the gradients of the rows and of the factors.
pub fn scale_rows_backward(x: &Tensor, factors: &Tensor, dy: &Tensor, dx: &mut Tensor, d_factors: &mut Tensor) {
    assert_eq!((x.rows(), x.len()), (factors.len(), dy.len()), "a factor for each row");
    on_device!(x, T => cpu::backward(
        x.device().as_cpu(), T::slice(x), T::slice(factors), T::slice(dy), T::slice_mut(dx), T::slice_mut(d_factors),
    ), cuda => gpu::backward(cuda, x, factors, dy, dx, d_factors));
}
