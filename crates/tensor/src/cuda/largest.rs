//! The largest elements of each row.

use super::{Cuda, CudaBuffer, arguments};
use crate::tensor::Tensor;

/// Threads of a block, which takes a row: as `largest.cu` has them.
const ROW_THREADS: u32 = 512;

/// Writes the largest elements of each row, as many as there is room for; returns their columns.
pub(crate) fn largest(cuda: &Cuda, x: &Tensor, values: &mut Tensor) -> CudaBuffer {
    let columns = cuda.scratch(values.len() * size_of::<u32>());
    if values.is_empty() {
        return columns;
    }
    let arguments = arguments![
        x.cuda_address(),
        x.columns() as i32,
        values.columns() as i32,
        values.cuda_address_mut(),
        columns.address(),
    ];
    cuda.launch(("largest", "largest"), (x.rows() as u32, 1, 1), (ROW_THREADS, 1), 0, &arguments);
    columns
}
