//! What waits and what is pulled back, against plain loops.

use model::{Init, Layout};
use tensor::ops::AdamW;
use tensor::{CpuOptions, Device, ParamId, ParamSet, Precision};
use train::optimizer::{Optimizer, OptimizerOptions, StepValues, Treatment};
use train::reduce::{Alone, Share};

const ADAM: AdamW = AdamW { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
const PULL: f64 = 7.0;
const DECAY: f64 = 0.3;
const FACTOR: f64 = 0.25;

/// One number of a network, as its authors would write the step.
#[derive(Clone, Copy)]
struct Plain {
    w: f64,
    begun: f64,
    m: f64,
    v: f64,
    teacher: f64,
    t: i32,
}

impl Plain {
    fn step(&mut self, g: f64, lr: f64, pull: f64, momentum: f64) {
        self.t += 1;
        self.w -= lr * pull * (self.w - self.begun);
        self.w -= lr * DECAY * self.w;
        self.m = ADAM.beta1 * self.m + (1.0 - ADAM.beta1) * g;
        self.v = ADAM.beta2 * self.v + (1.0 - ADAM.beta2) * g * g;
        let (m, v) = (self.m / (1.0 - ADAM.beta1.powi(self.t)), self.v / (1.0 - ADAM.beta2.powi(self.t)));
        self.w -= lr * m / (v.sqrt() + ADAM.epsilon);
        self.teacher = momentum * self.teacher + (1.0 - momentum) * self.w;
    }
}

/// A backbone of four numbers that waits and is pulled back, and a head of two.
struct Case {
    layout: Layout,
    weights: ParamSet,
    teacher: ParamSet,
    gradient: ParamSet,
    optimizer: Optimizer,
    plain: [Vec<Plain>; 2],
}

fn case(pull: f64) -> Case {
    let device = Device::cpu(CpuOptions { threads: Some(1), precision: Precision::F64 }).unwrap();
    let mut layout = Layout::default();
    let normal = Init::Normal { deviation: 1.0 };
    let ids = [layout.add("backbone.w", &[2, 2], normal), layout.add("head.w", &[2, 1], normal)];
    let (weights, mut teacher) = (layout.initial(&device, 3), layout.initial(&device, 3));
    // A teacher elsewhere: one that is held must not move towards the student.
    teacher[ids[0]].copy_from_f64(&[0.5, -0.25, 2.0, 1.0]);
    let of = |id: ParamId| {
        let pairs = weights[id].to_f64().into_iter().zip(teacher[id].to_f64());
        pairs.map(|(w, teacher)| Plain { w, begun: w, m: 0.0, v: 0.0, teacher, t: 0 }).collect::<Vec<_>>()
    };
    let plain = ids.map(of);
    let specs = layout.specs().iter().enumerate();
    let treatments = specs
        .map(|(i, spec)| match i {
            0 => Treatment { waits: true, pulled: true, lr_factor: FACTOR, ..Treatment::usual(spec) },
            _ => Treatment::usual(spec),
        })
        .collect();
    let optimizer =
        Optimizer::new(&weights, treatments, OptimizerOptions { adam: ADAM, clip: 0.0, pull }, Share::WHOLE);
    Case { gradient: weights.zeros_like(), layout, weights, teacher, optimizer, plain }
}

impl Case {
    fn step(&mut self, step: u64, waiting_lr: f64, pull: f64) {
        let values = StepValues { lr: 0.02, weight_decay: DECAY, momentum: 0.9, frozen: false, waiting_lr };
        for (i, plain) in self.plain.iter_mut().enumerate() {
            let gradient: Vec<f64> =
                (0..plain.len()).map(|j| (1.3 * step as f64 + j as f64 + 5.0 * i as f64).sin()).collect();
            self.gradient[ParamId(i)].copy_from_f64(&gradient);
            let (lr, pull) = if i == 0 { (FACTOR * waiting_lr * values.lr, pull) } else { (values.lr, 0.0) };
            if lr > 0.0 {
                plain.iter_mut().zip(&gradient).for_each(|(p, &g)| p.step(g, lr, pull, values.momentum));
            }
        }
        let Self { layout, weights, teacher, gradient, optimizer, .. } = self;
        optimizer.step(layout, weights, gradient, Some(teacher), &values, &mut Alone).unwrap();
    }

    #[track_caller]
    fn assert_plain(&self) {
        for (i, plain) in self.plain.iter().enumerate() {
            let (weights, teacher) = (self.weights[ParamId(i)].to_f64(), self.teacher[ParamId(i)].to_f64());
            for (j, p) in plain.iter().enumerate() {
                assert!((weights[j] - p.w).abs() < 1e-12, "weight {j} of {i}: {} {}", weights[j], p.w);
                assert!((teacher[j] - p.teacher).abs() < 1e-12, "teacher {j} of {i}: {} {}", teacher[j], p.teacher);
            }
        }
    }
}

#[test]
fn a_pulled_weight_steps_as_the_equation_says() {
    for pull in [0.0, PULL] {
        let mut case = case(pull);
        for step in 0..40 {
            case.step(step, 1.0, pull);
            case.assert_plain();
        }
    }
}

#[test]
fn what_waits_keeps_every_bit_and_then_begins_as_new() {
    let mut case = case(PULL);
    let backbone = ParamId(0);
    let before = (case.weights[backbone].to_f64(), case.teacher[backbone].to_f64());
    for step in 0..10 {
        case.step(step, 0.0, PULL);
        case.assert_plain();
    }
    assert_eq!((case.weights[backbone].to_f64(), case.teacher[backbone].to_f64()), before);
    assert_eq!(case.optimizer.first_moment()[backbone].to_f64(), [0.0; 4]);
    assert!(case.optimizer.first_moment()[ParamId(1)].to_f64().iter().all(|m| *m != 0.0), "the head has learnt");
    for step in 10..20 {
        case.step(step, 0.1 * (step - 9) as f64, PULL);
        case.assert_plain();
    }
    assert_ne!(case.weights[backbone].to_f64(), before.0);
}

#[test]
fn a_weight_that_nothing_else_moves_comes_back_to_where_it_began() {
    let mut case = case(PULL);
    let backbone = ParamId(0);
    let begun: Vec<f64> = case.plain[0].iter().map(|p| p.begun + 1.0).collect();
    let mut elsewhere = case.weights.duplicate();
    elsewhere[backbone].copy_from_f64(&begun);
    case.optimizer.begin_at(&elsewhere);
    let values = StepValues { lr: 0.02, weight_decay: 0.0, momentum: 1.0, frozen: false, waiting_lr: 1.0 };
    let Case { layout, weights, gradient, optimizer, .. } = &mut case;
    let mut left = 1.0;
    for _ in 0..100 {
        optimizer.step(layout, weights, gradient, None, &values, &mut Alone).unwrap();
        left *= 1.0 - FACTOR * 0.02 * PULL;
    }
    for (w, begun) in weights[backbone].to_f64().iter().zip(&begun) {
        assert!((begun - w - left).abs() < 1e-12, "{w} {begun} {left}");
    }
}
