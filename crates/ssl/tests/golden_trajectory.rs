//! Six training steps against printed digits: network, loss, clipping, freezing, AdamW, schedules and moving average.
//!
//! Weights and images are closed forms, so no file is needed. The values come from the DINO authors' functions in double
//! precision (`none`, `l2`) and from an independent implementation of the paper (`vmf`). They were chosen such that a
//! change of the inputs by 1e-13 changes no printed digit: any difference is a mistake, not rounding.

mod common;
mod gpu_device;

use common::toy::{BATCH, Batch, HEAD, STEPS, STEPS_PER_EPOCH, VIT, images, values, view, weight};
use common::{assert_all_digits, assert_digits, dino, dino_options, f64_device, learner_options, norm};
use gpu_device::gpu;
use ssl::learner::{Learner, StepInput};
use ssl::method::dino::{Dino, DinoOptions};
use ssl::recipe::{Centering, Prototypes};
use tensor::ops::Pixels;
use tensor::{CpuOptions, CudaPrecision, Device, ParamSet, Precision};
use train::Position;
use train::curve::Curve;
use train::optimizer::StepValues;
use train::reduce::Alone;
use train::step::StepReport;

/// The learner of one mode in double precision, with the closed-form weights in student and teacher.
fn learner(prototypes: Prototypes, centering: Centering) -> Learner<Dino> {
    learner_on(&f64_device(), prototypes, centering)
}

fn learner_on(device: &Device, prototypes: Prototypes, centering: Centering) -> Learner<Dino> {
    let options = DinoOptions {
        teacher_temperature: Curve::Ramp { from: 0.04, to: 0.07, points: 2 },
        ..dino_options((prototypes, centering), HEAD, (32, 16, 2))
    };
    let mut learner = dino(device, &learner_options(VIT, 0.05, 0), &options);
    assert_eq!(layout_names(&learner), reference_names(), "the order that numbers the closed-form weights");
    let names = layout_names(&learner);
    for (q, name) in names.iter().enumerate() {
        let values: Vec<f64> = (0..learner.student.tensors()[q].len()).map(|i| weight(name, q, i)).collect();
        learner.student.tensors_mut()[q].copy_from_f64(&values);
        learner.teacher.tensors_mut()[q].copy_from_f64(&values);
    }
    learner
}

fn layout_names(learner: &Learner<Dino>) -> Vec<String> {
    learner.layout().specs().iter().map(|s| s.name.clone()).collect()
}

/// Parameters in the order of the reference, which numbers them q = 0, 1, ...
fn reference_names() -> Vec<String> {
    let mut names: Vec<String> =
        ["cls_token", "pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias"].map(String::from).into();
    let pair = |name: &str| [format!("{name}.weight"), format!("{name}.bias")];
    for block in 0..2 {
        for layer in ["norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"] {
            names.extend(pair(&format!("blocks.{block}.{layer}")));
        }
    }
    names.extend(pair("norm"));
    let head = [0, 2, 4].iter().flat_map(|i| pair(&format!("head.mlp.{i}")));
    let last = ["head.last_layer.weight_g", "head.last_layer.weight_v"].map(String::from);
    names.into_iter().map(|name| format!("backbone.{name}")).chain(head).chain(last).collect()
}

/// One step on the data of iteration `it`.
fn step(learner: &mut Learner<Dino>, it: u64) -> StepReport {
    let batch = Batch::new(it);
    let input = StepInput { groups: &batch.pixels(), keys: &[0; BATCH], drop_path: None };
    learner.step(&input, Position { step: it, epoch: it / STEPS_PER_EPOCH }, &values(it)).unwrap()
}

/// Features and raw logits of some images, row by row.
fn outputs(learner: &Learner<Dino>, weights: &ParamSet, views: &[Pixels<'_>]) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
    let rows = |t: &tensor::Tensor| t.to_f64().chunks(t.columns()).map(<[f64]>::to_vec).collect();
    let features = learner.vit().features(weights, learner.device(), views).unwrap();
    let feature_rows = rows(&features);
    let (_, logits) = learner.method.head().forward(weights, features, &mut Alone).unwrap();
    (feature_rows, rows(&logits.raw))
}

fn norm_of_all(weights: &ParamSet) -> f64 {
    norm(weights.iter().flat_map(|t| t.to_f64()))
}

/// A row of the printed tables.
struct Printed {
    loss: f64,
    center: f64,
    student: f64,
    teacher: f64,
    magnitude: f64,
    sum_of_norms: f64,
    clipped: usize,
}

const fn printed(
    loss: f64,
    center: f64,
    student: f64,
    teacher: f64,
    magnitude: f64,
    sum_of_norms: f64,
    clipped: usize,
) -> Printed {
    Printed { loss, center, student, teacher, magnitude, sum_of_norms, clipped }
}

const NONE: [Printed; 6] = [
    printed(1.939267936999, 0.2224754035, 30.1623080816, 30.1623080816, 4.8989794856, 32.92686889, 14),
    printed(1.961050828615, 0.4220574570, 30.1972321830, 30.1606916042, 4.8989794856, 29.86934600, 14),
    printed(2.360777236956, 0.4570006874, 30.2699676667, 30.1592244119, 4.9132273514, 6.27049639, 10),
    printed(2.703941810817, 0.4618059040, 30.3041979318, 30.1573074093, 4.9099209173, 10.39362035, 15),
    printed(2.717905875479, 0.4674379415, 30.3129931154, 30.1559337430, 4.9005297316, 8.64423839, 9),
    printed(2.669247304443, 0.4771443166, 30.3115024197, 30.1555373861, 4.8963454900, 8.74683577, 14),
];

const VMF: [Printed; 6] = [
    printed(1.939267936999, 8.7169350728, 30.1623080816, 30.1623080816, 4.8989794856, 32.24428517, 14),
    printed(1.961047545941, 16.5411248926, 30.1972322855, 30.1606916125, 4.8989794856, 29.27348863, 14),
    printed(2.353733952432, 17.7693061599, 30.2674005009, 30.1587988667, 4.9213489723, 7.64631839, 10),
    printed(2.533602241953, 18.3685754292, 30.3016534580, 30.1565590456, 4.9254509469, 12.38348997, 16),
    printed(2.249285044894, 18.9126920600, 30.3091795515, 30.1550562911, 4.9229150393, 8.45788473, 19),
    printed(3.141817908946, 19.4455987147, 30.3062245582, 30.1546239554, 4.9213869635, 7.51420941, 12),
];

const L2_LOSSES: [f64; 6] =
    [1.939267936999, 1.961050828615, 2.360777236956, 2.696143756572, 2.708080959106, 2.662646317422];

/// Runs all steps against a table and gives the learner as it is afterwards.
fn follow(mut learner: Learner<Dino>, table: &[Printed]) -> Learner<Dino> {
    for (it, row) in table.iter().enumerate() {
        let report = step(&mut learner, it as u64);
        let g = learner.method.head().prototypes.magnitude();
        assert_digits(&format!("loss {it}"), report.loss, row.loss, 12);
        assert_digits(&format!("centre {it}"), norm(learner.method.loss().target().center().to_f64()), row.center, 10);
        assert_digits(&format!("student {it}"), norm_of_all(&learner.student), row.student, 10);
        assert_digits(&format!("teacher {it}"), norm_of_all(&learner.teacher), row.teacher, 10);
        assert_digits(&format!("g {it}"), norm(learner.student[g].to_f64()), row.magnitude, 10);
        assert_digits(&format!("gradient norms {it}"), report.gradient.sum_of_norms, row.sum_of_norms, 8);
        assert_eq!(report.gradient.clipped, row.clipped, "tensors clipped in step {it}");
    }
    learner
}

/// Feature and logits of the trained teacher on an image it has not seen.
fn assert_teacher(learner: &Learner<Dino>, feature: [f64; 4], logits: [f64; 4]) {
    let data = view(9, 0);
    let (features, raw) = outputs(learner, &learner.teacher, &[images(BATCH, 32, &data)]);
    assert_all_digits("teacher feature", &features[0][..4], &feature, 9);
    assert_all_digits("teacher logits", &raw[0][..4], &logits, 9);
}

#[test]
fn schedules_are_the_printed_ones() {
    let at = |value: fn(StepValues) -> f64| (0..STEPS).map(|it| value(values(it))).collect::<Vec<_>>();
    assert_all_digits("lr", &at(|v| v.lr), &[0.0, 0.01, 0.01, 0.0085501786, 0.00505, 0.0015498214], 10);
    assert_all_digits("momentum", &at(|v| v.momentum), &[0.9, 0.90669873, 0.925, 0.95, 0.975, 0.99330127], 8);
}

#[test]
fn the_untrained_student_gives_the_printed_features_and_logits() {
    let learner = learner(Prototypes::None, Centering::Logit);
    let (features, raw) = outputs(&learner, &learner.student, &Batch::new(0).pixels());
    let first = [-0.0187979024, 0.2139969736, 0.4100858052, 0.5459912805];
    assert_all_digits("view 0, image 0", &raw[0][..4], &first, 10);
    let last = [-0.018664599, 0.2139115312, 0.4098001303, 0.5455498436];
    assert_all_digits("view 3, image 1", &raw[7][..4], &last, 10);
    let feature = [0.9713099159, -0.631792532, 1.2074177111, 0.4679088429];
    assert_all_digits("feature of view 2, image 0", &features[4][..4], &feature, 10);
}

#[test]
fn six_steps_without_normaliser_follow_dino_to_the_last_digit() {
    let learner = follow(learner(Prototypes::None, Centering::Logit), &NONE);
    assert_teacher(
        &learner,
        [-0.17583333, -0.112570489, 1.477715811, 0.084124397],
        [-0.228278429, -0.18547001, -0.119954376, -0.043279758],
    );
}

#[test]
fn six_steps_with_unit_prototypes_follow_dino_to_the_last_digit() {
    let mut learner = learner(Prototypes::L2, Centering::Logit);
    let losses: Vec<f64> = (0..STEPS).map(|it| step(&mut learner, it).loss).collect();
    assert_all_digits("loss", &losses, &L2_LOSSES, 12);
    assert_digits("student", norm_of_all(&learner.student), 30.3122115998, 10);
    assert_digits("teacher", norm_of_all(&learner.teacher), 30.1553038042, 10);
    assert_digits("centre", norm(learner.method.loss().target().center().to_f64()), 0.4770747342, 10);
    let g = learner.method.head().prototypes.magnitude();
    assert!(learner.student[g].to_f64().iter().chain(&learner.teacher[g].to_f64()).all(|&g| g == 1.0));
}

#[test]
fn six_steps_of_dino_vmf_follow_the_reference_to_the_last_digit() {
    let learner = follow(learner(Prototypes::Vmf, Centering::Probability), &VMF);
    assert_teacher(
        &learner,
        [-0.084633699, 0.13376619, 1.467754718, 0.179053868],
        [-0.222654581, -0.186230631, -0.126754154, -0.055051234],
    );
}

/// The losses of all three modes in single precision. Rounding grows over the steps: where a gradient is nearly zero, AdamW
/// makes a whole step of its sign.
#[track_caller]
fn follows_in_single_precision(device: &Device) {
    let losses = |table: &[Printed]| table.iter().map(|row| row.loss).collect::<Vec<_>>();
    for (prototypes, centering, printed) in [
        (Prototypes::None, Centering::Logit, losses(&NONE)),
        (Prototypes::L2, Centering::Logit, L2_LOSSES.to_vec()),
        (Prototypes::Vmf, Centering::Probability, losses(&VMF)),
    ] {
        let mut learner = learner_on(device, prototypes, centering);
        for (it, want) in printed.iter().enumerate() {
            let got = step(&mut learner, it as u64).loss;
            let off = (got - want).abs() / want;
            println!("{prototypes:?}, step {it}: loss off by {off:.1e}");
            assert!(off < 1e-4, "{prototypes:?}, step {it}: {got} is not {want}");
        }
    }
}

#[test]
fn single_precision_follows_the_printed_losses() {
    follows_in_single_precision(&Device::cpu(CpuOptions { threads: None, precision: Precision::F32 }).unwrap());
}

#[test]
fn a_gpu_follows_the_printed_losses() {
    if let Some(device) = gpu(CudaPrecision::F32) {
        follows_in_single_precision(&device);
    }
}
