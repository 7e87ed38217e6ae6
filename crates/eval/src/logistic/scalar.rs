//! The two precisions that the data pass computes in, and the product of matrices behind it.

use std::ops::{Add, Mul, Sub};

use rayon::prelude::*;
use simd::simd;

/// f32, for speed, or f64, for verification.
pub(super) trait Scalar:
    Copy + Send + Sync + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + 'static
{
    /// Zero.
    const ZERO: Self;
    /// A logit that no exponential survives.
    const LOWEST: Self;
    fn of(value: f64) -> Self;
    fn wide(self) -> f64;
    /// e^x for x <= 0.
    fn exp_of_negative(self) -> Self;
}

impl Scalar for f64 {
    const ZERO: Self = 0.0;
    const LOWEST: Self = -1e30;
    #[inline(always)]
    fn of(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
    #[inline(always)]
    fn exp_of_negative(self) -> Self {
        self.exp()
    }
}

impl Scalar for f32 {
    const ZERO: Self = 0.0;
    const LOWEST: Self = -1e30;
    #[inline(always)]
    fn of(value: f64) -> Self {
        value as f32
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
    /// 2^n e^r with |r| <= ln 2 / 2 and the Taylor polynomial of degree 7 (its next term is below 6e-9): without a branch,
    /// so that loops over it become vector code.
    #[inline(always)]
    fn exp_of_negative(self) -> Self {
        // ln 2 as a sum whose first part has few digits, so that n times it is exact.
        const LN2_HIGH: f32 = 0.693_359_4;
        const LN2_LOW: f32 = -2.121_944_4e-4;
        // Adding and taking away 1.5 * 2^23 rounds to the nearest integer, which is left in the low bits.
        const ROUND: f32 = 12_582_912.0;
        let x = if self > -87.0 { self } else { -87.0 };
        let shifted = x * std::f32::consts::LOG2_E + ROUND;
        let n = shifted - ROUND;
        let r = (x - n * LN2_HIGH) - n * LN2_LOW;
        let mut p = 1.0 / 5040.0;
        for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
            p = p * r + coefficient;
        }
        let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
        if self > -87.0 { p * power } else { 0.0 }
    }
}

/// A matrix somewhere in a slice: element (i, j) is `data[i * row_stride + j * column_stride]`.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a, T> {
    data: &'a [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a, T> Matrix<'a, T> {
    /// All of `data`, row by row.
    ///
    /// # Panics
    /// When `data` has another size.
    pub(super) fn new(data: &'a [T], rows: usize, columns: usize) -> Self {
        assert_eq!(data.len(), rows * columns, "a matrix of {rows} x {columns}");
        Self { data, rows, columns, row_stride: columns, column_stride: 1 }
    }

    /// The transpose, without moving anything.
    pub(super) fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// `out = a b` on one thread; `out` is written column by column.
///
/// # Panics
/// When the shapes do not fit each other.
pub(super) fn product<T: Scalar>(out: &mut [T], a: Matrix<'_, T>, b: Matrix<'_, T>) {
    let (m, n, k) = (a.rows, b.columns, a.columns);
    assert_eq!((b.rows, out.len()), (k, m * n), "shapes of a matrix product");
    if m == 0 || n == 0 {
        return;
    }
    // SAFETY: the views' constructor has checked that every (row, column) lies in its slice, a transpose keeps that, and
    // `out` is borrowed mutably and has m * n elements.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            m as isize,
            1,
            false,
            a.data.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            T::ZERO,
            T::of(1.0),
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// `sums += values`, in f64.
pub(super) fn add_to<T: Scalar>(sums: &mut [f64], values: &[T]) {
    simd! {
        fn add<T: Scalar>(sums: &mut [f64], values: &[T]) {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value.wide();
            }
        }
    }
    add(sums, values);
}

/// Maps pieces of work to sums of `size` values, and adds those up in the order of the pieces, whoever was done first.
/// Only so many at once that they fit into [`PARTIAL_BYTES`]; how many depends on the size alone.
pub(super) fn sum_in_order<P: Sync>(pieces: &[P], size: usize, work: impl Fn(&P, &mut [f64]) + Sync) -> Vec<f64> {
    let at_once = (PARTIAL_BYTES / (8 * size.max(1))).clamp(2, 64);
    let mut sums = vec![0.0; size];
    for wave in pieces.chunks(at_once) {
        let partial = |piece: &P| {
            let mut partial = vec![0.0; size];
            work(piece, &mut partial);
            partial
        };
        let partials: Vec<Vec<f64>> = wave.par_iter().map(partial).collect();
        partials.iter().for_each(|partial| add_to(&mut sums, partial));
    }
    sums
}

/// What the sums of pieces may take together.
const PARTIAL_BYTES: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_in_f32_is_that_of_f64() {
        for i in 0..870_000 {
            let x = -(i as f32) * 1e-4;
            let (got, want) = (f64::from(x.exp_of_negative()), f64::from(x).exp());
            assert!((got / want - 1.0).abs() < 3e-7, "e^{x}: {got:e} {want:e}");
        }
        assert_eq!([-88.0, -1e30, f32::NEG_INFINITY].map(f32::exp_of_negative), [0.0; 3]);
        assert_eq!(0f32.exp_of_negative(), 1.0);
    }

    #[test]
    fn products_are_written_column_by_column() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 0.5, -1.0, 2.0, 0.0, 3.0]);
        let mut out = [0.0; 4];
        product::<f64>(&mut out, Matrix::new(&a, 2, 3), Matrix::new(&b, 2, 3).transposed());
        assert_eq!(out, [-1.0, 0.5, 11.0, 26.0]);
    }

    #[test]
    fn sums_do_not_depend_on_threads_or_waves() {
        let pieces: Vec<usize> = (0..1000).collect();
        let work = |&piece: &usize, sums: &mut [f64]| sums[piece % 3] += 1.0 / (1.0 + piece as f64);
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| sum_in_order(&pieces, 3, work))
        };
        assert_eq!(run(1), run(3));
        assert!((run(2).iter().sum::<f64>() - 7.485_470_860_550_345).abs() < 1e-12);
    }
}
