//! Classifiers against PyTorch's, `tests/fixtures/linear.json` of `tools/oracle/linear_fixture.py`, and what is refused.

use std::ops::ControlFlow;

use serde_json::Value;
use tensor::{CpuOptions, Device, Precision};

use super::*;
use crate::features::{Features, extract};
use crate::neighbors::Place;
use crate::network::Network;
use crate::prepare::Preparation;
use crate::reading::ReadOptions;

fn host(threads: usize, precision: Precision) -> Device {
    Device::cpu(CpuOptions { threads: Some(threads), precision }).unwrap()
}

fn go_on(_: LinearProgress<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// u(stream, i) of `tools/oracle/vit_hash.py`.
fn uniform(stream: u64, i: usize) -> f64 {
    let mut z = ((stream << 32) + i as u64).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 * 2f64.powi(-52) - 1.0
}

#[test]
fn classifiers_side_by_side_are_those_of_pytorch_one_by_one() {
    let fixture: Value = serde_json::from_str(include_str!("../../tests/fixtures/linear.json")).unwrap();
    let size = |key: &str| fixture[key].as_u64().unwrap() as usize;
    let numbers = |value: &Value| value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect::<Vec<_>>();
    let (rows, width, classes) = (size("rows"), size("width"), size("classes"));
    let options = LinearOptions {
        rates: numbers(&fixture["rates"]),
        epochs: size("epochs"),
        batch_size: size("batch_size"),
        ..Default::default()
    };
    let label = |row: usize| (5 * row + 2) % classes;
    let value = |at: usize| (uniform(40, label(at / width) * width + at % width) + 1.8 * uniform(41, at)) as f32;
    let features: Vec<f32> = (0..rows * width).map(value).collect();
    let initial: Vec<f64> = (0..classes * width).map(|at| 0.02 * uniform(42, at)).collect();
    for (precision, tolerance) in [(Precision::F64, 1e-11), (Precision::F32, 1e-5)] {
        let host = host(2, precision);
        let shape = (width, classes, options.rates.len());
        let mut heads = Heads::from_weights(Place::from(&host), &initial, shape, 0.9);
        for epoch in 0..options.epochs {
            let order: Vec<usize> = (0..rows).map(|i| (7 * i + 3 * epoch) % rows).collect();
            let mut losses = vec![0.0; options.rates.len()];
            for batch in order.chunks(options.batch_size) {
                let x: Vec<f32> = batch.iter().flat_map(|&row| &features[row * width..][..width]).copied().collect();
                let labels: Vec<u32> = batch.iter().map(|&row| label(row) as u32).collect();
                let sums = heads.step(&x, &labels, &options.rates_in(epoch)).unwrap();
                losses.iter_mut().zip(sums).for_each(|(loss, sum)| *loss += sum / rows as f64);
            }
            for (loss, fit) in losses.iter().zip(fixture["fits"].as_array().unwrap()) {
                let wanted = fit["losses"][epoch].as_f64().unwrap();
                assert!((loss - wanted).abs() < tolerance * wanted.max(1.0), "epoch {epoch}: {loss} {wanted}");
            }
        }
        let (weight, bias) = heads.parameters();
        for (rate, fit) in fixture["fits"].as_array().unwrap().iter().enumerate() {
            let found = [&weight[rate * classes * width..][..classes * width], &bias[rate * classes..][..classes]];
            for (found, wanted) in found.into_iter().zip([numbers(&fit["weight"]), numbers(&fit["bias"])]) {
                let scale = wanted.iter().fold(0.0, |most: f64, w| most.max(w.abs()));
                for (found, wanted) in found.iter().zip(&wanted) {
                    assert!((found - wanted).abs() < tolerance * scale, "rate {rate}: {found} {wanted}");
                }
            }
        }
    }
}

/// Clouds around one corner of a cube for each class.
fn clouds(stream: u64, rows: usize, noise: f64) -> Features {
    let mut numbers = random::Key::new(stream, random::Purpose::Bench).stream();
    let labels: Vec<u32> = (0..rows).map(|row| (row % 6) as u32).collect();
    let values = labels.iter().flat_map(|&label| (0..3).map(move |axis| f64::from((label + 1) >> axis & 1)));
    let values: Vec<f32> = values.map(|centre| (centre + noise * numbers.normal()) as f32).collect();
    Features::labelled(3, values, &labels)
}

#[test]
fn every_rate_gives_what_it_gives_alone_on_any_number_of_threads() {
    let (train, test) = (clouds(1, 300, 0.3), clouds(2, 120, 0.3));
    let options = LinearOptions { rates: vec![0.3, 3.0, 30.0], epochs: 6, batch_size: 64, ..Default::default() };
    let run = |rates: &[f64], threads| {
        let options = LinearOptions { rates: rates.to_vec(), ..options.clone() };
        probe(&train, &test, &options, &host(threads, Precision::F32), &mut go_on).unwrap()
    };
    let all = run(&options.rates, 1);
    assert_eq!(all, run(&options.rates, 3));
    for (i, &rate) in options.rates.iter().enumerate() {
        let alone = run(&[rate], 2);
        assert_eq!((alone.rates[0].top1, alone.rates[0].epoch), (all.rates[i].top1, all.rates[i].epoch));
        assert!((alone.epochs[5].losses[0] - all.epochs[5].losses[i]).abs() < 1e-5);
    }
    assert_eq!(all.epochs.len(), 6);
    assert!(all.best.top1 > 75.0 && all.best.top1 == all.rates.iter().map(|r| r.top1).fold(0.0, f64::max));
    assert!(all.best.top5 >= all.best.top1);
    let other = LinearOptions { seed: 1, ..options.clone() };
    let other = probe(&train, &test, &other, &host(1, Precision::F32), &mut go_on).unwrap();
    assert_ne!(other.epochs[0].losses, all.epochs[0].losses, "another seed is another beginning and order");
}

#[test]
fn a_rate_that_diverges_is_never_right_and_leaves_the_others_alone() {
    let (train, test) = (clouds(3, 120, 0.2), clouds(4, 60, 0.2));
    let options = LinearOptions { rates: vec![10.0, 1e38], epochs: 3, batch_size: 16, ..Default::default() };
    let result = probe(&train, &test, &options, &host(1, Precision::F32), &mut go_on).unwrap();
    let alone = LinearOptions { rates: vec![10.0], ..options };
    let alone = probe(&train, &test, &alone, &host(1, Precision::F32), &mut go_on).unwrap();
    assert_eq!(result.rates[0], alone.rates[0]);
    assert!(result.epochs[2].losses[1].is_nan() || result.epochs[2].losses[1] > 1e6);
    assert_eq!(result.best.rate, 10.0);
}

#[test]
fn the_best_is_the_first_epoch_of_the_best_rate() {
    let epoch =
        |epoch, top1: [f64; 2]| LinearEpoch { epoch, losses: vec![1.0; 2], top1: top1.into(), top5: vec![99.0; 2] };
    let epochs = vec![epoch(1, [50.0, 40.0]), epoch(2, [60.0, 60.0]), epoch(3, [60.0, 55.0])];
    let options = LinearOptions { rates: vec![0.1, 0.2], epochs: 3, ..Default::default() };
    let result = result(epochs, &options).unwrap();
    assert_eq!((result.best.rate, result.best.epoch, result.best.top1), (0.1, 2, 60.0));
    assert_eq!(result.rates.iter().map(|r| r.last_top1).collect::<Vec<_>>(), [60.0, 55.0]);
}

#[test]
fn what_cannot_be_trained_is_refused_and_a_probe_can_be_stopped() {
    let (train, test) = (clouds(5, 30, 0.2), clouds(6, 30, 0.2));
    let base = LinearOptions { epochs: 2, batch_size: 8, ..Default::default() };
    let host = host(1, Precision::F32);
    let say = |train: &Features, options: &LinearOptions| {
        probe(train, &test, options, &host, &mut go_on).unwrap_err().to_string()
    };
    for (options, word) in [
        (LinearOptions { rates: vec![], ..base.clone() }, "learning rates"),
        (LinearOptions { rates: vec![0.1, -1.0], ..base.clone() }, "learning rate = -1"),
        (LinearOptions { epochs: 0, ..base.clone() }, "epochs"),
        (LinearOptions { batch_size: 0, ..base.clone() }, "batch_size"),
        (LinearOptions { momentum: 1.0, ..base.clone() }, "momentum"),
    ] {
        let said = say(&train, &options);
        assert!(said.contains(word), "{said}");
    }
    // A label so high that classifiers for all classes below it would not fit.
    let high = Features { labels: vec![Some((1 << 20) - 1); 30], ..train.clone() };
    let wide = LinearOptions { rates: vec![0.1; 1000], ..base.clone() };
    assert!(say(&high, &wide).contains("at most 341 for 1048576 classes"), "{}", say(&high, &wide));
    let unlabelled = Features { labels: vec![None; 30], ..train.clone() };
    assert!(say(&unlabelled, &base).contains("30 of 30 training images have no label"));
    let stop = &mut |progress: LinearProgress<'_>| match progress.epoch {
        1 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    };
    assert!(matches!(probe(&train, &test, &base, &host, stop), Err(EvalError::Stopped)));
}

#[test]
fn images_are_seen_anew_in_every_epoch_and_learnt_from() {
    use model::{Arch, Layout, Vit, VitConfig};
    let host = host(2, Precision::F32);
    let mut layout = Layout::default();
    let vit = Vit::new(&mut layout, "", VitConfig::new(Arch::Nano, 8, (32, 32), 3).unwrap());
    let weights = layout.initial(&host, 0);
    let network = Network::new(&vit, &weights, &host);
    let open = |split| data::open("synthetic:train=200,test=60,size=32", split, 0).unwrap();
    let read = ReadOptions { workers: 2, ..Default::default() };
    let silent = &mut |_| ControlFlow::Continue(());
    let preparation = Preparation::Stretch((32, 32));
    let test = extract(network, &*open(data::Split::Test), &preparation, &read, silent).unwrap().features;
    let options = LinearOptions { rates: vec![0.02, 0.2], epochs: 4, batch_size: 50, ..Default::default() };
    let train = ProbeImages { network, source: open(data::Split::Train), size: (32, 32), read };
    let run = || probe_images(&train, &test, &options, &host, &mut go_on).unwrap();
    let (result, skipped) = run();
    assert!(skipped.is_empty() && result.epochs.len() == 4);
    assert!(result.epochs[3].losses[1] < result.epochs[0].losses[1], "{:?}", result.epochs);
    assert_eq!(run().0, result);
    // Views are not the images themselves, nor the same in two epochs.
    let views = |epoch| {
        let indices: Vec<usize> = (0..20).collect();
        let views = images::Views::new(&train, &indices, 0, epoch);
        extract(network, &views, &preparation, &read, &mut |_| ControlFlow::Continue(())).unwrap().features
    };
    let plain = extract(network, &*train.source, &preparation, &read, silent).unwrap().features;
    assert_ne!(views(0).values, plain.values[..20 * plain.dim]);
    assert_ne!(views(0).values, views(1).values);
    assert_eq!(views(0).labels, plain.labels[..20]);
    let stop = &mut |_: LinearProgress<'_>| ControlFlow::Break(());
    assert!(matches!(probe_images(&train, &test, &options, &host, stop), Err(EvalError::Stopped)));
}
