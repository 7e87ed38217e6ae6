//! Softmax over prototypes, and the two centres that are made from teacher logits.
//!
//! Logits are `scale * raw + shift_k` throughout: 1 / tau and the log-normaliser, less the centre.

use rayon::prelude::*;

use super::{Cpu, Real, vector};
use simd::simd;

/// Columns of one task.
const COLUMNS_PER_TASK: usize = 1024;

simd! {
    /// Probabilities of one row; returns the log of the sum of exponentials.
    fn row<T: Real>(raw: &[T], scale: T, shift: &[T], out: &mut [T]) -> T {
        let max = vector::max_of_pairs(raw, shift, |x, s| x.mul_add(scale, s));
        for ((out, &x), &s) in out.iter_mut().zip(raw).zip(shift) {
            *out = (x.mul_add(scale, s) - max).exp();
        }
        let sum = vector::sum_of(out, |x| x);
        let inverse = T::ONE / sum;
        for out in out.iter_mut() {
            *out *= inverse;
        }
        max + T::from_f64(sum.to_f64().ln())
    }
}

simd! {
    /// ln sum_k exp(scale x_k + shift_k) of one row.
    pub(super) fn log_sum_exp<T: Real>(raw: &[T], scale: T, shift: &[T]) -> T {
        let max = vector::max_of_pairs(raw, shift, |x, s| x.mul_add(scale, s));
        let sum = vector::sum_of_pairs(raw, shift, |x, s| (x.mul_add(scale, s) - max).exp());
        max + T::from_f64(sum.to_f64().ln())
    }
}

simd! {
    /// The entropy -sum_k p_k ln p_k and the index of the largest p_k.
    fn summary<T: Real>(p: &[T]) -> (T, usize) {
        let mut best = 0;
        let mut negative_entropy = 0.0;
        for (k, &x) in p.iter().enumerate() {
            if x > p[best] {
                best = k;
            }
            // Not `x > 0`: a NaN must reach the sum.
            if x != T::ZERO {
                negative_entropy += x.to_f64() * x.to_f64().ln();
            }
        }
        (T::from_f64(-negative_entropy), best)
    }
}

/// Softmax of every row.
pub(crate) fn forward<T: Real>(cpu: &Cpu, raw: &[T], scale: f64, shift: &[T], out: &mut [T]) {
    let columns = shift.len();
    cpu.install(|| {
        raw.par_chunks(columns).zip(out.par_chunks_mut(columns)).for_each(|(raw, out)| {
            row(raw, T::from_f64(scale), shift, out);
        });
    });
}

simd! {
    /// Probabilities to weight p (slope - sum p slope).
    fn towards<T: Real>(p: &mut [T], slope: &[T], weight: T) {
        let mean = vector::sum_of_pairs(p, slope, |p, s| p * s);
        for (p, &s) in p.iter_mut().zip(slope) {
            *p *= weight * (s - mean);
        }
    }
}

/// The gradient with respect to `scale raw + shift` of `weight` times the sum over rows of sum_k slope_k p_k.
pub(crate) fn gradient<T: Real>(
    cpu: &Cpu,
    raw: &[T],
    scale: f64,
    shift: &[T],
    slope: &[T],
    weight: f64,
    out: &mut [T],
) {
    let columns = shift.len();
    cpu.install(|| {
        raw.par_chunks(columns).zip(out.par_chunks_mut(columns)).for_each(|(raw, out)| {
            row(raw, T::from_f64(scale), shift, out);
            towards(out, slope, T::from_f64(weight));
        });
    });
}

/// Entropy of every row, and where its largest probability is.
pub(crate) fn summaries<T: Real>(cpu: &Cpu, probabilities: &[T], columns: usize) -> Vec<(f64, usize)> {
    cpu.install(|| {
        probabilities
            .par_chunks(columns)
            .map(|p| {
                let (entropy, best) = summary(p);
                (entropy.to_f64(), best)
            })
            .collect()
    })
}

/// out_k = ln mean_b softmax(scale raw_b + shift)_k, in the log domain: the mean itself may underflow.
pub(crate) fn log_mean<T: Real>(cpu: &Cpu, raw: &[T], scale: f64, shift: &[T], out: &mut [T]) {
    let columns = shift.len();
    let rows = raw.len() / columns;
    let scale = T::from_f64(scale);
    cpu.install(|| {
        let lse: Vec<T> = raw.par_chunks(columns).map(|raw| log_sum_exp(raw, scale, shift)).collect();
        out.par_chunks_mut(COLUMNS_PER_TASK).enumerate().for_each(|(task, out)| {
            let first = task * COLUMNS_PER_TASK;
            let here = first..first + out.len();
            let mut max = vec![T::LOWEST; out.len()];
            for b in 0..rows {
                largest_log_probability(
                    &raw[b * columns..][here.clone()],
                    scale,
                    &shift[here.clone()],
                    lse[b],
                    &mut max,
                );
            }
            out.fill(T::ZERO);
            for b in 0..rows {
                add_exp(&raw[b * columns..][here.clone()], scale, &shift[here.clone()], lse[b], &max, out);
            }
            for (out, &max) in out.iter_mut().zip(&max) {
                *out = max + T::from_f64((out.to_f64() / rows as f64).ln());
            }
        });
    });
}

simd! {
    fn largest_log_probability<T: Real>(raw: &[T], scale: T, shift: &[T], lse: T, max: &mut [T]) {
        for ((m, &x), &s) in max.iter_mut().zip(raw).zip(shift) {
            *m = (x.mul_add(scale, s) - lse).larger(*m);
        }
    }
}

simd! {
    fn add_exp<T: Real>(raw: &[T], scale: T, shift: &[T], lse: T, max: &[T], sum: &mut [T]) {
        for (((sum, &x), &s), &m) in sum.iter_mut().zip(raw).zip(shift).zip(max) {
            *sum += (x.mul_add(scale, s) - lse - m).exp();
        }
    }
}

/// Softmax of every row by its definition: the oracle.
#[cfg(test)]
pub(super) fn softmax_plain(raw: &[f64], scale: f64, shift: &[f64]) -> Vec<f64> {
    let one = |raw: &[f64]| {
        let logits: Vec<f64> = raw.iter().zip(shift).map(|(x, s)| scale * x + s).collect();
        let max = logits.iter().fold(f64::NEG_INFINITY, |m, &l| m.max(l));
        let sum: f64 = logits.iter().map(|l| (l - max).exp()).sum();
        logits.iter().map(|l| (l - max).exp() / sum).collect::<Vec<f64>>()
    };
    raw.chunks(shift.len()).flat_map(one).collect()
}

/// The logarithm of the mean itself, right where the mean does not underflow: the oracle.
#[cfg(test)]
fn log_mean_plain(raw: &[f64], scale: f64, shift: &[f64]) -> Vec<f64> {
    let (p, columns) = (softmax_plain(raw, scale, shift), shift.len());
    let rows = raw.len() / columns;
    (0..columns).map(|k| ((0..rows).map(|b| p[b * columns + k]).sum::<f64>() / rows as f64).ln()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{assert_follows, cpu, noise, unwritten, wide};

    fn matches_the_plain_form<T: Real>(rows: usize, columns: usize, tolerance: f64) {
        let (raw, shift) = (noise::<T>(1, rows * columns), noise::<T>(2, columns));
        let scale = 2.5;
        let mut p = unwritten(rows * columns);
        forward(&cpu(), &raw, scale, &shift, &mut p);
        let plain = softmax_plain(&wide(&raw), scale, &wide(&shift));
        assert_follows(&p, &plain, tolerance);

        let mut mean = unwritten(columns);
        log_mean(&cpu(), &raw, scale, &shift, &mut mean);
        assert_follows(&mean, &log_mean_plain(&wide(&raw), scale, &wide(&shift)), tolerance);

        for (row, (entropy, best)) in p.chunks(columns).zip(summaries(&cpu(), &p, columns)) {
            let row = wide(row);
            let want: f64 = -row.iter().map(|p| p * p.ln()).sum::<f64>();
            assert!((entropy - want).abs() < tolerance * want.max(1.0), "{entropy} {want}");
            assert!(row.iter().all(|&p| p <= row[best]));
        }
    }

    #[test]
    fn softmax_log_mean_and_summaries_match_the_plain_form() {
        for (rows, columns) in [(1, 1), (3, 7), (64, 33), (5, 2500)] {
            matches_the_plain_form::<f64>(rows, columns, 1e-12);
            matches_the_plain_form::<f32>(rows, columns, 1e-6);
        }
    }

    #[test]
    fn probabilities_that_underflow_keep_their_logarithm() {
        // Logits 0 and -2000: the second probability is zero in any precision, its logarithm is -2000.
        let (mut p, mut mean) = ([f32::NAN; 4], [f32::NAN; 2]);
        let raw = [0.0f32, -200.0, 0.0, -200.0];
        forward(&cpu(), &raw, 10.0, &[0.0; 2], &mut p);
        log_mean(&cpu(), &raw, 10.0, &[0.0; 2], &mut mean);
        assert_eq!((p, mean), ([1.0, 0.0, 1.0, 0.0], [0.0, -2000.0]));
        assert_eq!(summaries(&cpu(), &p, 2), [(0.0, 0), (0.0, 0)]);
    }

    #[test]
    fn a_nan_in_a_row_shows_in_every_probability_of_it() {
        let mut p = [0.0f32; 6];
        forward(&cpu(), &[0.0, f32::NAN, 1.0, 0.0, 0.0, 0.0], 1.0, &[0.0; 3], &mut p);
        assert!(p[..3].iter().all(|p| p.is_nan()) && p[3..].iter().all(|p| p.is_finite()));
    }
}
