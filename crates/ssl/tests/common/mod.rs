//! What the tests of learners share: small networks, a device that computes in double precision, and comparison by printed
//! digits.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod desk;
pub mod parts;
pub mod toy;

use data::BadSample;
use data::views::MultiCrop;
use model::{HeadConfig, VitConfig};
use ssl::learner::{Learner, LearnerOptions};
use ssl::method::dino::{Dino, DinoOptions};
use ssl::recipe::{Centering, Prototypes};
use ssl::target::TargetOptions;
use ssl::view_plan::ViewPlan;
use tensor::ops::AdamW;
use tensor::{CpuOptions, Device, Precision};
use train::curve::Curve;
use train::optimizer::OptimizerOptions;
use train::reduce::{Share, Wire};
use train::{Monitor, Progress};

/// For a run that nobody watches.
pub struct Silent;

impl Monitor for Silent {
    fn step(&mut self, _: &Progress) {}
    fn say(&mut self, _: &str) {}
    fn skipped(&mut self, _: &BadSample) {}
}

/// A backbone trained with clipping at `clip`.
pub fn learner_options(vit: VitConfig, clip: f64, seed: u64) -> LearnerOptions {
    let optimizer = OptimizerOptions { adam: AdamW::default(), clip, pull: 0.0 };
    let (start, backbone) = (Default::default(), Default::default());
    let (wire, share) = (Wire::Exact, Share::WHOLE);
    LearnerOptions { vit, optimizer, start, backbone, seed, accumulate: 1, checkpoint_activations: false, wire, share }
}

/// DINO on global views of the first side and local ones of the second.
pub fn dino_options(
    (prototypes, centering): (Prototypes, Centering),
    head: HeadConfig,
    (global, local, local_crops): (usize, usize, usize),
) -> DinoOptions {
    let views =
        MultiCrop { global_size: (global, global), local_size: (local, local), local_crops, ..MultiCrop::dino() };
    DinoOptions {
        views: ViewPlan::multi_crop(&views, 3),
        head,
        target: TargetOptions { prototypes, centering, center_momentum: 0.9, center_floor: None },
        student_temperature: 0.1,
        teacher_temperature: Curve::Constant(0.04),
        decay_magnitude: true,
        frozen_epochs: 0,
        koleo_weight: 0.0,
        lengths: Default::default(),
    }
}

/// A learner of DINO.
pub fn dino(device: &Device, options: &LearnerOptions, dino: &DinoOptions) -> Learner<Dino> {
    Learner::new(device, options, |layout, _, device| Dino::new(layout, device, dino.clone()).map(Box::new)).unwrap()
}

/// Double precision on two threads; the number of threads changes no bit.
pub fn f64_device() -> Device {
    Device::cpu(CpuOptions { threads: Some(2), precision: Precision::F64 }).unwrap()
}

/// Asserts that `got` rounds to `printed`, a number given with `decimals` digits after the point (trailing zeros may be
/// missing in the source).
#[track_caller]
pub fn assert_digits(what: &str, got: f64, printed: f64, decimals: i32) {
    // The literal itself is off by its rounding to f64, far below the slack.
    let half_a_unit = 0.5 * 10f64.powi(-decimals) * (1.0 + 1e-5);
    let error = (got - printed).abs();
    assert!(error <= half_a_unit, "{what}: {got:.14} is not {printed} to {decimals} decimals (off by {error:e})");
}

/// The same for each of several numbers.
#[track_caller]
pub fn assert_all_digits(what: &str, got: &[f64], printed: &[f64], decimals: i32) {
    assert_eq!(got.len(), printed.len(), "{what}: how many values");
    for (i, (&got, &printed)) in got.iter().zip(printed).enumerate() {
        assert_digits(&format!("{what}[{i}]"), got, printed, decimals);
    }
}

/// Euclidean norm over all values.
pub fn norm(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().map(|x| x * x).sum::<f64>().sqrt()
}
