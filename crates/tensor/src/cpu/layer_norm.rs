//! LayerNorm over the columns of some rows, and its derivative.

use rayon::prelude::*;

use super::{Cpu, Real, one_task_each, split_mut, vector};
use crate::rows::Rows;
use simd::simd;

simd! {
    /// Normalises rows; writes output, mean and reciprocal standard deviation of each.
    fn forward_rows<T: Real>(x: &[T], weight: &[T], bias: &[T], epsilon: T, y: &mut [T], mean: &mut [T], rstd: &mut [T]) {
        let dim = weight.len();
        let inverse = T::ONE / T::from_f64(dim as f64);
        for (r, (x, y)) in x.chunks_exact(dim).zip(y.chunks_exact_mut(dim)).enumerate() {
            let m = vector::sum_of(x, |x| x) * inverse;
            let variance = vector::sum_of(x, |x| (x - m) * (x - m)) * inverse;
            let s = T::ONE / (variance + epsilon).sqrt();
            for (((y, &x), &w), &b) in y.iter_mut().zip(x).zip(weight).zip(bias) {
                *y = ((x - m) * s).mul_add(w, b);
            }
            (mean[r], rstd[r]) = (m, s);
        }
    }
}

simd! {
    /// `dx += d LayerNorm`, and partial sums of the parameters' gradients (weight first, then bias).
    fn backward_rows<T: Real>(x: &[T], mean: &[T], rstd: &[T], weight: &[T], dy: &[T], dx: &mut [T], partial: &mut [T]) {
        let dim = weight.len();
        let inverse = T::ONE / T::from_f64(dim as f64);
        let (d_weight, d_bias) = partial.split_at_mut(dim);
        for (r, ((x, dy), dx)) in x.chunks_exact(dim).zip(dy.chunks_exact(dim)).zip(dx.chunks_exact_mut(dim)).enumerate() {
            let (m, s) = (mean[r], rstd[r]);
            // With g = dy * w and h = (x - m) s:  dx = s (g - mean(g) - h mean(g h)).
            let g_mean = vector::sum_of_pairs(dy, weight, |dy, w| dy * w) * inverse;
            let gh = vector::sum_of_triples(dy, weight, x, |dy, w, x| (dy * w) * ((x - m) * s));
            let gh_mean = gh * inverse;
            for (((dx, &x), &dy), &w) in dx.iter_mut().zip(x).zip(dy).zip(weight) {
                let h = (x - m) * s;
                *dx += s * (dy * w - g_mean - h * gh_mean);
            }
            for ((dw, &x), &dy) in d_weight.iter_mut().zip(x).zip(dy) {
                *dw = dy.mul_add((x - m) * s, *dw);
            }
            vector::add(d_bias, dy);
        }
    }
}

/// y (compact) = LayerNorm of the named rows of x.
pub(crate) fn forward<T: Real>(
    cpu: &Cpu,
    x: &[T],
    rows: &Rows,
    weight: &[T],
    bias: &[T],
    epsilon: f64,
    y: &mut [T],
    mean: &mut [T],
    rstd: &mut [T],
) {
    let dim = weight.len();
    let lengths = || (0..rows.segments()).map(|s| rows.segment_len(s));
    let y = split_mut(y, lengths().map(|l| l * dim));
    let (mean, rstd) = (split_mut(mean, lengths()), split_mut(rstd, lengths()));
    cpu.install(|| {
        one_task_each((y, mean, rstd)).for_each(|(s, (y, mean, rstd))| {
            let x = &x[rows.start(s) * dim..][..y.len()];
            forward_rows(x, weight, bias, T::from_f64(epsilon), y, mean, rstd);
        });
    });
}

/// Adds the gradient of the named rows to dx, and those of the parameters to theirs.
pub(crate) fn backward<T: Real>(
    cpu: &Cpu,
    x: &[T],
    rows: &Rows,
    mean: &[T],
    rstd: &[T],
    weight: &[T],
    dy: &[T],
    dx: &mut [T],
    d_weight: &mut [T],
    d_bias: &mut [T],
) {
    let dim = weight.len();
    let pieces = scattered_mut(dx, rows, dim);
    let partials: Vec<Vec<T>> = cpu.install(|| {
        one_task_each(pieces)
            .map(|(s, dx)| {
                let compact = rows.offsets()[s]..rows.offsets()[s + 1];
                let x = &x[rows.start(s) * dim..][..dx.len()];
                let dy = &dy[compact.start * dim..compact.end * dim];
                let mut partial = vec![T::ZERO; 2 * dim];
                backward_rows(x, &mean[compact.clone()], &rstd[compact], weight, dy, dx, &mut partial);
                partial
            })
            .collect()
    });
    for partial in &partials {
        add(d_weight, &partial[..dim]);
        add(d_bias, &partial[dim..]);
    }
}

simd! {
    fn add<T: Real>(y: &mut [T], x: &[T]) {
        vector::add(y, x);
    }
}

/// The named segments of a large matrix, each to be written by its own task.
pub(super) fn scattered_mut<'a, T>(large: &'a mut [T], rows: &Rows, dim: usize) -> Vec<&'a mut [T]> {
    let mut rest = large;
    let mut consumed = 0;
    let mut pieces = Vec::with_capacity(rows.segments());
    for s in 0..rows.segments() {
        let (_, tail) = rest.split_at_mut((rows.start(s) - consumed) * dim);
        let (piece, tail) = tail.split_at_mut(rows.segment_len(s) * dim);
        pieces.push(piece);
        rest = tail;
        consumed = rows.start(s) + rows.segment_len(s);
    }
    pieces
}

/// LayerNorm of every row, one after another: the oracle.
#[cfg(test)]
fn layer_norm_plain(x: &[f64], weight: &[f64], bias: &[f64], epsilon: f64) -> Vec<f64> {
    let dim = weight.len() as f64;
    let one = |x: &[f64]| {
        let mean = x.iter().sum::<f64>() / dim;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / dim;
        let affine = |(i, x): (usize, &f64)| (x - mean) / (variance + epsilon).sqrt() * weight[i] + bias[i];
        x.iter().enumerate().map(affine).collect::<Vec<f64>>()
    };
    x.chunks(weight.len()).flat_map(one).collect()
}

/// Gradients of input, weight and bias from the textbook Jacobian dh_i/dx_j = s (d_ij - 1/n - h_i h_j / n): the oracle.
#[cfg(test)]
fn layer_norm_backward_plain(x: &[f64], weight: &[f64], epsilon: f64, dy: &[f64]) -> [Vec<f64>; 3] {
    let dim = weight.len();
    let n = dim as f64;
    let (mut dx, mut dw, mut db) = (vec![0.0; x.len()], vec![0.0; dim], vec![0.0; dim]);
    for r in 0..x.len() / dim {
        let row = &x[r * dim..(r + 1) * dim];
        let mean = row.iter().sum::<f64>() / n;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let s = 1.0 / (variance + epsilon).sqrt();
        let hat: Vec<f64> = row.iter().map(|x| (x - mean) * s).collect();
        for i in 0..dim {
            let d = dy[r * dim + i];
            dw[i] += d * hat[i];
            db[i] += d;
            for j in 0..dim {
                let same = if i == j { 1.0 } else { 0.0 };
                dx[r * dim + j] += d * weight[i] * s * (same - 1.0 / n - hat[i] * hat[j] / n);
            }
        }
    }
    [dx, dw, db]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{assert_follows, cpu, noise, unwritten, wide};

    fn matches_the_plain_form<T: Real>(dim: usize, tolerance: f64) {
        let rows = Rows::all([3, 1, 50]);
        let n = rows.count();
        // Far from zero mean, as a residual stream is.
        let x: Vec<T> = noise::<T>(1, n * dim).iter().map(|&x| x + T::from_f64(3.0)).collect();
        let (weight, bias, dy) = (noise::<T>(2, dim), noise::<T>(3, dim), noise::<T>(4, n * dim));
        let (mut y, mut mean, mut rstd) = (unwritten(n * dim), unwritten(n), unwritten(n));
        forward(&cpu(), &x, &rows, &weight, &bias, 1e-6, &mut y, &mut mean, &mut rstd);
        assert_follows(&y, &layer_norm_plain(&wide(&x), &wide(&weight), &wide(&bias), 1e-6), tolerance);

        let (mut dx, mut dw, mut db) = (vec![T::ZERO; n * dim], vec![T::ZERO; dim], vec![T::ZERO; dim]);
        backward(&cpu(), &x, &rows, &mean, &rstd, &weight, &dy, &mut dx, &mut dw, &mut db);
        let plain = layer_norm_backward_plain(&wide(&x), &wide(&weight), 1e-6, &wide(&dy));
        for (got, want) in [dx, dw, db].iter().zip(&plain) {
            assert_follows(got, want, tolerance);
        }
    }

    #[test]
    fn layer_norm_and_its_derivative_match_the_plain_form() {
        for dim in [5, 32, 192, 197] {
            matches_the_plain_form::<f64>(dim, 1e-12);
            matches_the_plain_form::<f32>(dim, 1e-5);
        }
    }

    #[test]
    fn rows_left_out_are_neither_read_nor_touched() {
        let (all, dim) = (Rows::all([2, 3, 1]), 4);
        let rows = all.keep(&[true, false, true]);
        let mut x = noise::<f64>(1, 24);
        x[8..20].fill(f64::NAN);
        let (weight, bias) = (noise::<f64>(2, dim), noise::<f64>(3, dim));
        let (mut y, mut mean, mut rstd) = (unwritten(12), unwritten(3), unwritten(3));
        forward(&cpu(), &x, &rows, &weight, &bias, 1e-6, &mut y, &mut mean, &mut rstd);
        let kept = [&x[..8], &x[20..]].concat();
        assert_follows(&y, &layer_norm_plain(&kept, &weight, &bias, 1e-6), 1e-12);
        let mut dx = vec![7.0; 24];
        backward(&cpu(), &x, &rows, &mean, &rstd, &weight, &y, &mut dx, &mut [0.0; 4], &mut [0.0; 4]);
        assert_eq!(dx[8..20], [7.0; 12]);
        assert!(dx[..8].iter().chain(&dx[20..]).all(|d| d.is_finite() && *d != 7.0));
    }

    #[test]
    fn a_constant_row_becomes_the_bias() {
        let (mut y, mut mean, mut rstd) = (unwritten::<f32>(33), unwritten(1), unwritten(1));
        let (x, bias) = (vec![0.1f32; 33], noise::<f32>(3, 33));
        forward(&cpu(), &x, &Rows::all([1]), &[1.0; 33], &bias, 1e-6, &mut y, &mut mean, &mut rstd);
        // What is left is the rounding of the mean times 1 / sqrt(epsilon).
        assert_follows(&y, &wide(&bias), 1e-4);
    }
}
