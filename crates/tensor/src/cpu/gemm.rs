//! Matrix products, by the `gemm` crate, behind checked views.
//!
//! The crate sums over the inner dimension in blocks whose size depends on the shape and the machine's caches alone,
//! so the number of threads does not change a bit (a test holds it to that).

use super::Real;

/// A matrix somewhere in a slice: element (i, j) is `data[i * row_stride + j * column_stride]`.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a, T> {
    pub(super) data: &'a [T],
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) row_stride: usize,
    pub(super) column_stride: usize,
}

impl<'a, T: Real> Matrix<'a, T> {
    /// A row-major matrix with `row_stride` elements from row to row.
    pub(crate) fn new(data: &'a [T], rows: usize, columns: usize, row_stride: usize) -> Self {
        check(data.len(), rows, columns, row_stride);
        Self { data, rows, columns, row_stride, column_stride: 1 }
    }

    /// The transpose, without moving anything.
    pub(crate) fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// A row-major matrix to be written.
pub(crate) struct MatrixMut<'a, T> {
    data: &'a mut [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
}

impl<'a, T: Real> MatrixMut<'a, T> {
    pub(crate) fn new(data: &'a mut [T], rows: usize, columns: usize, row_stride: usize) -> Self {
        check(data.len(), rows, columns, row_stride);
        Self { data, rows, columns, row_stride }
    }
}

fn check(len: usize, rows: usize, columns: usize, row_stride: usize) {
    assert!(rows <= 1 || row_stride >= columns, "rows of {columns} elements overlap at stride {row_stride}");
    let needed = if rows == 0 || columns == 0 { 0 } else { (rows - 1) * row_stride + columns };
    assert!(len >= needed, "a {rows}x{columns} matrix of stride {row_stride} needs {needed} elements, not {len}");
}

/// How many threads of the current pool a product may use: all, or its part where several run beside each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    All,
    AtMost(usize),
    One,
}

/// `out = scale * a * b`, or `out += scale * a * b` where `accumulate`.
pub(crate) fn gemm<T: Real>(
    out: MatrixMut<'_, T>,
    accumulate: bool,
    scale: T,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    threads: Threads,
) {
    let (m, n, k) = (out.rows, out.columns, a.columns);
    assert_eq!((a.rows, b.columns, b.rows), (m, n, k), "shapes of a matrix product");
    if m == 0 || n == 0 {
        return;
    }
    let threads = match threads {
        // Below a few hundred thousand operations the hand-over costs more than it saves.
        _ if m * n * k <= 1 << 19 => 1,
        Threads::All => rayon::current_num_threads(),
        Threads::AtMost(most) => most,
        Threads::One => 1,
    };
    let parallelism = if threads > 1 { gemm::Parallelism::Rayon(threads) } else { gemm::Parallelism::None };
    let out_scale = if accumulate { T::ONE } else { T::ZERO };
    // SAFETY: the constructors of the views have checked that every (row, column) of the three matrices lies in its
    // slice, and `out` is borrowed mutably with rows that do not overlap.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.data.as_mut_ptr(),
            1,
            out.row_stride as isize,
            accumulate,
            a.data.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            out_scale,
            scale,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// The same, element by element: the oracle.
#[cfg(test)]
pub(crate) fn gemm_plain<T: Real>(
    out: MatrixMut<'_, T>,
    accumulate: bool,
    scale: T,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
) {
    for i in 0..out.rows {
        for j in 0..out.columns {
            let mut sum = T::ZERO;
            for l in 0..a.columns {
                sum += a.data[i * a.row_stride + l * a.column_stride] * b.data[l * b.row_stride + j * b.column_stride];
            }
            let o = &mut out.data[i * out.row_stride + j];
            *o = if accumulate { *o + scale * sum } else { scale * sum };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{assert_close, noise};

    #[test]
    fn products_of_strided_and_transposed_views_match_the_plain_loop() {
        for (m, n, k) in [(1, 1, 1), (3, 5, 7), (17, 33, 64), (65, 130, 200), (2, 300, 1), (40, 1, 90)] {
            let (a, b) = (noise::<f64>(1, m * (k + 3)), noise::<f64>(2, n * (k + 2)));
            let mut fast = noise::<f64>(3, m * (n + 1));
            let mut plain = fast.clone();
            let (a, b) = (Matrix::new(&a, m, k, k + 3), Matrix::new(&b, n, k, k + 2).transposed());
            for accumulate in [false, true] {
                gemm(MatrixMut::new(&mut fast, m, n, n + 1), accumulate, 0.7, a, b, Threads::One);
                gemm_plain(MatrixMut::new(&mut plain, m, n, n + 1), accumulate, 0.7, a, b);
                assert_close(&fast, &plain, 1e-13);
            }
        }
    }

    #[test]
    fn an_empty_sum_is_zero() {
        let mut out = vec![f64::NAN; 6];
        gemm(
            MatrixMut::new(&mut out, 2, 3, 3),
            false,
            1.0,
            Matrix::new(&[], 2, 0, 0),
            Matrix::new(&[], 0, 3, 3),
            Threads::One,
        );
        assert_eq!(out, [0.0; 6]);
    }

    #[test]
    fn the_number_of_threads_does_not_change_a_bit() {
        let shapes =
            [(788, 576, 192), (96, 4096, 256), (576, 192, 788), (300, 96, 1500), (16, 65536, 64), (192, 192, 3408)];
        for (m, n, k) in shapes {
            let (a, b) = (noise::<f32>(1, m * k), noise::<f32>(2, n * k));
            let runs: Vec<Vec<f32>> = [1, 2, 3, 4]
                .map(|threads| {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                    let mut out = vec![0.0; m * n];
                    pool.install(|| {
                        let (a, b) = (Matrix::new(&a, m, k, k), Matrix::new(&b, n, k, k).transposed());
                        gemm(MatrixMut::new(&mut out, m, n, n), false, 1.0, a, b, Threads::All);
                    });
                    out
                })
                .into();
            assert!(runs.iter().all(|r| r == &runs[0]), "{m}x{n}x{k}");
        }
    }
}
