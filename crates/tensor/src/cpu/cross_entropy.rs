//! Cross-entropy of student rows against teacher distributions over K prototypes, fused with its gradient.
//!
//! One pass over a row while it is in the cache: the log-sum-exp, the loss against each of its targets, and the
//! gradient written over the logits. Nothing of size [rows, K] is made besides the logits themselves.

use rayon::prelude::*;

use super::softmax::log_sum_exp;
use super::{Cpu, Real, vector};
use simd::simd;

simd! {
    /// -sum_k q_k ln p_k = lse sum_k q_k - sum_k q_k l_k, with l = scale raw + shift.
    fn loss<T: Real>(raw: &[T], scale: T, shift: &[T], lse: T, target: &[T]) -> T {
        vector::sum_of_triples(raw, shift, target, |x, s, q| q * (lse - x.mul_add(scale, s)))
    }
}

simd! {
    /// Logits to probabilities times `weight`.
    fn weighted_probabilities<T: Real>(raw: &mut [T], scale: T, shift: &[T], lse: T, weight: T) {
        for (x, &s) in raw.iter_mut().zip(shift) {
            *x = (x.mul_add(scale, s) - lse).exp() * weight;
        }
    }
}

simd! {
    fn subtract<T: Real>(x: &mut [T], weight: T, target: &[T]) {
        vector::axpy(x, -weight, target);
    }
}

/// For each row r: losses[r] = sum over its targets of the cross-entropy; the logits become the gradient with respect
/// to `scale raw + shift` of the sum of `weights[r] losses[r]`.
pub(crate) fn forward_backward<T: Real>(
    cpu: &Cpu,
    raw: &mut [T],
    scale: f64,
    shift: &[T],
    targets: &[T],
    targets_of: &[Vec<usize>],
    weights: &[f64],
) -> Vec<f64> {
    let columns = shift.len();
    let scale = T::from_f64(scale);
    cpu.install(|| {
        raw.par_chunks_mut(columns)
            .zip(targets_of)
            .zip(weights)
            .map(|((raw, targets_of), &weight)| {
                let weight = T::from_f64(weight);
                let lse = log_sum_exp(raw, scale, shift);
                let target = |&t: &usize| &targets[t * columns..(t + 1) * columns];
                let total = targets_of.iter().map(|t| loss(raw, scale, shift, lse, target(t)).to_f64()).sum();
                let pairs = T::from_f64(targets_of.len() as f64);
                weighted_probabilities(raw, scale, shift, lse, weight * pairs);
                for t in targets_of {
                    subtract(raw, weight, target(t));
                }
                total
            })
            .collect()
    })
}

/// Losses by their definition, -sum_k q_k ln p_k, and the gradient weight (p - q) of each pair: the oracle.
#[cfg(test)]
fn cross_entropy_plain(
    raw: &[f64],
    scale: f64,
    shift: &[f64],
    targets: &[f64],
    targets_of: &[Vec<usize>],
    weights: &[f64],
) -> (Vec<f64>, Vec<f64>) {
    let columns = shift.len();
    let p = super::softmax::softmax_plain(raw, scale, shift);
    let (mut losses, mut gradient) = (vec![0.0; targets_of.len()], vec![0.0; raw.len()]);
    for (r, targets_of) in targets_of.iter().enumerate() {
        for t in targets_of {
            for k in 0..columns {
                let (p, q) = (p[r * columns + k], targets[t * columns + k]);
                losses[r] -= q * p.ln();
                gradient[r * columns + k] += weights[r] * (p - q);
            }
        }
    }
    (losses, gradient)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::softmax::softmax_plain;
    use crate::cpu::testing::{assert_follows, cpu, noise, wide};

    fn matches_the_plain_form<T: Real>(columns: usize, tolerance: f64) {
        let (raw, shift) = (noise::<T>(1, 5 * columns), noise::<T>(2, columns));
        let flat = vec![0.0; columns];
        let targets: Vec<T> =
            softmax_plain(&noise::<f64>(3, 3 * columns), 3.0, &flat).into_iter().map(T::from_f64).collect();
        let targets_of = [vec![0], vec![2, 1], vec![], vec![1], vec![0, 1, 2]];
        let (scale, weights) = (10.0, [0.125, 0.5, 1.0, 0.0, 2.0]);
        let mut gradient = raw.clone();
        let losses = forward_backward(&cpu(), &mut gradient, scale, &shift, &targets, &targets_of, &weights);
        let plain = cross_entropy_plain(&wide(&raw), scale, &wide(&shift), &wide(&targets), &targets_of, &weights);
        assert_follows(&losses, &plain.0, tolerance);
        assert_follows(&gradient, &plain.1, tolerance);
        assert!(
            gradient[2 * columns..3 * columns].iter().all(|&g| g == T::ZERO),
            "a row without targets has no gradient"
        );
        assert!(gradient[3 * columns..4 * columns].iter().all(|&g| g == T::ZERO), "nor has one without weight");
    }

    #[test]
    fn losses_and_gradient_match_the_plain_form() {
        for columns in [1, 6, 33, 3000] {
            matches_the_plain_form::<f64>(columns, 1e-12);
            matches_the_plain_form::<f32>(columns, 1e-5);
        }
    }

    #[test]
    fn a_student_equal_to_its_teacher_pays_the_entropy_and_has_no_gradient() {
        let (raw, shift) = (noise::<f64>(1, 2 * 50), noise::<f64>(2, 50));
        let targets = softmax_plain(&raw, 4.0, &shift);
        let mut gradient = raw.clone();
        let losses = forward_backward(&cpu(), &mut gradient, 4.0, &shift, &targets, &[vec![0], vec![1]], &[1.0; 2]);
        let entropy = |q: &[f64]| -q.iter().map(|q| q * q.ln()).sum::<f64>();
        assert_follows(&losses, &[entropy(&targets[..50]), entropy(&targets[50..])], 1e-13);
        assert_follows(&gradient, &[0.0; 100], 1e-14);
    }

    #[test]
    fn a_probability_that_underflows_costs_its_logit_and_not_infinity() {
        let mut raw = [0.0f32, -300.0];
        let losses = forward_backward(&cpu(), &mut raw, 10.0, &[0.0; 2], &[0.5f32, 0.5], &[vec![0]], &[1.0]);
        assert_eq!((losses[0], raw), (1500.0, [0.5, -0.5]));
    }
}
