//! Copy detection against PyTorch, timm and NumPy, and on a made-up set.

mod common;

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use common::{deviation, expected, hashed_tiny, numbers, pictures};
use data::{Orientation, PathsSource};
use eval::copies::{CopySet, Whitening, describe, score};
use eval::{EvalError, Features, Network, ReadOptions};
use tensor::{CpuOptions, Device, Precision};

fn device(threads: usize) -> Device {
    Device::cpu(CpuOptions { threads: Some(threads), precision: Precision::F32 }).unwrap()
}

fn options() -> ReadOptions {
    ReadOptions { batch_size: 2, workers: 2, orientation: Orientation::AsStored, ..Default::default() }
}

#[test]
fn features_are_the_class_token_and_the_generalised_mean_of_pytorch() {
    let device = device(2);
    let (vit, weights) = hashed_tiny(&device);
    for case in expected("retrieval/expected.json")["copies"].as_array().unwrap() {
        let side = case["side"].as_u64().unwrap() as usize;
        let source = PathsSource::new(&pictures(), vec![case["file"].as_str().unwrap().into()]).unwrap();
        let network = Network::new(&vit, &weights, &device);
        let found = describe(network, &source, (side, side), &options(), &mut |_| ControlFlow::Continue(())).unwrap();
        let feature = found.features.row(0);
        assert_eq!(feature.len(), 2 * 192);
        for (part, key) in feature.chunks(192).zip(["class", "gem"]) {
            let deviation = deviation(&part[..16], &numbers(&case[key]));
            println!("{} {key}: {deviation:.2e}", case["file"]);
            assert!(deviation < 1e-5, "{} {key}: {deviation}", case["file"]);
        }
        for (part, norm) in feature.chunks(192).zip(numbers(&case["norms"])) {
            let ours = part.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            assert!((ours / norm - 1.0).abs() < 1e-5, "{ours} {norm}");
        }
    }
}

#[test]
fn whitening_is_that_of_numpy() {
    let fixture = &expected("retrieval/expected.json")["whitening"];
    let rows = |key: &str| {
        let rows: Vec<Vec<f64>> = fixture[key].as_array().unwrap().iter().map(numbers).collect();
        let values = rows.concat().iter().map(|&x| x as f32).collect();
        Features::labelled(rows[0].len(), values, &vec![0; rows.len()])
    };
    let (x, host) = (rows("x"), device(2));
    let mut y = rows("y");
    let whitening = Whitening::fit(&x, &host).unwrap();
    whitening.apply(&mut y, &host);
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let norms: Vec<f64> = (0..3).map(|i| dot(y.row(i), y.row(i)).sqrt()).collect();
    for (norm, want) in norms.iter().zip(numbers(&fixture["norms"])) {
        assert!((norm / want - 1.0).abs() < 1e-5, "{norm} {want}");
    }
    for i in 0..3 {
        for (j, want) in numbers(&fixture["cosines"][i]).iter().enumerate() {
            let ours = dot(y.row(i), y.row(j)) / norms[i] / norms[j];
            assert!((ours - want).abs() < 1e-5, "{ours} {want}");
        }
    }
    let single = Features::labelled(5, vec![1.0; 5], &[0]);
    assert!(matches!(Whitening::fit(&single, &host), Err(EvalError::Empty { .. })));
}

/// A set of two originals with one strong copy of the first and two of the second.
fn made_up(folder: &Path) -> CopySet {
    let names = ["discs.jpg", "stripes_tall.jpg"];
    let copy = |from: &str, to: &str| {
        let to = folder.join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(pictures().join(from), to).unwrap();
    };
    copy(names[0], "original/200000.jpg");
    copy(names[1], "original/200100.jpg");
    copy(names[0], "strong/200001.jpg");
    copy(names[1], "strong/200101.jpg");
    copy("checks_small.jpg", "strong/200102.jpg");
    copy(names[0], "crops/50/200000.jpg");
    copy(names[1], "crops/50/200100.jpg");
    CopySet::open(folder).unwrap()
}

#[test]
fn a_made_up_set_is_scored_block_by_block() {
    let (folder, device) = (tempfile::tempdir().unwrap(), device(2));
    let set = made_up(folder.path());
    let (vit, weights) = hashed_tiny(&device);
    let network = Network::new(&vit, &weights, &device);
    let of = |source: &PathsSource| {
        describe(network, source, (48, 48), &options(), &mut |_| ControlFlow::Continue(())).unwrap().features
    };
    let database = of(&set.originals);
    for block in &set.blocks {
        let map = score(block, &database, &of(&block.images), &device).unwrap();
        // Two of the strong copies are their originals; of two images the other one's is found first or second.
        let right = if block.name == "strong" { (2.0 + 0.25) / 3.0..=1.0 } else { 1.0..=1.0 };
        assert!(right.contains(&map), "{}: {map}", block.name);
    }
}

#[test]
fn precision_is_judged_among_the_twenty_nearest() {
    let (folder, device) = (tempfile::tempdir().unwrap(), device(1));
    let set = made_up(folder.path());
    let strong = &set.blocks[1];
    // The originals lie along the axes; 30 distractors are nearer to the second query than its original.
    let mut database = vec![1.0, 0.0, 0.0, 1.0];
    let distractors = |count: usize| (0..count).flat_map(|_| [1.0, 0.2]);
    let queries = Features::labelled(2, vec![1.0, 0.01, 1.0, 0.2, 0.0, 1.0], &[0; 3]);
    let run = |database: &[f32]| {
        let features = Features::labelled(2, database.to_vec(), &vec![0; database.len() / 2]);
        score(strong, &features, &queries, &device).unwrap()
    };
    assert_eq!(run(&database), (1.0 + 0.25 + 1.0) / 3.0, "second of two: (0 / 1 + 1 / 2) / 2");
    database.extend(distractors(18));
    // Behind 18 distractors and the other original: place 19, the last that counts.
    assert_eq!(run(&database), (1.0 + 0.5 / 20.0 + 1.0) / 3.0);
    database.extend(distractors(1));
    assert_eq!(run(&database), 2.0 / 3.0, "beyond the twentieth it is not found");
    let narrow = Features::labelled(1, vec![1.0], &[0]);
    assert!(matches!(score(strong, &narrow, &queries, &device), Err(EvalError::Width { .. })));
}

#[test]
fn threads_change_nothing() {
    let (folder, run) = (tempfile::tempdir().unwrap(), |threads: usize, set: &CopySet| {
        let device = device(threads);
        let (vit, weights) = hashed_tiny(&device);
        let network = Network::new(&vit, &weights, &device);
        let mut features =
            describe(network, &set.blocks[1].images, (48, 64), &options(), &mut |_| ControlFlow::Continue(()))
                .unwrap()
                .features;
        Whitening::fit(&features.clone(), &device).unwrap().apply(&mut features, &device);
        features.values
    });
    let set = made_up(folder.path());
    assert_eq!(run(1, &set), run(3, &set));
}
