//! The update of all parameters.

use tensor::ops::{AdamW, ParameterUpdate, Teacher};
use tensor::{Device, ParamSet, ops};

use crate::{Operation, Outputs, exact};

pub(crate) fn operations() -> Vec<Operation> {
    vec![
        Operation { name: "adamw and average", tolerance: 1e-6, run: adamw },
        Operation { name: "adamw without a teacher", tolerance: 1e-6, run: adamw_alone },
        Operation { name: "momentum step", tolerance: 1e-6, run: momentum },
    ]
}

const SHAPES: [&[usize]; 4] = [&[300, 250], &[7], &[64, 3, 4, 4], &[90, 100]];

fn parameters(d: &Device, seed: u64) -> ParamSet {
    let mut set = ParamSet::zeros(d, SHAPES);
    for (i, t) in set.tensors_mut().iter_mut().enumerate() {
        t.copy_from(&exact(d, seed + i as u64, SHAPES[i]));
    }
    set
}

fn all(set: &ParamSet) -> Vec<f64> {
    set.iter().flat_map(|t| t.to_f64()).collect()
}

/// What each parameter does in step `t`: clipped, plain, frozen at first, and with a rate of its own.
fn updates(t: u64) -> [ParameterUpdate; 4] {
    let train = |lr, clip| ParameterUpdate::Train { lr: lr * t as f64, decay: 0.1, clip, t };
    [
        train(0.01, 0.5),
        train(0.01, 1.0),
        if t == 1 { ParameterUpdate::Freeze } else { train(0.01, 1.0) },
        train(0.002, 1.0),
    ]
}

/// Every parameter has a momentum of its own; the teacher does not follow the last.
fn adamw(d: &Device) -> Outputs {
    let (mut student, mut teacher) = (parameters(d, 10), parameters(d, 20));
    let (mut first, mut second) = (student.zeros_like(), student.zeros_like());
    let mut norms = Vec::new();
    let adam = AdamW::default();
    let last = SHAPES.len() - 1;
    let kept = teacher.tensors()[last].to_f64();
    for t in 1..=3 {
        let mut gradient = parameters(d, 100 * t);
        norms.extend(ops::squared_norms(&gradient));
        let follows = Some(Teacher { weights: &mut teacher, momentum: &[0.9, 0.9, 0.5, 1.0] });
        ops::adamw_and_average(&mut student, &gradient, &mut first, &mut second, &updates(t), &adam, follows);
        gradient.clear();
        assert!(ops::squared_norms(&gradient).iter().all(|&n| n == 0.0), "a cleared set is zero");
    }
    let outputs = vec![
        ("squared norms", norms),
        ("student", all(&student)),
        ("teacher", all(&teacher)),
        ("first moment", all(&first)),
        ("second moment", all(&second)),
    ];
    // A teacher that does not follow keeps its values whatever the student's are.
    student.tensors_mut()[last].fill(f64::NAN);
    let (gradient, freeze) = (student.zeros_like(), [ParameterUpdate::Freeze; 4]);
    let follows = Some(Teacher { weights: &mut teacher, momentum: &[0.9, 0.9, 0.5, 1.0] });
    ops::adamw_and_average(&mut student, &gradient, &mut first, &mut second, &freeze, &adam, follows);
    assert_eq!(teacher.tensors()[last].to_f64(), kept, "a teacher with a momentum of one moved");
    outputs
}

/// The student takes the very steps that it takes with a teacher.
fn adamw_alone(d: &Device) -> Outputs {
    let run = |mut teacher: Option<ParamSet>| {
        let mut student = parameters(d, 10);
        let (mut first, mut second) = (student.zeros_like(), student.zeros_like());
        for t in 1..=3 {
            let gradient = parameters(d, 100 * t);
            let follows = teacher.as_mut().map(|weights| Teacher { weights, momentum: &[0.9; 4] });
            let adam = AdamW::default();
            ops::adamw_and_average(&mut student, &gradient, &mut first, &mut second, &updates(t), &adam, follows);
        }
        vec![("student", all(&student)), ("first moment", all(&first)), ("second moment", all(&second))]
    };
    let alone = run(None);
    assert_eq!(alone, run(Some(parameters(d, 20))), "a teacher changes its student");
    alone
}

/// Groups with a rate of their own, whose edges are not those of tasks, and gradients that are added in between.
fn momentum(d: &Device) -> Outputs {
    let (mut value, mut velocity) = (exact(d, 1, &[3 * 77, 301]), exact(d, 2, &[3 * 77, 301]));
    for step in 0..3 {
        let rates = d.exact_from_f64(&[3], &[0.1, 0.01, 0.5 / f64::from(1 + step)]);
        ops::momentum_step(&mut value, &mut velocity, &rates, 0.9);
        velocity = ops::add_scaled(&velocity, 1.0, &exact(d, 3 + step as u64, &[3 * 77, 301]));
    }
    vec![("value", value.to_f64()), ("velocity", velocity.to_f64())]
}
