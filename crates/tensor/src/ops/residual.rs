//! Moving rows between a packed matrix and a compact one.
//!
//! The residual stream and its gradient may be of a larger type than activations. It is read by LayerNorms, and leaves
//! them as activations; its gradient becomes that of a branch by [`branch_gradient`].

use crate::cpu::{on_device, residual as cpu};
use crate::cuda::residual as gpu;
use crate::rows::Rows;
use crate::tensor::{DType, Tensor};

/// The named rows of `x`, times `scale`, as a compact matrix of the same element type.
pub fn gather(x: &Tensor, rows: &Rows, scale: f64) -> Tensor {
    gather_as(x, rows, scale, x.dtype())
}

/// The gradient of what a residual branch adds, from that of the stream: its named rows, times the branch's `scale`, as
/// activations for the matrix products of the branch to read.
pub fn branch_gradient(dx: &Tensor, rows: &Rows, scale: f64) -> Tensor {
    assert_stream(dx);
    gather_as(dx, rows, scale, dx.device().dtype())
}

/// Operations on the residual stream take nothing else: activations may be of a smaller type.
pub(super) fn assert_stream(x: &Tensor) {
    assert_eq!(x.dtype(), x.device().residual_dtype(), "the residual stream or its gradient");
}

fn gather_as(x: &Tensor, rows: &Rows, scale: f64, dtype: DType) -> Tensor {
    assert_eq!(x.rows(), rows.source_rows(), "rows to gather from");
    let known = [x.device().dtype(), x.device().residual_dtype()];
    assert!(known.contains(&x.dtype()), "activations or the residual stream");
    let mut compact = Tensor::empty(x.device(), &[rows.count(), x.columns()], dtype);
    on_device!(
        x,
        T => cpu::gather(x.device().as_cpu(), T::slice(x), rows, x.columns(), scale, T::slice_mut(&mut compact)),
        cuda => gpu::gather(cuda, x, rows, scale, &mut compact),
    );
    compact
}

/// A matrix with the rows of a compact one in the named places, and zeros elsewhere: the derivative of [`gather`] by
/// itself.
pub fn scatter(compact: &Tensor, rows: &Rows) -> Tensor {
    let mut x = Tensor::empty(compact.device(), &[rows.source_rows(), compact.columns()], compact.dtype());
    x.fill(0.0);
    scatter_add(compact, rows, 1.0, &mut x);
    x
}

/// Adds a compact matrix, times `scale`, to the named rows of `x`, which is of the same element type: the derivative of
/// [`gather`].
pub fn scatter_add(compact: &Tensor, rows: &Rows, scale: f64, x: &mut Tensor) {
    assert_eq!(compact.dtype(), x.dtype(), "rows are added to rows of their type");
    assert_eq!((x.rows(), compact.rows()), (rows.source_rows(), rows.count()), "rows to scatter to");
    let dim = compact.columns();
    on_device!(
        compact,
        T => cpu::scatter_add(compact.device().as_cpu(), T::slice(compact), rows, dim, scale, T::slice_mut(x)),
        cuda => gpu::scatter_add(cuda, compact, rows, scale, x),
    );
}
