//! Moving rows between a packed matrix and a compact one.

use crate::cpu::{on_device, residual as cpu};
use crate::cuda::residual as gpu;
use crate::rows::Rows;
use crate::tensor::Tensor;

/// The named rows of `x`, times `scale`, as a compact matrix.
pub fn gather(x: &Tensor, rows: &Rows, scale: f64) -> Tensor {
    assert_eq!(x.rows(), rows.source_rows(), "rows to gather from");
    let mut compact = x.device().empty(&[rows.count(), x.columns()]);
    on_device!(
        x,
        T => cpu::gather(x.device().as_cpu(), T::slice(x), rows, x.columns(), scale, T::slice_mut(&mut compact)),
        cuda => gpu::gather(cuda, x, rows, scale, &mut compact),
    );
    compact
}

/// Adds a compact matrix, times `scale`, to the named rows of `x`: the derivative of [`gather`].
pub fn scatter_add(compact: &Tensor, rows: &Rows, scale: f64, x: &mut Tensor) {
    assert_eq!((x.rows(), compact.rows()), (rows.source_rows(), rows.count()), "rows to scatter to");
    let dim = compact.columns();
    on_device!(
        compact,
        T => cpu::scatter_add(compact.device().as_cpu(), T::slice(compact), rows, dim, scale, T::slice_mut(x)),
        cuda => gpu::scatter_add(cuda, compact, rows, scale, x),
    );
}
