//! Certainty against `tests/fixtures/certainty.json`, written by `tools/oracle/certainty.py` with mpmath, NumPy and
//! scikit-learn; and what it is of votes.

mod common;

use std::ops::ControlFlow;

use common::{expected, hash, identity_head};
use eval::certainty::{Certainty, Describer, Score, auroc, calibration, risk_coverage, scores};
use eval::mixture::{self, prototype_mixture};
use eval::prototypes::{Choice, PrototypeKind, assign};
use eval::{EvalError, Features, Place, knn};
use model::weights::LoadedHead;
use serde_json::Value;
use tensor::{CpuOptions, Device, Precision};

fn device(precision: Precision, threads: usize) -> Device {
    Device::cpu(CpuOptions { threads: Some(threads), precision }).unwrap()
}

fn size(golden: &Value, key: &str) -> usize {
    golden[key].as_u64().unwrap() as usize
}

/// The closed forms of the script: directions, lengths and features.
fn closed_forms(golden: &Value) -> (Vec<f64>, Vec<f64>, Features) {
    let (k, p, images) = (size(golden, "k"), size(golden, "p"), size(golden, "features"));
    let single = |x: f64| f64::from(x as f32);
    let directions: Vec<f64> = (0..k * p).map(|i| single(hash(20, i as u64))).collect();
    let mut lengths: Vec<f64> = (0..k).map(|k| single(0.02 * 1.45_f64.powi(k as i32))).collect();
    lengths[3] = -lengths[3];
    let value = |i: usize| (hash(21, i as u64) + 2.0 * directions[(i / p) % k * p + i % p]) as f32;
    let features = Features::labelled(p, (0..images * p).map(value).collect(), &vec![0; images]);
    (directions, lengths, features)
}

fn described(
    head: &LoadedHead,
    kind: PrototypeKind,
    features: &Features,
    device: &Device,
) -> Result<Vec<Certainty>, EvalError> {
    let describer = Describer::new(head, kind, 0.07, device)?;
    describer.describe(features, device, &mut |_, _| ControlFlow::Continue(()))
}

#[test]
fn densities_entropies_and_components_are_those_of_fifty_digits() {
    let golden = expected("certainty.json");
    let (directions, lengths, features) = closed_forms(&golden);
    for (precision, tolerance) in [(Precision::F64, 1e-12), (Precision::F32, 2e-5)] {
        let device = device(precision, 2);
        let head = identity_head(&device, features.dim, &directions, &lengths);
        for (kind, key) in [(PrototypeKind::Vmf, "vmf"), (PrototypeKind::Plain, "plain")] {
            let found = described(&head, kind, &features, &device).unwrap();
            for (i, (found, want)) in found.iter().zip(golden[key].as_array().unwrap()).enumerate() {
                let number = |key: &str| want[key].as_f64().unwrap();
                // Relative to the largest exponent, which is about 150.
                let is_near = |ours: f64, theirs: f64| (ours - theirs).abs() < tolerance * 150.0;
                assert_eq!(u64::from(found.component), want["component"].as_u64().unwrap(), "{key} {i}");
                assert!(is_near(found.entropy, number("entropy")), "{key} {i}: {found:?} {want}");
                match kind {
                    PrototypeKind::Plain => assert_eq!((found.kappa, found.log_density), (None, None)),
                    PrototypeKind::Vmf => {
                        assert!(is_near(found.log_density.unwrap(), number("log_density")), "{i}: {found:?} {want}");
                        assert!((found.kappa.unwrap() / number("kappa") - 1.0).abs() < 1e-6);
                    }
                }
            }
        }
    }
}

#[test]
fn it_is_the_density_of_the_mixture_and_the_entropy_of_the_assignments() {
    let golden = expected("certainty.json");
    let (directions, lengths, features) = closed_forms(&golden);
    let device = device(Precision::F32, 2);
    let head = identity_head(&device, features.dim, &directions, &lengths);
    let found = described(&head, PrototypeKind::Vmf, &features, &device).unwrap();
    let single = |values: &[f64]| values.iter().map(|&x| x as f32).collect::<Vec<f32>>();
    let mixture = prototype_mixture(features.dim, &single(&directions), &single(&lengths), 0.07).unwrap();
    let score = mixture::score(&mixture, &features, &device).unwrap();
    let components: Vec<usize> = found.iter().map(|certainty| certainty.component as usize).collect();
    assert_eq!(components, score.components);
    let mean = |of: &dyn Fn(&Certainty) -> f64| found.iter().map(of).sum::<f64>() / found.len() as f64;
    assert!((mean(&|certainty| certainty.log_density.unwrap()) - score.log_likelihood).abs() < 1e-5);
    // That of assignments has the paper's approximation of the log-normaliser.
    let mut go_on = |_: usize, _: usize| ControlFlow::Continue(());
    let assigned = assign(&head, Choice::new(PrototypeKind::Vmf, 0.07), &features, &device, &mut go_on).unwrap();
    assert!((mean(&|certainty| certainty.entropy) - assigned.entropy).abs() < 1e-2);
}

#[test]
fn areas_and_calibration_are_those_of_scikit_learn_and_numpy() {
    let golden = expected("certainty.json");
    let (images, tied) = (size(&golden, "images"), size(&golden, "tied"));
    let u = |stream: u64| (0..images).map(|i| hash(stream, i as u64)).collect::<Vec<f64>>();
    // To even, as NumPy rounds halves.
    let quantised = |stream: u64| u(stream).iter().map(|x| (8.0 * x).round_ties_even() / 8.0).collect::<Vec<f64>>();
    let score = quantised(22);
    let other: Vec<f64> = quantised(23).iter().map(|x| x - 0.25).collect();
    let probabilities: Vec<f64> = u(24).iter().map(|x| (1.0 + x) / 2.0).collect();
    let right: Vec<bool> = u(25).iter().zip(&probabilities).map(|(x, c)| x < c).collect();
    let is_near = |ours: f64, key: &str| (ours - golden[key].as_f64().unwrap()).abs() < 1e-12;
    let risk = risk_coverage(&probabilities, &right, 10).unwrap();
    assert!(is_near(risk.aurc, "aurc") && is_near(risk.excess, "excess"), "{risk:?}");
    assert!(is_near(risk_coverage(&score[..tied], &right[..tied], 3).unwrap().aurc, "aurc_tied"));
    assert!(is_near(calibration(&probabilities, &right, 15).error, "ece"));
    assert!(is_near(auroc(&score, &other).unwrap(), "auroc"));
}

#[test]
fn threads_change_no_bit_and_what_cannot_be_described_is_refused() {
    let golden = expected("certainty.json");
    let (directions, lengths, features) = closed_forms(&golden);
    let (one, three) = (device(Precision::F32, 1), device(Precision::F32, 3));
    let of = |device: &Device| {
        let head = identity_head(device, features.dim, &directions, &lengths);
        described(&head, PrototypeKind::Vmf, &features, device).unwrap()
    };
    assert_eq!(of(&one), of(&three));
    let head = identity_head(&one, features.dim, &directions, &lengths);
    for tau in [0.0, -1.0, f64::NAN] {
        let refused = Describer::new(&head, PrototypeKind::Vmf, tau, &one);
        assert!(matches!(refused, Err(EvalError::Setting { setting: "temperature", .. })));
    }
    let mut broken = features.clone();
    broken.values[3 * features.dim] = f32::NAN;
    let error = described(&head, PrototypeKind::Vmf, &broken, &one).unwrap_err();
    assert!(error.to_string().contains("the feature of image 3 is not finite"), "{error}");
    let wide = Features::labelled(features.dim + 1, vec![1.0; features.dim + 1], &[0]);
    assert!(matches!(described(&head, PrototypeKind::Vmf, &wide, &one), Err(EvalError::Width { .. })));
    let none = Features { dim: features.dim, ..Default::default() };
    assert!(matches!(described(&head, PrototypeKind::Vmf, &none, &one), Err(EvalError::Empty { .. })));
    let endless = identity_head(&one, features.dim, &directions, &vec![f64::INFINITY; lengths.len()]);
    let refused = Describer::new(&endless, PrototypeKind::Vmf, 0.07, &one);
    assert!(matches!(refused, Err(EvalError::Distribution(_))));
    // No number is no certainty, in whichever of the prototypes it is.
    for prototype in [0, 5] {
        let mut broken = directions.clone();
        broken[prototype * features.dim] = f64::NAN;
        let head = identity_head(&one, features.dim, &broken, &lengths);
        for kind in [PrototypeKind::Vmf, PrototypeKind::Plain] {
            let error = described(&head, kind, &features, &one).unwrap_err();
            assert!(error.to_string().contains("what the head says of image 0 is not finite"), "{error}");
        }
    }
    let describer = Describer::new(&head, PrototypeKind::Vmf, 0.07, &one).unwrap();
    let stopped = describer.describe(&features, &one, &mut |_, _| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(EvalError::Stopped)));
}

#[test]
fn scores_are_of_the_head_and_of_the_neighbours() {
    let host = device(Precision::F64, 1);
    let train = Features::labelled(2, vec![1.0, 0.0, 0.9, 0.1, 0.0, 1.0, 0.1, 2.0], &[0, 0, 1, 1]);
    let mut test = Features::labelled(2, vec![5.0, 1.0, 0.0, 0.3, 1.0, 1.0], &[0, 1, 1]);
    let votes = knn::vote(&train, Some(&test), 3, 0.07, Place::from(&host)).unwrap();
    assert_eq!(votes.iter().map(|vote| vote.class).collect::<Vec<_>>(), [0, 1, 0]);
    assert_eq!(knn::rightly(&votes, &test).unwrap(), [true, true, false]);
    assert!((votes[1].similarity - 1.0).abs() < 1e-12 && votes[1].share > 0.99);
    // Two of class 0 and one of class 1, by exp(cosine / T).
    let cosine = |x: f64, y: f64| (x + y) / 2f64.sqrt() / (x * x + y * y).sqrt();
    let weights = [cosine(0.9, 0.1), cosine(0.1, 2.0), cosine(1.0, 0.0)].map(|c| (c / 0.07).exp());
    let all = weights.iter().sum::<f64>();
    let class0 = (weights[0] + weights[2]) / all;
    assert!((votes[2].share - class0).abs() < 1e-6, "{:?} {class0}", votes[2]);
    let none = Certainty { component: 0, kappa: None, entropy: 0.5, log_density: None };
    let plain = scores(&[none; 3], &votes);
    assert_eq!(
        plain.iter().map(|(score, _)| *score).collect::<Vec<_>>(),
        [Score::Entropy, Score::Neighbor, Score::Vote]
    );
    assert_eq!(plain[0].1, [-0.5; 3]);
    let sure = Certainty { kappa: Some(20.0), log_density: Some(3.0), ..none };
    assert_eq!(scores(&[sure; 3], &votes).len(), 5);
    // Nobody asks for the labels of another set; being right needs them.
    test.labels = vec![None; 3];
    assert_eq!(knn::vote(&train, Some(&test), 3, 0.07, Place::from(&host)).unwrap(), votes);
    assert!(matches!(knn::rightly(&votes, &test), Err(EvalError::NoLabels { .. })));
    test.values[2] = f32::INFINITY;
    let error = knn::vote(&train, Some(&test), 3, 0.07, Place::from(&host)).unwrap_err();
    assert!(error.to_string().contains("test image 1"), "{error}");
    assert!(knn::vote(&train, None, 4, 0.07, Place::from(&host)).is_err(), "three others each");
}
