//! AdamW against PyTorch's, step by step in double precision; the fixture comes from `tools/oracle/adamw_fixture.py`.

use tensor::ops::{AdamW, ParameterUpdate, PartMoments, Teacher};
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

/// Numbers from -1 to 1 that follow from a seed.
fn noise(device: &Device, lengths: &[usize], seed: u64) -> ParamSet {
    let shapes: Vec<[usize; 1]> = lengths.iter().map(|&length| [length]).collect();
    let mut set = ParamSet::zeros(device, shapes.iter().map(|shape| &shape[..]));
    for (i, tensor) in set.tensors_mut().iter_mut().enumerate() {
        let values = (0..tensor.len()).map(|j| ((seed * 31 + i as u64 * 7 + j as u64) as f64 * 0.731).sin());
        tensor.copy_from_f64(&values.collect::<Vec<_>>());
    }
    set
}

fn bits(set: &ParamSet) -> Vec<u8> {
    set.iter().flat_map(|tensor| tensor.to_le_bytes().into_owned()).collect()
}

#[test]
fn a_step_in_parts_gives_the_bits_of_a_whole_one() {
    let device = Device::cpu(CpuOptions { threads: Some(2), ..Default::default() }).unwrap();
    // One that fills more than a task, and one that leaves a part empty.
    let lengths = [70_001, 1, 40];
    let (mut whole, mut teacher) = (noise(&device, &lengths, 1), noise(&device, &lengths, 2));
    let (mut first, mut second) = (whole.zeros_like(), whole.zeros_like());
    let (mut pieces, mut follower) = (whole.duplicate(), teacher.duplicate());
    let cuts = |part: usize| lengths.map(|n| n * part / 3..n * (part + 1) / 3);
    let lengths_of = |part: usize| cuts(part).map(|range| range.len());
    let mut moments: Vec<_> = (0..3).map(|part| [0, 0].map(|_| noise(&device, &lengths_of(part), 0))).collect();
    moments.iter_mut().flatten().for_each(ParamSet::clear);
    let (adam, momentum) = (AdamW::default(), [0.9, 0.5, 1.0]);
    for t in 1..=3 {
        let gradient = noise(&device, &lengths, 100 + t);
        let train = |decay, clip| ParameterUpdate::Train { lr: 0.01, decay, clip, t };
        let updates =
            [train(0.1, 0.7), train(0.0, 1.0), if t == 2 { ParameterUpdate::Freeze } else { train(0.2, 1.0) }];
        let follows = Some(Teacher { weights: &mut teacher, momentum: &momentum });
        ops::adamw_and_average(&mut whole, &gradient, &mut first, &mut second, &updates, &adam, follows);
        for (part, [first, second]) in moments.iter_mut().enumerate() {
            let moments = PartMoments { parts: &cuts(part), first, second };
            ops::adamw_on_parts(&mut pieces, &gradient, moments, &updates, &adam);
        }
        ops::average(&pieces, Teacher { weights: &mut follower, momentum: &momentum });
    }
    assert!(bits(&pieces) == bits(&whole) && bits(&follower) == bits(&teacher), "bit for bit");
}
