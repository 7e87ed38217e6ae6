//! Prototypes, the cross-entropy over them, and the vMF log-normaliser's way into g.

use super::Gradient::{Added, Returned};
use super::{Gradient, check, check_loss, device, held, normal};
use crate::{Tensor, ops};

#[test]
fn logits_differentiate_by_embedding_magnitude_and_direction() {
    let d = device();
    // Nine prototypes with magnitudes of either sign.
    check(
        vec![normal(&d, 1, &[4, 5]), normal(&d, 2, &[9, 1]), normal(&d, 3, &[9, 5])],
        |t| ops::prototype_logits(&t[0], &t[1], &t[2]).raw,
        |t, d_raw| {
            let mut logits = ops::prototype_logits(&t[0], &t[1], &t[2]);
            logits.raw.copy_from(d_raw);
            let (mut dg, mut dv) = (held(&t[1]), held(&t[2]));
            let dy = ops::prototype_logits_backward(&t[0], &t[1], &t[2], logits, &mut dg, &mut dv);
            vec![Returned(dy), Added(dg), Added(dv)]
        },
    );
}

#[test]
fn the_slope_of_the_log_normaliser_is_its_derivative_for_either_sign_of_g() {
    let d = device();
    let normalizer = vmf::LogNormalizer::<f64>::new(16).unwrap();
    check(
        vec![normal(&d, 1, &[7, 1])],
        |t| ops::vmf_log_normalizer(&t[0], 0.1, &normalizer).0,
        |t, dy| {
            let slope = ops::vmf_log_normalizer(&t[0], 0.1, &normalizer).1.to_f64();
            let dg: Vec<f64> = slope.iter().zip(&dy.to_f64()).map(|(s, d)| s * d).collect();
            vec![Returned(dy.device().from_f64(&[7, 1], &dg))]
        },
    );
}

/// Teacher distributions: rows that sum to one.
fn distributions(seed: u64, rows: usize, count: usize) -> Tensor {
    let d = device();
    ops::softmax(&normal(&d, seed, &[rows, count]), 1.5, &d.zeros(&[count]))
}

#[test]
fn cross_entropy_differentiates_by_logits_and_shift() {
    let d = device();
    let (scale, weights) = (1.7, [0.3, 0.8, 0.5, -0.2]);
    let targets = distributions(5, 3, 6);
    let targets_of = [vec![2], vec![0, 1], vec![], vec![1, 2]];
    let (raw, shift) = (normal(&d, 1, &[4, 6]), normal(&d, 2, &[6]));
    let mut d_raw = raw.duplicate();
    ops::cross_entropy(&mut d_raw, scale, &shift, &targets, &targets_of, &weights);
    let d_shift = ops::column_sums(&d_raw);
    let scaled: Vec<f64> = d_raw.to_f64().iter().map(|d| scale * d).collect();
    d_raw.copy_from_f64(&scaled);
    check_loss(
        vec![raw, shift],
        |t| {
            let losses = ops::cross_entropy(&mut t[0].duplicate(), scale, &t[1], &targets, &targets_of, &weights);
            losses.iter().zip(weights).map(|(loss, weight)| weight * loss).sum()
        },
        vec![Returned(d_raw), Returned(d_shift)],
    );
}

/// The student's loss and the gradients of (y, g, v), as losses.md section 3 puts it together.
fn student(t: &[Tensor], tau: f64, centre: &Tensor, targets: &Tensor, vmf: bool) -> (f64, Vec<Gradient>) {
    let targets_of = [vec![0, 1], vec![1], vec![0]];
    let weight = 0.25;
    let (mut shift, slope) = if vmf {
        let normalizer = vmf::LogNormalizer::<f64>::new(16).unwrap();
        ops::vmf_log_normalizer(&t[1], tau, &normalizer)
    } else {
        (t[0].device().zeros(&[t[1].len()]), t[0].device().zeros(&[t[1].len()]))
    };
    let centred: Vec<f64> = shift.to_f64().iter().zip(&centre.to_f64()).map(|(s, c)| s - c).collect();
    shift.copy_from_f64(&centred);
    let mut logits = ops::prototype_logits(&t[0], &t[1], &t[2]);
    let losses = ops::cross_entropy(&mut logits.raw, 1.0 / tau, &shift, targets, &targets_of, &[weight; 3]);
    let (mut dg, mut dv) = (held(&t[1]), held(&t[2]));
    logits.hold_gradient_of_scaled(1.0 / tau);
    if vmf {
        ops::add_shift_gradient(&logits.raw, &slope, &mut dg);
    }
    let dy = ops::prototype_logits_backward(&t[0], &t[1], &t[2], logits, &mut dg, &mut dv);
    (weight * losses.iter().sum::<f64>(), vec![Returned(dy), Added(dg), Added(dv)])
}

#[test]
fn the_loss_differentiates_into_y_g_and_v_with_and_without_the_log_normaliser() {
    let d = device();
    let (tau, centre, targets) = (0.3, normal(&d, 4, &[5]), distributions(5, 2, 5));
    for vmf in [false, true] {
        let inputs = vec![normal(&d, 1, &[3, 16]), normal(&d, 2, &[5, 1]), normal(&d, 3, &[5, 16])];
        let (_, gradients) = student(&inputs, tau, &centre, &targets, vmf);
        check_loss(inputs, |t| student(t, tau, &centre, &targets, vmf).0, gradients);
    }
}

#[test]
fn a_function_of_mean_probabilities_differentiates_by_logits() {
    let d = device();
    let (scale, weight, raw, shift) = (1.7, 0.4, normal(&d, 1, &[4, 6]), normal(&d, 2, &[6]));
    let slope = normal(&d, 3, &[6]);
    let d_logits = ops::softmax_gradient(&raw, scale, &shift, &slope, weight);
    let d_raw = d.from_f64(&[4, 6], &d_logits.to_f64().iter().map(|d| scale * d).collect::<Vec<_>>());
    let d_shift = ops::column_sums(&d_logits);
    let value = |t: &[Tensor]| {
        let p = ops::softmax(&t[0], scale, &t[1]).to_f64();
        weight * p.iter().zip(slope.to_f64().iter().cycle()).map(|(p, s)| p * s).sum::<f64>()
    };
    check_loss(vec![raw, shift.duplicate()], value, vec![Returned(d_raw), Returned(d_shift)]);
}
