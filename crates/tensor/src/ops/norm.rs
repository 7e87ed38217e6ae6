//! Normalisation over rows and columns, and GELU alone.

use rayon::prelude::*;

use crate::cpu::{layer_norm as cpu_layer, normalize as cpu_l2, on_device};
use crate::cuda::{linear as gpu_linear, norm as gpu};
use crate::ops::linear::{Affine, linear_residual, residual_output};
use crate::ops::residual::assert_stream;
use crate::rows::Rows;
use crate::tensor::Tensor;

/// What the derivative needs besides the input: mean and reciprocal standard deviation of each
/// normalised row.
#[derive(Debug)]
pub struct RowStatistics {
    mean: Tensor,
    rstd: Tensor,
}

/// A LayerNorm of some rows of the residual stream.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// The rows.
    pub rows: &'a Rows,
    /// Multiplies each column.
    pub weight: &'a Tensor,
    /// Added to each column.
    pub bias: &'a Tensor,
    /// Added to the variance.
    pub epsilon: f64,
}

impl Norm<'_> {
    fn results(&self, x: &Tensor) -> (Tensor, RowStatistics) {
        assert_stream(x);
        assert_eq!((x.rows(), x.columns()), (self.rows.source_rows(), self.weight.len()), "input of LayerNorm");
        let (device, count) = (x.device(), self.rows.count());
        let (mean, rstd) = (device.empty_exact(&[count]), device.empty_exact(&[count]));
        (device.empty(&[count, self.weight.len()]), RowStatistics { mean, rstd })
    }
}

/// LayerNorm; the result is compact, and of the type of activations.
pub fn layer_norm(x: &Tensor, norm: &Norm<'_>) -> (Tensor, RowStatistics) {
    let (mut y, mut statistics) = norm.results(x);
    let RowStatistics { mean, rstd } = &mut statistics;
    on_device!(x, T => cpu_layer::forward(
        x.device().as_cpu(), T::slice(x), norm.rows, T::slice(norm.weight), T::slice(norm.bias), norm.epsilon,
        T::slice_mut(&mut y), T::slice_mut(mean), T::slice_mut(rstd),
    ), cuda => gpu::layer_forward(cuda, x, norm, [&mut y, mean, rstd]));
    (y, statistics)
}

/// [`linear_residual`] and the LayerNorm of its result, for the branch that comes next: the new stream, and what
/// [`layer_norm`] makes of it.
pub fn linear_residual_norm(
    stream: &Tensor,
    rows: &Rows,
    scale: f64,
    x: &Tensor,
    affine: &Affine<'_>,
    norm: &Norm<'_>,
) -> (Tensor, Tensor, RowStatistics) {
    let Some(cuda) = stream.device().as_cuda() else {
        let out = linear_residual(stream, rows, scale, x, affine);
        let (y, statistics) = layer_norm(&out, norm);
        return (out, y, statistics);
    };
    let ((mut out, _), (mut y, mut statistics)) = (residual_output(stream, rows, x, affine), norm.results(stream));
    let results = [&mut out, &mut y, &mut statistics.mean, &mut statistics.rstd];
    gpu_linear::residual_norm(cuda, stream, rows, scale, x, affine.on_gpu(), norm, results);
    (out, y, statistics)
}

/// Adds the gradient of the named rows of `x` to `dx`, and those of weight and bias to theirs.
pub fn layer_norm_backward(
    x: &Tensor,
    rows: &Rows,
    statistics: &RowStatistics,
    weight: &Tensor,
    dy: &Tensor,
    dx: &mut Tensor,
    d_weight: &mut Tensor,
    d_bias: &mut Tensor,
) {
    assert_stream(x);
    assert_stream(dx);
    assert_eq!((x.len(), dy.rows()), (dx.len(), rows.count()), "gradients of LayerNorm");
    let RowStatistics { mean, rstd } = statistics;
    on_device!(x, T => cpu_layer::backward(
        x.device().as_cpu(), T::slice(x), rows, T::slice(mean), T::slice(rstd), T::slice(weight),
        T::slice(dy), T::slice_mut(dx), T::slice_mut(d_weight), T::slice_mut(d_bias),
    ), cuda => gpu::layer_backward(cuda, x, rows, [mean, rstd, weight, dy], [dx, d_weight, d_bias]));
}

/// Rows divided by `max(|row|, epsilon)`, and those divisors.
pub fn l2_normalize(x: &Tensor, epsilon: f64) -> (Tensor, Tensor) {
    assert_eq!(x.dtype(), x.device().dtype(), "activations");
    let mut y = x.device().empty(x.shape());
    let mut norms = x.device().empty_exact(&[x.rows()]);
    on_device!(x, T => cpu_l2::forward(
        x.device().as_cpu(), T::slice(x), x.columns(), epsilon, T::slice_mut(&mut y), T::slice_mut(&mut norms),
    ), cuda => gpu::l2_forward(cuda, x, epsilon, &mut y, &mut norms));
    (y, norms)
}

/// The gradient of the rows before [`l2_normalize`], from its two results.
pub fn l2_normalize_backward(y: &Tensor, norms: &Tensor, epsilon: f64, dy: &Tensor) -> Tensor {
    let mut dx = y.device().empty(y.shape());
    on_device!(y, T => cpu_l2::backward(
        y.device().as_cpu(), T::slice(y), T::slice(norms), y.columns(), epsilon, T::slice(dy), T::slice_mut(&mut dx),
    ), cuda => gpu::l2_backward(cuda, y, norms, epsilon, dy, &mut dx));
    dx
}

/// GELU of every element: for a layer whose pre-activations are normalised first.
pub fn gelu(x: &Tensor) -> Tensor {
    let mut y = x.device().empty(x.shape());
    on_device!(x, T => {
        let (x_all, y_all) = (T::slice(x), T::slice_mut(&mut y));
        x.device().as_cpu().install(|| {
            let n = crate::cpu::ELEMENTS_PER_TASK;
            x_all.par_chunks(n).zip(y_all.par_chunks_mut(n)).for_each(|(x, y)| crate::cpu::gelu::gelu(x, y));
        });
    }, cuda => gpu_linear::gelu(cuda, x, None, &mut y));
    y
}
