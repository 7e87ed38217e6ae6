//! A parameter that is trained by its logarithm, against the equations written out.

use model::{Init, Layout};
use tensor::ops::AdamW;
use tensor::{CpuOptions, Device, ParamId, ParamSet, Precision};
use train::optimizer::{Optimizer, OptimizerOptions, StepValues, Treatment};
use train::reduce::{Alone, Share};

const ADAM: AdamW = AdamW { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
const LENGTHS: [f64; 4] = [1.0, -0.5, 3.0, 0.25];
const FACTOR: f64 = 2.5;

struct Case {
    optimizer: Optimizer,
    layout: Layout,
    weights: ParamSet,
    gradient: ParamSet,
    teacher: ParamSet,
}

fn case(precision: Precision) -> Case {
    let device = Device::cpu(CpuOptions { threads: Some(1), precision }).unwrap();
    let mut layout = Layout::default();
    let length = layout.add("head.last_layer.weight_g", &[4, 1], Init::Constant(1.0));
    layout.add("head.last_layer.weight_v", &[4, 2], Init::Normal { deviation: 1.0 });
    let mut weights = layout.initial(&device, 3);
    weights[length].copy_from_f64(&LENGTHS);
    let specs = layout.specs().iter().enumerate();
    let usual = |(i, spec)| {
        let (lr_factor, in_log) = if i == 0 { (FACTOR, true) } else { (1.0, false) };
        Treatment { lr_factor, in_log, frozen_at_first: true, ..Treatment::usual(spec) }
    };
    let options = OptimizerOptions { adam: ADAM, clip: 0.4, pull: 0.0 };
    let optimizer = Optimizer::new(&weights, specs.map(usual).collect(), options, Share::WHOLE);
    Case { gradient: weights.zeros_like(), teacher: weights.duplicate(), layout, weights, optimizer }
}

fn of_step(step: u64) -> Vec<f64> {
    (0..4).map(|j| (0.7 * step as f64 + j as f64).sin()).collect()
}

impl Case {
    fn step(&mut self, step: u64, frozen: bool) {
        let values = StepValues { lr: 0.01, weight_decay: 0.1, momentum: 0.8, frozen, waiting_lr: 1.0 };
        self.gradient[ParamId(0)].copy_from_f64(&of_step(step));
        let Self { layout, weights, teacher, gradient, optimizer } = self;
        optimizer.step(layout, weights, gradient, Some(teacher), &values, &mut Alone).unwrap();
    }

    fn lengths(&self) -> (Vec<f64>, Vec<f64>) {
        (self.weights[ParamId(0)].to_f64(), self.teacher[ParamId(0)].to_f64())
    }
}

#[test]
fn it_steps_as_its_logarithm_would() {
    let mut case = case(Precision::F64);
    let mut l = LENGTHS.map(|g| g.abs().ln());
    let (mut m, mut v, mut teacher) = ([0.0; 4], [0.0; 4], l);
    for step in 0..30 {
        // dl = g dg, clipped by its own norm.
        let signed = |j: usize, l: f64| LENGTHS[j].signum() * l.exp();
        let d: Vec<f64> = of_step(step).iter().enumerate().map(|(j, dg)| signed(j, l[j]) * dg).collect();
        let norm = d.iter().map(|x| x * x).sum::<f64>().sqrt();
        let clip = (0.4 / (norm + 1e-6)).min(1.0);
        let t = step as i32 + 1;
        for j in 0..4 {
            let (d, lr) = (clip * d[j], FACTOR * 0.01);
            l[j] *= 1.0 - lr * 0.1;
            m[j] = ADAM.beta1 * m[j] + (1.0 - ADAM.beta1) * d;
            v[j] = ADAM.beta2 * v[j] + (1.0 - ADAM.beta2) * d * d;
            let (m, v) = (m[j] / (1.0 - ADAM.beta1.powi(t)), v[j] / (1.0 - ADAM.beta2.powi(t)));
            l[j] -= lr * m / (v.sqrt() + ADAM.epsilon);
            teacher[j] = 0.8 * teacher[j] + 0.2 * l[j];
        }
        case.step(step, false);
        let (weights, teachers) = case.lengths();
        for j in 0..4 {
            assert!((weights[j] - signed(j, l[j])).abs() < 1e-12, "step {step}: {} of {j}", weights[j]);
            assert!((teachers[j] - signed(j, teacher[j])).abs() < 1e-12, "step {step}: teacher of {j}");
        }
    }
}

#[test]
fn what_is_frozen_keeps_every_bit() {
    let mut case = case(Precision::F32);
    let before = case.lengths().0;
    for step in 0..5 {
        case.step(step, true);
    }
    assert_eq!(case.lengths().0, before);
    case.step(5, false);
    assert_ne!(case.lengths().0, before);
}

#[test]
fn a_gradient_that_is_not_finite_changes_no_weight() {
    let mut case = case(Precision::F64);
    case.gradient[ParamId(0)].copy_from_f64(&[1.0, f64::NAN, 0.0, 0.0]);
    let values = StepValues { lr: 0.01, weight_decay: 0.1, momentum: 0.8, frozen: false, waiting_lr: 1.0 };
    let Case { layout, weights, teacher, gradient, optimizer } = &mut case;
    assert!(optimizer.step(layout, weights, gradient, Some(teacher), &values, &mut Alone).is_err());
    assert_eq!(case.lengths().0, LENGTHS);
}
