//! What must hold of prototypes, centre and loss whatever the numbers are.

use random::{Key, Purpose};
use tensor::{CpuOptions, Device, Precision, Tensor, ops};

fn device(precision: Precision) -> Device {
    Device::cpu(CpuOptions { threads: Some(2), precision }).unwrap()
}

fn normal(device: &Device, seed: u64, shape: &[usize]) -> Tensor {
    let mut stream = Key::new(seed, Purpose::Bench).stream();
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| stream.normal() as f32).collect();
    device.from_f32(shape, &values)
}

#[track_caller]
fn assert_close(got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= tolerance, "element {i}: {got} is not {want}");
    }
}

/// The log-domain centre of a teacher whose prototypes all have magnitude 40, at temperature 0.04 and K = 65536; and
/// its probabilities.
fn sharp_teacher(precision: Precision) -> (Vec<f64>, Tensor) {
    const K: usize = 65536;
    const DIM: usize = 32;
    let (d, tau) = (device(precision), 0.04);
    let (y, _) = ops::l2_normalize(&normal(&d, 1, &[12, DIM]), 1e-12);
    let mut direction = normal(&d, 2, &[K, DIM]).to_f32();
    // The first rows lie on prototypes and on the opposite of others: the largest and the smallest logits there are.
    let on = y.to_f32();
    direction[..DIM].copy_from_slice(&on[..DIM]);
    (0..DIM).for_each(|c| direction[DIM + c] = -on[DIM + c]);
    let (g, v) = (d.from_f64(&[K, 1], &vec![40.0; K]), d.from_f32(&[K, DIM], &direction));
    let raw = ops::prototype_logits(&y, &g, &v).raw;
    let (shift, _) = ops::vmf_log_normalizer(&g, tau, &vmf::LogNormalizer::new(DIM).unwrap());
    let centre = ops::log_mean_softmax(&raw, 1.0 / tau, &shift).to_f64();
    (centre, ops::softmax(&raw, 1.0 / tau, &shift))
}

#[test]
fn the_centre_of_a_sharp_teacher_is_finite_where_its_mean_underflows() {
    let (centre, probabilities) = sharp_teacher(Precision::F32);
    let means = ops::column_sums(&probabilities).to_f64();
    let underflown = means.iter().filter(|&&m| m == 0.0).count();
    assert!(underflown > 1000, "the case is sharp enough to need the log domain: {underflown}");
    assert!(centre.iter().all(|c| c.is_finite()));
    // Logits reach 1000, where single precision has steps of 6e-5.
    assert_close(&centre, &sharp_teacher(Precision::F64).0, 1e-3);
    let total: f64 = centre.iter().map(|c| c.exp()).sum();
    assert!((total - 1.0).abs() < 1e-4, "the centre is a distribution: {total}");
}

#[test]
fn the_centre_of_a_mild_teacher_is_the_logarithm_of_the_mean() {
    for (precision, tolerance) in [(Precision::F64, 1e-12), (Precision::F32, 1e-5)] {
        let d = device(precision);
        let (raw, shift) = (normal(&d, 1, &[96, 2000]), normal(&d, 2, &[2000]));
        let sums = ops::column_sums(&ops::softmax(&raw, 2.0, &shift)).to_f64();
        let naive: Vec<f64> = sums.iter().map(|s| (s / 96.0).ln()).collect();
        assert_close(&ops::log_mean_softmax(&raw, 2.0, &shift).to_f64(), &naive, tolerance);
    }
}

#[test]
fn two_halves_of_a_batch_combine_to_the_centre_of_the_whole() {
    for (precision, tolerance) in [(Precision::F64, 1e-12), (Precision::F32, 1e-5)] {
        let d = device(precision);
        let (raw, shift) = (normal(&d, 1, &[30, 500]), normal(&d, 2, &[500]));
        let centre = |rows: std::ops::Range<usize>| {
            let part = d.from_f64(&[rows.len(), 500], &raw.to_f64()[rows.start * 500..rows.end * 500]);
            ops::log_mean_softmax(&part, 30.0, &shift).to_f64()
        };
        // Uneven halves: each counts by its rows.
        let (first, second) = (centre(0..10), centre(10..30));
        let combined: Vec<f64> = first
            .iter()
            .zip(&second)
            .map(|(a, b)| {
                let (a, b) = (a + (10.0 / 30.0f64).ln(), b + (20.0 / 30.0f64).ln());
                a.max(b) + (-(a - b).abs()).exp().ln_1p()
            })
            .collect();
        assert_close(&centre(0..30), &combined, tolerance * 30.0);
        let mut joined = d.exact_from_f64(&[500], &first);
        ops::log_mean_with(&mut joined, 10.0 / 30.0, &d.exact_from_f64(&[500], &second));
        assert_close(&joined.to_f64(), &combined, tolerance);
    }
}

#[test]
fn a_constant_added_to_the_shift_changes_neither_probabilities_nor_loss_nor_gradient() {
    let d = device(Precision::F64);
    let (raw, shift) = (normal(&d, 1, &[6, 300]), normal(&d, 2, &[300]));
    let moved = d.from_f64(&[300], &shift.to_f64().iter().map(|s| s - 690.0).collect::<Vec<_>>());
    let targets = ops::softmax(&normal(&d, 3, &[2, 300]), 4.0, &d.zeros(&[300]));
    let targets_of: Vec<Vec<usize>> = (0..6).map(|r| if r < 2 { vec![1 - r] } else { vec![0, 1] }).collect();
    let [one, other] = [&shift, &moved].map(|shift| {
        let mut gradient = raw.duplicate();
        let losses = ops::cross_entropy(&mut gradient, 10.0, shift, &targets, &targets_of, &[0.1; 6]);
        let centre = ops::log_mean_softmax(&raw, 10.0, shift).to_f64();
        [ops::softmax(&raw, 10.0, shift).to_f64(), losses, gradient.to_f64(), centre]
    });
    for (one, other) in one.iter().zip(&other) {
        assert_close(one, other, 1e-11);
    }
}

#[test]
fn prototypes_of_one_length_have_the_same_probabilities_with_and_without_the_log_normaliser() {
    let d = device(Precision::F64);
    let (y, v) = (normal(&d, 1, &[5, 32]), normal(&d, 2, &[70, 32]));
    let g = d.from_f64(&[70, 1], &[1.0; 70]);
    let raw = ops::prototype_logits(&y, &g, &v).raw;
    let (shift, _) = ops::vmf_log_normalizer(&g, 0.1, &vmf::LogNormalizer::new(32).unwrap());
    assert!(shift.to_f64()[0] < -1.0, "the normaliser is not zero");
    let (with, without) = (ops::softmax(&raw, 10.0, &shift), ops::softmax(&raw, 10.0, &d.zeros(&[70])));
    assert_close(&with.to_f64(), &without.to_f64(), 1e-13);
}

#[test]
fn equal_prototypes_get_an_equal_centre() {
    let d = device(Precision::F64);
    let (count, dim) = (61, 32);
    let (y, g, v) = (normal(&d, 1, &[9, dim]), normal(&d, 2, &[count, 1]), normal(&d, 3, &[count, dim]));
    // Prototype 60 repeats 4; the length of v is no part of a prototype, so it may differ.
    let (mut g, mut v) = (g.to_f64(), v.to_f64());
    g[60] = g[4];
    (0..dim).for_each(|c| v[60 * dim + c] = 3.0 * v[4 * dim + c]);
    let (g, v) = (d.from_f64(&[count, 1], &g), d.from_f64(&[count, dim], &v));
    let raw = ops::prototype_logits(&y, &g, &v).raw;
    let (shift, _) = ops::vmf_log_normalizer(&g, 0.04, &vmf::LogNormalizer::new(dim).unwrap());
    for centre in [ops::log_mean_softmax(&raw, 25.0, &shift), ops::column_mean(&raw, 25.0, &shift)] {
        let centre = centre.to_f64();
        assert!((centre[4] - centre[60]).abs() < 1e-11, "{} {}", centre[4], centre[60]);
        assert!((centre[4] - centre[5]).abs() > 1e-3, "others differ");
    }
}

#[test]
fn a_centre_moves_by_its_momentum_towards_a_target_no_lower_than_its_floor() {
    let d = device(Precision::F64);
    let target = d.from_f64(&[3], &[1.0, -2.0, -100.0]);
    for (floor, want) in [(None, [0.91, -0.65, -10.45]), (Some(-5.0), [0.91, -0.65, -0.95])] {
        let mut centre = d.from_f64(&[3], &[0.9, -0.5, -0.5]);
        ops::move_towards(&mut centre, &target, 0.9, floor);
        assert_close(&centre.to_f64(), &want, 1e-14);
    }
}

#[test]
fn a_floor_holds_a_centre_against_minus_infinity_and_does_not_hide_nan() {
    let d = device(Precision::F32);
    let target = d.from_f64(&[2], &[f64::NEG_INFINITY, f64::NAN]);
    for floor in [None, Some(-8.0)] {
        let mut centre = d.zeros(&[2]);
        ops::move_towards(&mut centre, &target, 0.5, floor);
        let centre = centre.to_f64();
        assert_eq!(centre[0], floor.map_or(f64::NEG_INFINITY, |f| 0.5 * f));
        assert!(centre[1].is_nan(), "{centre:?}");
    }
}

#[test]
fn a_centre_is_taken_off_a_shift_element_by_element() {
    let d = device(Precision::F64);
    let (shift, centre) = (d.from_f64(&[3], &[1.0, 2.0, 3.0]), d.from_f64(&[3], &[10.0, 20.0, -30.0]));
    assert_eq!(ops::add_scaled(&shift, -0.5, &centre).to_f64(), [-4.0, -8.0, 18.0]);
    assert_eq!(shift.to_f64(), [1.0, 2.0, 3.0], "the inputs stay as they are");
}
