//! Tests the classifier against NumPy and scikit-learn: `tests/fixtures/knn.json`, written by `tools/oracle/knn_fixture.py`.

use serde_json::Value;
use tensor::{CpuOptions, Device, Precision};

use crate::features::Features;
use crate::knn::{KnnOptions, KnnResult, classify, leave_one_out};
use crate::neighbors::{Exclude, Neighbor, nearest};

/// u(stream, i) of `tools/oracle/vit_hash.py`.
pub(crate) fn uniform(stream: u64, i: usize) -> f64 {
    let mut z = ((stream << 32) + i as u64).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 * 2f64.powi(-52) - 1.0
}

struct Golden {
    fixture: Value,
    train: Features,
    test: Features,
}

fn golden() -> Golden {
    let fixture: Value = serde_json::from_str(include_str!("../tests/fixtures/knn.json")).unwrap();
    let size = |key: &str| fixture[key].as_u64().unwrap() as usize;
    let (dim, classes, noise) = (size("dim"), size("classes"), fixture["noise"].as_f64().unwrap());
    let features = |rows: usize, class: &dyn Fn(usize) -> usize, length: u64, spread: u64| {
        let labels: Vec<u32> = (0..rows).map(|i| (class(i) % classes) as u32).collect();
        let value = |at: usize| {
            let (i, j) = (at / dim, at % dim);
            let centre = uniform(10, labels[i] as usize * dim + j);
            ((1.0 + 0.5 * uniform(length, i)) * (centre + noise * uniform(spread, at))) as f32
        };
        Features::labelled(dim, (0..rows * dim).map(value).collect(), &labels)
    };
    let train = features(size("train"), &|i| 5 * i + 2, 11, 12);
    let test = features(size("test"), &|i| 3 * i + 1, 13, 14);
    Golden { fixture, train, test }
}

fn device(precision: Precision) -> Device {
    Device::cpu(CpuOptions { threads: Some(1), precision }).unwrap()
}

fn assert_results(results: &[KnnResult], want: &Value, images: usize) {
    let want = want.as_array().unwrap();
    assert_eq!(results.len(), want.len());
    for (got, want) in results.iter().zip(want) {
        let right = |percent: f64| (percent * images as f64 / 100.0).round() as u64;
        let got = (got.k as u64, right(got.top1), right(got.top5));
        let number = |key: &str| want[key].as_u64().unwrap();
        assert_eq!(got, (number("k"), number("top1"), number("top5")));
    }
}

#[test]
fn accuracies_are_those_of_numpy_and_scikit_learn() {
    let Golden { fixture, train, test } = golden();
    let ks = fixture["results"].as_array().unwrap().iter().map(|r| r["k"].as_u64().unwrap() as usize).collect();
    let options = KnnOptions { ks, temperature: fixture["temperature"].as_f64().unwrap() };
    for precision in [Precision::F32, Precision::F64] {
        let device = device(precision);
        assert_results(&classify(&train, &test, &options, &device).unwrap(), &fixture["results"], test.len());
        assert_results(&leave_one_out(&train, &options, &device).unwrap(), &fixture["leave_one_out"], train.len());
    }
}

#[test]
fn neighbours_and_their_cosines_are_those_of_numpy() {
    let Golden { fixture, train, test } = golden();
    let found = nearest(&device(Precision::F64), &train, &test, 10, Exclude::Nothing, |_, n| n.to_vec()).unwrap();
    for (found, want) in found.iter().zip(fixture["neighbors"].as_array().unwrap()) {
        for (at, &Neighbor { row, similarity }) in found.iter().enumerate() {
            assert_eq!(Some(row as u64), want["rows"][at].as_u64());
            assert!((similarity - want["cosines"][at].as_f64().unwrap()).abs() < 1e-11, "{similarity}");
        }
    }
}
