//! Products of many rows with one matrix, a few rows at a time.
//!
//! The matrix is first copied into panels of columns, in the order in which the product reads it. After that a task that
//! multiplies a few rows has nothing to rearrange, so that tasks can be small: threads finish together, and what follows
//! the product (a bias, a GELU) finds the rows in the cache.

use rayon::prelude::*;

use super::gemm::{Matrix, MatrixMut, Threads, gemm};
use super::{Buffer, Cpu, Real, one_task_each};
use simd::simd;

/// Columns of a panel: those of the largest tile of a product, in single precision and with AVX-512.
const WIDTH: usize = 64;

/// Rows that a task multiplies: the most with which the `gemm` crate reads a panel where it lies.
pub(crate) const ROWS: usize = 48;

/// Terms that are summed before they are added to the result; the crate's own number.
const DEPTH: usize = 512;

/// Rows and columns that are transposed at a time: a cache line of each.
pub(super) const SQUARE: usize = 16;

/// A matrix `b` [depth, columns], as panels one after another.
pub(crate) struct Panels<T: Real> {
    elements: Buffer<T>,
    depth: usize,
    columns: usize,
}

impl<T: Real> Panels<T> {
    pub(crate) fn new(cpu: &Cpu, b: Matrix<'_, T>) -> Self {
        let (depth, columns) = (b.rows, b.columns);
        let mut elements = cpu.allocate(depth * columns);
        let panels = elements.as_mut_slice().par_chunks_mut(depth * WIDTH);
        cpu.install(|| one_task_each(panels).for_each(|(i, panel)| copy_panel(b, i * WIDTH, panel)));
        Self { elements, depth, columns }
    }

    /// `y = x b` on the current thread; fastest for [`ROWS`] rows.
    pub(crate) fn multiply(&self, x: &[T], y: &mut [T]) {
        let (depth, columns, rows) = (self.depth, self.columns, x.len() / self.depth);
        if rows == 1 {
            // The crate sums a single row in another order. With a second one the bits of a row do not depend on how many
            // share its block.
            let mut both = vec![T::ZERO; 2 * columns];
            self.multiply(&[x, x].concat(), &mut both);
            return y.copy_from_slice(&both[..columns]);
        }
        let terms = depth.div_ceil(depth.div_ceil(DEPTH));
        for first in (0..depth).step_by(terms) {
            let terms = terms.min(depth - first);
            let x = Matrix::new(&x[first..], rows, terms, depth);
            for (i, panel) in self.elements.as_slice().chunks(depth * WIDTH).enumerate() {
                let width = panel.len() / depth;
                let panel = Matrix::new(&panel[first * width..], terms, width, width);
                let y = MatrixMut::new(&mut y[i * WIDTH..], rows, width, columns);
                gemm(y, first > 0, T::ONE, x, panel, Threads::One);
            }
        }
    }
}

/// The columns of `b` from `first` on that fill a panel.
fn copy_panel<T: Real>(b: Matrix<'_, T>, first: usize, panel: &mut [T]) {
    let width = panel.len() / b.rows;
    let from = &b.data[first * b.column_stride..];
    if b.column_stride == 1 {
        // By the stride and not in chunks of it: in the transpose of a single column both strides are one.
        for (row, to) in panel.chunks_exact_mut(width).enumerate() {
            to.copy_from_slice(&from[row * b.row_stride..][..width]);
        }
    } else {
        transpose(from, b.column_stride, b.rows, width, panel);
    }
}

simd! {
    /// `to` [depth, width] from the transpose, whose rows lie `stride` apart.
    pub(super) fn transpose<T: Real>(from: &[T], stride: usize, depth: usize, width: usize, to: &mut [T]) {
        for column in (0..width).step_by(SQUARE) {
            for row in (0..depth).step_by(SQUARE) {
                let from = &from[column * stride + row..];
                let to = &mut to[row * width + column..];
                if column + SQUARE <= width && row + SQUARE <= depth {
                    let mut square = [[T::ZERO; SQUARE]; SQUARE];
                    for j in 0..SQUARE {
                        square[j].copy_from_slice(&from[j * stride..][..SQUARE]);
                    }
                    for i in 0..SQUARE {
                        let to = &mut to[i * width..][..SQUARE];
                        for j in 0..SQUARE {
                            to[j] = square[j][i];
                        }
                    }
                } else {
                    for i in 0..SQUARE.min(depth - row) {
                        for j in 0..SQUARE.min(width - column) {
                            to[i * width + j] = from[j * stride + i];
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::gemm::gemm_plain;
    use super::*;
    use crate::cpu::testing::{assert_follows, cpu, noise, unwritten, wide};

    /// Shapes (rows, depth, columns): one panel and several, whole and not, one sum and several.
    const SHAPES: [(usize, usize, usize); 7] =
        [(1, 1, 1), (5, 1, 70), (5, 7, 3), (48, 64, 128), (48, 100, 150), (1, 700, 70), (31, 1100, 65)];

    fn matches_the_plain_loop<T: Real>(tolerance: f64) {
        for (rows, depth, columns) in SHAPES {
            let (x, b) = (noise::<T>(1, rows * depth), noise::<T>(2, depth * columns));
            let (wide_x, wide_b) = (wide(&x), wide(&b));
            let wide_x = Matrix::new(&wide_x, rows, depth, depth);
            let as_it_lies = (Matrix::new(&b, depth, columns, columns), Matrix::new(&wide_b, depth, columns, columns));
            let across = (Matrix::new(&b, columns, depth, depth), Matrix::new(&wide_b, columns, depth, depth));
            for (b, wide_b) in [as_it_lies, (across.0.transposed(), across.1.transposed())] {
                let mut y = unwritten::<T>(rows * columns);
                Panels::new(&cpu(), b).multiply(&x, &mut y);
                let mut plain = vec![0.0; y.len()];
                gemm_plain(MatrixMut::new(&mut plain, rows, columns, columns), false, 1.0, wide_x, wide_b);
                assert_follows(&y, &plain, tolerance);
            }
        }
    }

    #[test]
    fn products_with_panels_match_the_plain_loop() {
        matches_the_plain_loop::<f64>(1e-12);
        matches_the_plain_loop::<f32>(1e-4);
    }

    #[test]
    fn the_bits_of_a_row_do_not_depend_on_the_rows_beside_it() {
        // The last panel has six columns, or one.
        for (depth, columns) in [(700, 70), (700, 65)] {
            let (x, b) = (noise::<f32>(1, ROWS * depth), noise::<f32>(2, depth * columns));
            let panels = Panels::new(&cpu(), Matrix::new(&b, depth, columns, columns));
            let mut all = unwritten::<f32>(ROWS * columns);
            panels.multiply(&x, &mut all);
            for rows in 1..ROWS {
                let mut some = unwritten::<f32>(rows * columns);
                panels.multiply(&x[..rows * depth], &mut some);
                assert!(some == all[..some.len()], "{rows} rows of {columns} columns");
            }
        }
    }
}
