//! The update of all parameters.

use tensor::ops::{AdamW, ParameterUpdate};
use tensor::{Device, ParamSet, ops};

use crate::{Operation, Outputs, exact};

pub(crate) fn operations() -> Vec<Operation> {
    vec![Operation { name: "adamw and average", tolerance: 1e-6, run: adamw }]
}

fn adamw(d: &Device) -> Outputs {
    let shapes: [&[usize]; 3] = [&[300, 250], &[7], &[64, 3, 4, 4]];
    let parameters = |seed: u64| {
        let mut set = ParamSet::zeros(d, shapes);
        for (i, t) in set.tensors_mut().iter_mut().enumerate() {
            t.copy_from(&exact(d, seed + i as u64, shapes[i]));
        }
        set
    };
    let (mut student, mut teacher) = (parameters(10), parameters(20));
    let (mut first, mut second) = (student.zeros_like(), student.zeros_like());
    let mut norms = Vec::new();
    for t in 1..=3 {
        let mut gradient = parameters(100 * t);
        norms.extend(ops::squared_norms(&gradient));
        let train = |clip| ParameterUpdate::Train { lr: 0.01 * t as f64, decay: 0.1, clip, t };
        let updates = [train(0.5), train(1.0), if t == 1 { ParameterUpdate::Freeze } else { train(1.0) }];
        ops::adamw_and_average(
            &mut student,
            &gradient,
            &mut first,
            &mut second,
            &mut teacher,
            &updates,
            &AdamW::default(),
            0.9,
        );
        gradient.clear();
        assert!(ops::squared_norms(&gradient).iter().all(|&n| n == 0.0), "a cleared set is zero");
    }
    let all = |set: &ParamSet| set.iter().flat_map(|t| t.to_f64()).collect::<Vec<f64>>();
    vec![
        ("squared norms", norms),
        ("student", all(&student)),
        ("teacher", all(&teacher)),
        ("first moment", all(&first)),
        ("second moment", all(&second)),
    ]
}
