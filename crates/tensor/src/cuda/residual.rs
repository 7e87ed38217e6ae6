//! Moving rows between a packed matrix and a compact one.

use super::linear::ColumnGrid;
use super::{Cuda, arguments};
use crate::rows::Rows;
use crate::tensor::{DType, Tensor};

/// compact = scale times the named rows of x. The two may differ in type.
pub(crate) fn gather(cuda: &Cuda, x: &Tensor, rows: &Rows, scale: f64, compact: &mut Tensor) {
    let (count, dim) = (compact.rows(), compact.columns());
    let activations = cuda.dtype();
    let (by_8, by_1) = match (x.dtype() == activations, compact.dtype() == activations) {
        (true, true) => ("gather_act_by_8", "gather_act_by_1"),
        (false, false) => ("gather_res_by_8", "gather_res_by_1"),
        (false, true) => ("gather_res_to_act_by_8", "gather_res_to_act_by_1"),
        (true, false) => unreachable!("activations are not gathered into a larger type"),
    };
    let source_of = cuda.rows(rows).source_of();
    if dim.is_multiple_of(8) && count > 0 {
        let ColumnGrid { per_chunk, chunks, grid } = ColumnGrid::new(count, dim, 8);
        let partial = cuda.allocate(chunks * dim, DType::F32);
        let arguments = arguments![
            x.cuda_address(),
            source_of,
            count as i64,
            dim as i32,
            per_chunk as i32,
            scale as f32,
            compact.cuda_address_mut(),
            partial.address(),
        ];
        cuda.launch(("residual", by_8), grid, (32, 8), 0, &arguments);
        // A gathered gradient is what the gradient of a bias is summed from.
        return compact.keep_column_sums(partial);
    }
    let arguments =
        arguments![x.cuda_address(), source_of, count as i64, dim as i32, scale as f32, compact.cuda_address_mut()];
    cuda.launch_flat(("residual", by_1), count * dim, &arguments);
}

/// Adds scale times a compact matrix to the named rows of x.
pub(crate) fn scatter_add(cuda: &Cuda, compact: &Tensor, rows: &Rows, scale: f64, x: &mut Tensor) {
    let (count, dim) = (compact.rows(), compact.columns());
    let source_of = cuda.rows(rows).source_of();
    let arguments =
        arguments![compact.cuda_address(), source_of, count as i64, dim as i32, scale as f32, x.cuda_address_mut()];
    let kernel = if x.dtype() == cuda.dtype() { "scatter_add_act" } else { "scatter_add_res" };
    cuda.launch_flat(("residual", kernel), count * dim, &arguments);
}

/// Puts a value, or zeros, into the named rows of x.
pub(crate) fn fill_rows(cuda: &Cuda, x: &mut Tensor, rows: &Rows, value: Option<&Tensor>) {
    let (count, dim) = (rows.count(), x.columns());
    let value = value.map_or(0, Tensor::cuda_address);
    let source_of = cuda.rows(rows).source_of();
    let arguments = arguments![value, source_of, count as i64, dim as i32, x.cuda_address_mut()];
    cuda.launch_flat(("residual", "fill_rows"), count * dim, &arguments);
}
