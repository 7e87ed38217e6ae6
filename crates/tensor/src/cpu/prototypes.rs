//! Weight-normalised prototypes: logits <w_k, y> with w_k = g_k v_k / |v_k|.
//!
//! At K = 65536 the prototypes are the largest tensor of the network. They are never normalised in memory: the product is
//! taken with v itself, and its columns are scaled by g_k / |v_k|.

use rayon::prelude::*;

use super::gemm::{Matrix, MatrixMut, Threads, gemm};
use super::{Cpu, ELEMENTS_PER_TASK, Real, linear, vector};
use simd::simd;

/// Prototypes of one task. A fixed number, for the same bits on any number of threads.
const PER_TASK: usize = 512;

simd! {
    fn inverse_norms<T: Real>(v: &[T], dim: usize, out: &mut [T]) {
        for (v, out) in v.chunks_exact(dim).zip(out) {
            *out = T::ONE / vector::dot(v, v).sqrt();
        }
    }
}

simd! {
    fn multiply<T: Real>(x: &mut [T], a: &[T], b: &[T]) {
        for ((x, &a), &b) in x.iter_mut().zip(a).zip(b) {
            *x *= a * b;
        }
    }
}

simd! {
    /// From dw (the gradient of w_k) to those of g and v:  dg = <dw, v^>,  dv = g / |v| (dw - <dw, v^> v^).
    fn through_weight_norm<T: Real>(dw: &[T], v: &[T], dim: usize, g: &[T], inverse: &[T], dg: &mut [T], dv: &mut [T]) {
        for (k, ((dw, v), dv)) in dw.chunks_exact(dim).zip(v.chunks_exact(dim)).zip(dv.chunks_exact_mut(dim)).enumerate() {
            let along = vector::dot(dw, v) * inverse[k];
            dg[k] += along;
            let (scale, back) = (g[k] * inverse[k], along * inverse[k]);
            for ((dv, &dw), &v) in dv.iter_mut().zip(dw).zip(v) {
                *dv = (dw - back * v).mul_add(scale, *dv);
            }
        }
    }
}

/// logits [rows, K] and 1 / |v_k|.
pub(crate) fn forward<T: Real>(cpu: &Cpu, y: &[T], g: &[T], v: &[T], dim: usize, logits: &mut [T], inverse: &mut [T]) {
    linear::forward(cpu, y, v, None, dim, logits);
    cpu.install(|| {
        v.par_chunks(PER_TASK * dim)
            .zip(inverse.par_chunks_mut(PER_TASK))
            .for_each(|(v, inverse)| inverse_norms(v, dim, inverse));
        logits.par_chunks_mut(g.len()).for_each(|row| multiply(row, g, inverse));
    });
}

/// Gradients of y (written), g and v (added), from that of `scale` times the logits. Uses up `d_logits`: it holds the
/// gradient of <v_k, y> afterwards.
pub(crate) fn backward<T: Real>(
    cpu: &Cpu,
    y: &[T],
    g: &[T],
    v: &[T],
    inverse: &[T],
    dim: usize,
    d_logits: &mut [T],
    scale: T,
    dy: &mut [T],
    dg: &mut [T],
    dv: &mut [T],
) {
    let (rows, count) = (y.len() / dim, g.len());
    cpu.install(|| {
        if scale != T::ONE {
            d_logits.par_chunks_mut(ELEMENTS_PER_TASK).for_each(|d| d.iter_mut().for_each(|d| *d *= scale));
        }
        // Without rows there is nothing to add, and no column of the logits to look at.
        if rows > 0 {
            let d_logits = &*d_logits;
            let tasks = (dg.par_chunks_mut(PER_TASK), dv.par_chunks_mut(PER_TASK * dim)).into_par_iter();
            tasks.enumerate().for_each_init(
                || cpu.allocate(PER_TASK * dim),
                |dw, (task, (dg, dv))| {
                    let (first, here) = (task * PER_TASK, dg.len());
                    let dw = &mut dw.as_mut_slice()[..here * dim];
                    let columns = Matrix::new(&d_logits[first..], rows, here, count).transposed();
                    let y = Matrix::new(y, rows, dim, dim);
                    gemm(MatrixMut::new(dw, here, dim, dim), false, T::ONE, columns, y, Threads::One);
                    let (v, range) = (&v[first * dim..(first + here) * dim], first..first + here);
                    through_weight_norm(dw, v, dim, &g[range.clone()], &inverse[range], dg, dv);
                },
            );
        }
        d_logits.par_chunks_mut(count).for_each(|row| multiply(row, g, inverse));
        let d = Matrix::new(d_logits, rows, count, count);
        gemm(MatrixMut::new(dy, rows, dim, dim), false, T::ONE, d, Matrix::new(v, count, dim, dim), Threads::All);
    });
}

/// g_k <v_k, y> / |v_k|, one number at a time: the oracle.
#[cfg(test)]
fn logits_plain(y: &[f64], g: &[f64], v: &[f64], dim: usize) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    y.chunks(dim).flat_map(|y| v.chunks(dim).zip(g).map(move |(v, g)| g * dot(v, y) / dot(v, v).sqrt())).collect()
}

/// Gradients of y, g and v by the chain rule, one logit at a time: the oracle.
#[cfg(test)]
fn logits_backward_plain(y: &[f64], g: &[f64], v: &[f64], dim: usize, d_logits: &[f64]) -> [Vec<f64>; 3] {
    let (mut dy, mut dg, mut dv) = (vec![0.0; y.len()], vec![0.0; g.len()], vec![0.0; v.len()]);
    for (i, d) in d_logits.iter().enumerate() {
        let (b, k) = (i / g.len(), i % g.len());
        let (y, v) = (&y[b * dim..][..dim], &v[k * dim..][..dim]);
        let norm = v.iter().map(|v| v * v).sum::<f64>().sqrt();
        let cosine: f64 = v.iter().zip(y).map(|(v, y)| v * y / norm).sum();
        dg[k] += d * cosine;
        for c in 0..dim {
            dy[b * dim + c] += d * g[k] * v[c] / norm;
            dv[k * dim + c] += d * g[k] * (y[c] - cosine * v[c] / norm) / norm;
        }
    }
    [dy, dg, dv]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{assert_follows, cpu, noise, unwritten, wide};

    fn matches_the_plain_form<T: Real>(rows: usize, count: usize, dim: usize, tolerance: f64) {
        let (y, g, v) = (noise::<T>(1, rows * dim), noise::<T>(2, count), noise::<T>(3, count * dim));
        let (mut logits, mut inverse) = (unwritten(rows * count), unwritten(count));
        forward(&cpu(), &y, &g, &v, dim, &mut logits, &mut inverse);
        assert_follows(&logits, &logits_plain(&wide(&y), &wide(&g), &wide(&v), dim), tolerance);

        let d_logits = noise::<T>(4, rows * count);
        let (mut dy, mut dg, mut dv) = (unwritten(rows * dim), vec![T::ZERO; count], vec![T::ZERO; count * dim]);
        let scale = T::from_f64(2.0);
        backward(&cpu(), &y, &g, &v, &inverse, dim, &mut d_logits.clone(), scale, &mut dy, &mut dg, &mut dv);
        let doubled: Vec<f64> = wide(&d_logits).iter().map(|d| 2.0 * d).collect();
        let plain = logits_backward_plain(&wide(&y), &wide(&g), &wide(&v), dim, &doubled);
        for (got, want) in [dy, dg, dv].iter().zip(&plain) {
            assert_follows(got, want, tolerance);
        }
    }

    #[test]
    fn logits_and_their_derivative_match_the_plain_form() {
        // The last counts fill more than one task, with and without a remainder.
        for (rows, count, dim) in [(1, 1, 1), (3, 5, 7), (20, 1024, 16), (33, 1100, 24)] {
            matches_the_plain_form::<f64>(rows, count, dim, 1e-12);
            matches_the_plain_form::<f32>(rows, count, dim, 1e-5);
        }
    }
}
