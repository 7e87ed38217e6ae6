//! The residual stream: adding a branch to the rows that took it, and reading its gradient back.

use rayon::prelude::*;

use super::layer_norm::scattered_mut;
use super::simd::simd;
use super::{Cpu, Real, split_mut, vector};
use crate::rows::Rows;

simd! {
    fn add_branch<T: Real>(x: &mut [T], branch: &[T], bias: &[T], scale: T) {
        for (x, branch) in x.chunks_exact_mut(bias.len()).zip(branch.chunks_exact(bias.len())) {
            for ((x, &branch), &bias) in x.iter_mut().zip(branch).zip(bias) {
                *x = (branch + bias).mul_add(scale, *x);
            }
        }
    }
}

simd! {
    fn copy_scaled<T: Real>(from: &[T], scale: T, to: &mut [T]) {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = from * scale;
        }
    }
}

simd! {
    fn add_scaled<T: Real>(from: &[T], scale: T, to: &mut [T]) {
        vector::axpy(to, scale, from);
    }
}

/// `x[rows] += scale (branch + bias)`; the rows that drop path left out stay as they are.
pub(crate) fn add<T: Real>(cpu: &Cpu, x: &mut [T], rows: &Rows, scale: f64, branch: &[T], bias: &[T]) {
    let dim = bias.len();
    let pieces = scattered_mut(x, rows, dim);
    cpu.install(|| {
        pieces.into_par_iter().enumerate().for_each(|(s, x)| {
            let branch = &branch[rows.offsets()[s] * dim..][..x.len()];
            add_branch(x, branch, bias, T::from_f64(scale));
        });
    });
}

/// `compact = scale x[rows]`.
pub(crate) fn gather<T: Real>(cpu: &Cpu, x: &[T], rows: &Rows, dim: usize, scale: f64, compact: &mut [T]) {
    let pieces = split_mut(compact, (0..rows.segments()).map(|s| rows.segment_len(s) * dim));
    cpu.install(|| {
        pieces.into_par_iter().enumerate().for_each(|(s, piece)| {
            copy_scaled(&x[rows.start(s) * dim..][..piece.len()], T::from_f64(scale), piece);
        });
    });
}

/// `x[rows] += scale compact`.
pub(crate) fn scatter_add<T: Real>(cpu: &Cpu, compact: &[T], rows: &Rows, dim: usize, scale: f64, x: &mut [T]) {
    let pieces = scattered_mut(x, rows, dim);
    cpu.install(|| {
        pieces.into_par_iter().enumerate().for_each(|(s, piece)| {
            add_scaled(&compact[rows.offsets()[s] * dim..][..piece.len()], T::from_f64(scale), piece);
        });
    });
}

/// Row `r` of the compact matrix lies at this row of the large one: the oracle of every move.
#[cfg(test)]
fn source_rows_plain(rows: &Rows) -> Vec<usize> {
    (0..rows.segments()).flat_map(|s| rows.start(s)..rows.start(s) + rows.segment_len(s)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{assert_follows, cpu, noise, unwritten, wide};

    fn matches_the_plain_form<T: Real>(tolerance: f64) {
        let (all, dim, scale) = (Rows::all([3, 1, 4, 2]), 37, 1.25);
        for rows in [all.clone(), all.keep(&[false, true, true, false]), all.first_of_each(), all.keep(&[false; 4])] {
            let (x, compact, bias) = (noise::<T>(1, 10 * dim), noise::<T>(2, rows.count() * dim), noise::<T>(3, dim));
            let (mut added, mut scattered, mut gathered) = (x.clone(), x.clone(), unwritten(compact.len()));
            add(&cpu(), &mut added, &rows, scale, &compact, &bias);
            scatter_add(&cpu(), &compact, &rows, dim, scale, &mut scattered);
            gather(&cpu(), &x, &rows, dim, scale, &mut gathered);
            let (mut want_added, mut want_scattered, mut want_gathered) = (wide(&x), wide(&x), Vec::new());
            for (r, &source) in source_rows_plain(&rows).iter().enumerate() {
                for (c, bias) in bias.iter().enumerate() {
                    let (large, small) = (source * dim + c, r * dim + c);
                    want_added[large] += scale * (compact[small].to_f64() + bias.to_f64());
                    want_scattered[large] += scale * compact[small].to_f64();
                    want_gathered.push(scale * x[large].to_f64());
                }
            }
            assert_follows(&added, &want_added, tolerance);
            assert_follows(&scattered, &want_scattered, tolerance);
            assert_follows(&gathered, &want_gathered, tolerance);
        }
    }

    #[test]
    fn rows_move_between_the_large_and_the_compact_matrix() {
        matches_the_plain_form::<f64>(1e-15);
        matches_the_plain_form::<f32>(1e-6);
    }
}
