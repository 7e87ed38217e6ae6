//! AdamW against PyTorch's, step by step in double precision; the fixture comes from `tools/oracle/adamw_fixture.py`.

use tensor::ops::{AdamW, ParameterUpdate, Teacher};
use tensor::{CpuOptions, Device, ParamSet, Precision, ops};

/// Lines of a name and numbers.
fn fixture() -> Vec<(&'static str, Vec<f64>)> {
    let lines = include_str!("fixtures/adamw.txt").lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split(' ');
            let name = words.next().unwrap();
            (name, words.map(|word| word.parse().unwrap()).collect())
        })
        .collect()
}

#[track_caller]
fn assert_equal(step: u64, name: &str, got: &ParamSet, want: &[f64]) {
    for (got, want) in got.tensors()[0].to_f64().iter().zip(want) {
        // Relative to each element: the small moments of a small gradient count as much as the others.
        assert!((got - want).abs() <= 1e-13 * want.abs(), "step {step}, {name}: {got} is not {want}");
    }
}

#[test]
fn adamw_takes_the_steps_of_pytorch() {
    let device = Device::cpu(CpuOptions { threads: Some(1), precision: Precision::F64 }).unwrap();
    let lines = fixture();
    let (("start", start), steps) = lines.split_first().map(|((name, start), rest)| ((*name, start), rest)).unwrap()
    else {
        panic!("the fixture begins with the start")
    };
    let zeros = || ParamSet::zeros(&device, [&[start.len()][..]]);
    let (mut student, mut gradient, mut teacher) = (zeros(), zeros(), zeros());
    let (mut first, mut second) = (zeros(), zeros());
    student.tensors_mut()[0].copy_from_f64(start);
    let mut average = vec![0.0; start.len()];
    let mut t = 0;
    for step in steps.chunks(5) {
        let [("step", rates), ("gradient", d), ("value", value), ("first", m), ("second", v)] = step else {
            panic!("a step of the fixture: {step:?}")
        };
        t += 1;
        gradient.tensors_mut()[0].copy_from_f64(d);
        let update = ParameterUpdate::Train { lr: rates[0], decay: rates[1], clip: 1.0, t };
        let adam = AdamW::default();
        let follows = Some(Teacher { weights: &mut teacher, momentum: &[0.75] });
        ops::adamw_and_average(&mut student, &gradient, &mut first, &mut second, &[update], &adam, follows);
        average.iter_mut().zip(value).for_each(|(a, p)| *a = 0.75 * *a + 0.25 * p);
        assert_equal(t, "value", &student, value);
        assert_equal(t, "first", &first, m);
        assert_equal(t, "second", &second, v);
        assert_equal(t, "teacher", &teacher, &average);
    }
    assert_eq!(t, 6, "all steps of the fixture were taken");
}
