//! The largest elements of each row of a matrix: the nearest neighbours, where it holds similarities.

use crate::cpu::{largest as cpu, on_device};
use crate::cuda::{CudaBuffer, largest as gpu};
use crate::tensor::Tensor;

/// The most columns of a matrix whose largest elements are looked for.
const MOST_COLUMNS: usize = 1 << 30;

/// The largest elements of each row, and where they were.
pub struct Largest {
    /// [rows, count], in the order of their columns.
    pub values: Tensor,
    columns: Columns,
}

/// Where the numbers of columns are.
enum Columns {
    Host(Vec<u32>),
    Cuda(CudaBuffer),
}

impl Largest {
    /// The column of each value. Waits for the work that finds them.
    pub fn columns(&self) -> Vec<u32> {
        match &self.columns {
            Columns::Host(columns) => columns.clone(),
            Columns::Cuda(buffer) => {
                let cuda = self.values.device().as_cuda();
                cuda.map_or_else(Vec::new, |cuda| cuda.download(buffer.address(), self.values.len()))
            }
        }
    }
}

impl std::fmt::Debug for Largest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Largest").field("values", &self.values).finish_non_exhaustive()
    }
}

/// The `k` largest elements of each row (all, where there are fewer), in the order of their columns: not sorted by size.
///
/// Of equal elements, which -0 and 0 are, those of lower columns are taken. NaN is less than everything else, also than
/// minus infinity: it is taken only where nothing else is left.
///
/// # Panics
/// When the elements are not of the type of statistics, or a row has more than 2^30.
pub fn largest(x: &Tensor, k: usize) -> Largest {
    assert_eq!(x.dtype(), x.device().exact_dtype(), "elements that are compared are not rounded");
    assert!(x.columns() <= MOST_COLUMNS, "columns of a row");
    let mut values = x.device().empty_exact(&[x.rows(), k.min(x.columns())]);
    let columns = on_device!(x, T => {
        let mut columns = vec![0; values.len()];
        if !columns.is_empty() {
            cpu::largest(x.device().as_cpu(), T::slice(x), x.columns(), T::slice_mut(&mut values), &mut columns);
        }
        Columns::Host(columns)
    }, cuda => Columns::Cuda(gpu::largest(cuda, x, &mut values)));
    Largest { values, columns }
}
