//! Rows scaled to unit length.

use rayon::prelude::*;

use super::{Cpu, ROWS_PER_TASK, Real, vector};
use simd::simd;

simd! {
    fn forward_rows<T: Real>(x: &[T], dim: usize, epsilon: T, y: &mut [T], norms: &mut [T]) {
        for (r, (x, y)) in x.chunks_exact(dim).zip(y.chunks_exact_mut(dim)).enumerate() {
            let norm = vector::dot(x, x).sqrt().larger(epsilon);
            let inverse = T::ONE / norm;
            for (y, &x) in y.iter_mut().zip(x) {
                *y = x * inverse;
            }
            norms[r] = norm;
        }
    }
}

simd! {
    fn backward_rows<T: Real>(y: &[T], norms: &[T], dim: usize, epsilon: T, dy: &[T], dx: &mut [T]) {
        for (r, ((y, dy), dx)) in y.chunks_exact(dim).zip(dy.chunks_exact(dim)).zip(dx.chunks_exact_mut(dim)).enumerate() {
            let inverse = T::ONE / norms[r];
            // Below epsilon the forward pass divided by a constant, so nothing flows through the norm.
            let along = if norms[r] > epsilon { vector::dot(y, dy) } else { T::ZERO };
            for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
                *dx = (dy - y * along) * inverse;
            }
        }
    }
}

/// `y = x / max(|x|, epsilon)` row by row.
pub(crate) fn forward<T: Real>(cpu: &Cpu, x: &[T], dim: usize, epsilon: f64, y: &mut [T], norms: &mut [T]) {
    let task = ROWS_PER_TASK * dim;
    cpu.install(|| {
        (x.par_chunks(task), y.par_chunks_mut(task), norms.par_chunks_mut(ROWS_PER_TASK))
            .into_par_iter()
            .for_each(|(x, y, norms)| forward_rows(x, dim, T::from_f64(epsilon), y, norms));
    });
}

/// `dx = (dy - y <y, dy>) / |x|`.
pub(crate) fn backward<T: Real>(cpu: &Cpu, y: &[T], norms: &[T], dim: usize, epsilon: f64, dy: &[T], dx: &mut [T]) {
    let task = ROWS_PER_TASK * dim;
    cpu.install(|| {
        (y.par_chunks(task), norms.par_chunks(ROWS_PER_TASK), dy.par_chunks(task), dx.par_chunks_mut(task))
            .into_par_iter()
            .for_each(|(y, norms, dy, dx)| backward_rows(y, norms, dim, T::from_f64(epsilon), dy, dx));
    });
}

/// Rows over max(|row|, epsilon): the oracle.
#[cfg(test)]
fn normalize_plain(x: &[f64], dim: usize, epsilon: f64) -> (Vec<f64>, Vec<f64>) {
    let norms: Vec<f64> = x.chunks(dim).map(|x| x.iter().map(|x| x * x).sum::<f64>().sqrt().max(epsilon)).collect();
    (x.iter().enumerate().map(|(i, x)| x / norms[i / dim]).collect(), norms)
}

/// dx_j = sum_i dy_i dy_i/dx_j with y_i = x_i / |x|, or x_i / epsilon below it: the oracle.
#[cfg(test)]
fn normalize_backward_plain(x: &[f64], dim: usize, epsilon: f64, dy: &[f64]) -> Vec<f64> {
    let mut dx = vec![0.0; x.len()];
    for r in 0..x.len() / dim {
        let (x, dy) = (&x[r * dim..][..dim], &dy[r * dim..][..dim]);
        let norm = x.iter().map(|x| x * x).sum::<f64>().sqrt();
        for i in 0..dim {
            for j in 0..dim {
                let through_norm = if norm > epsilon { x[i] * x[j] / norm.powi(3) } else { 0.0 };
                let direct = if i == j { 1.0 / norm.max(epsilon) } else { 0.0 };
                dx[r * dim + j] += dy[i] * (direct - through_norm);
            }
        }
    }
    dx
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{assert_follows, cpu, noise, unwritten, wide};

    fn matches_the_plain_form<T: Real>(dim: usize, tolerance: f64) {
        let rows = 130;
        let (mut x, dy) = (noise::<T>(1, rows * dim), noise::<T>(2, rows * dim));
        x[3 * dim..4 * dim].fill(T::ZERO);
        x[5 * dim..6 * dim].iter_mut().for_each(|x| *x *= T::from_f64(1e-4));
        let epsilon = 0.01;
        let (mut y, mut norms, mut dx) = (unwritten(rows * dim), unwritten(rows), unwritten(rows * dim));
        forward(&cpu(), &x, dim, epsilon, &mut y, &mut norms);
        let (plain, plain_norms) = normalize_plain(&wide(&x), dim, epsilon);
        assert_follows(&y, &plain, tolerance);
        assert_follows(&norms, &plain_norms, tolerance);
        backward(&cpu(), &y, &norms, dim, epsilon, &dy, &mut dx);
        assert_follows(&dx, &normalize_backward_plain(&wide(&x), dim, epsilon, &wide(&dy)), tolerance);
    }

    #[test]
    fn unit_length_and_its_derivative_match_the_plain_form() {
        for dim in [1, 7, 64] {
            matches_the_plain_form::<f64>(dim, 1e-12);
            matches_the_plain_form::<f32>(dim, 1e-6);
        }
    }

    #[test]
    fn a_row_of_zeros_stays_zero_at_the_smallest_epsilon_in_use() {
        let (mut y, mut norms) = ([f32::NAN; 4], [f32::NAN]);
        forward(&cpu(), &[0.0f32; 4], 4, 1e-12, &mut y, &mut norms);
        assert_eq!((y, norms), ([0.0; 4], [1e-12]));
    }
}
