//! The residual stream: adding a branch to the rows that took it, and reading its gradient back.

use rayon::prelude::*;

use super::layer_norm::scattered_mut;
use super::{Cpu, Real, one_task_each, split_mut, starts, vector};
use crate::rows::Rows;
use simd::simd;

simd! {
    fn add_branch<T: Real>(stream: &[T], branch: &[T], bias: &[T], scale: T, out: &mut [T]) {
        let dim = bias.len();
        let rows = out.chunks_exact_mut(dim).zip(stream.chunks_exact(dim)).zip(branch.chunks_exact(dim));
        for ((out, stream), branch) in rows {
            for (((out, &x), &branch), &bias) in out.iter_mut().zip(stream).zip(branch).zip(bias) {
                *out = (branch + bias).mul_add(scale, x);
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

/// `out = stream`, with `scale (branch + bias)` added to the named rows; the rows that drop path left out pass through.
pub(crate) fn add<T: Real>(cpu: &Cpu, stream: &[T], rows: &Rows, scale: f64, branch: &[T], bias: &[T], out: &mut [T]) {
    let dim = bias.len();
    // Rows that take the branch and the gaps between them, in turn.
    let mut lengths = Vec::with_capacity(2 * rows.segments() + 1);
    let mut at = 0;
    for s in 0..rows.segments() {
        lengths.extend([rows.start(s) - at, rows.segment_len(s)]);
        at = rows.start(s) + rows.segment_len(s);
    }
    lengths.push(rows.source_rows() - at);
    let starts = starts(&lengths);
    let pieces = split_mut(out, lengths.iter().map(|l| l * dim));
    cpu.install(|| {
        one_task_each(pieces).for_each(|(i, out)| {
            let stream = &stream[starts[i] * dim..][..out.len()];
            if i.is_multiple_of(2) {
                out.copy_from_slice(stream);
            } else {
                let branch = &branch[rows.offsets()[i / 2] * dim..][..out.len()];
                add_branch(stream, branch, bias, T::from_f64(scale), out);
            }
        });
    });
}

/// `x[rows] = value`.
pub(crate) fn fill_rows<T: Real>(x: &mut [T], rows: &Rows, value: &[T]) {
    let dim = value.len();
    for s in 0..rows.segments() {
        let piece = &mut x[rows.start(s) * dim..][..rows.segment_len(s) * dim];
        piece.chunks_exact_mut(dim).for_each(|row| row.copy_from_slice(value));
    }
}

/// `compact = scale x[rows]`.
pub(crate) fn gather<T: Real>(cpu: &Cpu, x: &[T], rows: &Rows, dim: usize, scale: f64, compact: &mut [T]) {
    let pieces = split_mut(compact, (0..rows.segments()).map(|s| rows.segment_len(s) * dim));
    cpu.install(|| {
        one_task_each(pieces).for_each(|(s, piece)| {
            copy_scaled(&x[rows.start(s) * dim..][..piece.len()], T::from_f64(scale), piece);
        });
    });
}

/// `x[rows] += scale compact`.
pub(crate) fn scatter_add<T: Real>(cpu: &Cpu, compact: &[T], rows: &Rows, dim: usize, scale: f64, x: &mut [T]) {
    let pieces = scattered_mut(x, rows, dim);
    cpu.install(|| {
        one_task_each(pieces).for_each(|(s, piece)| {
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
            let (mut added, mut scattered, mut gathered) = (unwritten(x.len()), x.clone(), unwritten(compact.len()));
            add(&cpu(), &x, &rows, scale, &compact, &bias, &mut added);
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
