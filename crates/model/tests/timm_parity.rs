//! Features and gradients of ViT-Tiny, -Small and -Base against timm's with the same weights.
//!
//! The fixtures are made by `tools/oracle/vit_fixtures.py`, whose header has their format; the closed forms of weights,
//! images, loss and projections are in `tools/oracle/vit_hash.py`.

mod common;

use std::collections::BTreeMap;

use common::device;
use model::{Arch, Layout, Tokens, Vit, VitConfig, VitInput};
use serde_json::Value;
use tensor::ops::{PixelData, Pixels};
use tensor::{Device, ParamId, ParamSet, Precision};

const INPUT_STREAM: u64 = 1_000_000;
const LOSS_STREAM: u64 = 2_000_000;
const PROJECTION_STREAM: u64 = 3_000_000;
const BATCH: usize = 2;

/// Value `i` of a stream: splitmix64 mapped to [-1, 1).
fn hash(stream: u64, i: u64) -> f64 {
    let mut z = (stream << 32 | i).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    (z >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

fn hashes(stream: u64, count: usize) -> impl Iterator<Item = f64> {
    (0..count as u64).map(move |i| hash(stream, i))
}

/// The weights of all parameters, numbered in the order of the layout.
fn hash_weights(layout: &Layout, device: &Device) -> ParamSet {
    let mut weights = layout.zeros(device);
    for (q, spec) in layout.specs().iter().enumerate() {
        let (offset, scale) = match spec.name.as_str() {
            name if name.ends_with("bias") => (0.0, 0.1),
            name if name.contains("norm") => (1.0, 0.2),
            "cls_token" | "pos_embed" => (0.0, 0.5),
            _ => (0.0, (3.0 / spec.shape[1..].iter().product::<usize>() as f64).sqrt()),
        };
        let tensor = &mut weights[ParamId(q)];
        let values: Vec<f64> = hashes(q as u64, tensor.len()).map(|u| offset + scale * u).collect();
        tensor.copy_from_f64(&values);
    }
    weights
}

/// Largest error over a case, each relative to what it belongs to.
#[derive(Default)]
struct Errors {
    /// A feature's values and norm, relative to the feature's norm; and the loss, relative to itself.
    feature: f64,
    /// A gradient's norm and projection, relative to the gradient's norm, by parameter.
    gradients: BTreeMap<String, f64>,
}

impl Errors {
    fn worst_gradient(&self) -> (&str, f64) {
        let worst = self.gradients.iter().max_by(|a, b| a.1.total_cmp(b.1)).expect("at least one gradient");
        (worst.0, *worst.1)
    }
}

fn fixture(arch: Arch) -> Value {
    let path = format!("{}/tests/fixtures/{arch}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number")).collect()
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// One case of a fixture, run with our network.
fn run(case: &Value, vit: &Vit, layout: &Layout, weights: &ParamSet, device: &Device) -> Errors {
    let size = |key: &str| case[key].as_u64().expect("a size") as usize;
    let (height, width, dim) = (size("height"), size("width"), vit.config().dim);
    let stream = INPUT_STREAM + size("number") as u64;
    let values: Vec<f64> = hashes(stream, BATCH * 3 * height * width).map(|u| 2.0 * u).collect();
    let images = [Pixels { count: BATCH, height, width, channels: 3, data: PixelData::Values(&values) }];
    let (features, saved) = vit.forward(weights, device, &VitInput::images(&images), Tokens::Class).unwrap();
    let d_features: Vec<f64> = hashes(LOSS_STREAM, BATCH * dim).collect();

    let mut errors = Errors::default();
    let got = features.to_f64();
    for (b, got) in got.chunks(dim).enumerate() {
        let want_norm = case["feature_norm"][b].as_f64().unwrap();
        let want = numbers(&case["features"][b]);
        let differences = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).chain([(norm(got) - want_norm).abs()]);
        errors.feature = differences.fold(errors.feature, |m, d| m.max(d / want_norm));
    }
    let loss: f64 = got.iter().zip(&d_features).map(|(a, b)| a * b).sum();
    // Relative to what a projection of this length can be, as with gradients.
    let scale = norm(&got) * norm(&d_features) / (got.len() as f64).sqrt();
    errors.feature = errors.feature.max((loss - case["loss"].as_f64().unwrap()).abs() / scale);

    let mut grads = weights.zeros_like();
    vit.backward(weights, saved, &device.from_f64(&[BATCH, dim], &d_features), &mut grads);
    for (name, want) in case["gradients"].as_object().expect("gradients by name") {
        let id = layout.find(name).unwrap_or_else(|| panic!("no parameter {name}"));
        let got = grads[id].to_f64();
        let want = numbers(want);
        let projection: f64 =
            got.iter().zip(hashes(PROJECTION_STREAM + id.0 as u64, got.len())).map(|(a, b)| a * b).sum();
        let error = (norm(&got) - want[0]).abs().max((projection - want[1]).abs()) / want[0];
        errors.gradients.insert(name.clone(), error);
    }
    errors
}

/// What is asked of single precision is 1e-4. This is a tenth of it, and ten times what is reached and what PyTorch's own
/// single precision reaches: at 1e-4 the other GELU (by tanh) would go unnoticed.
const SINGLE: f64 = 1e-5;
const DOUBLE: f64 = 1e-11;

/// All cases of a fixture within `tolerance`.
fn check(arch: Arch, precision: Precision, tolerance: f64) {
    let fixture = fixture(arch);
    let device = device(precision, 2);
    let mut layout = Layout::default();
    let vit = Vit::new(&mut layout, "", VitConfig::new(arch, 16, (224, 224), 3).unwrap());
    let weights = hash_weights(&layout, &device);
    let cases = fixture["cases"].as_array().expect("cases");
    assert!(!cases.is_empty());
    for case in cases {
        let errors = run(case, &vit, &layout, &weights, &device);
        let size = format!("{arch} {}x{} {precision:?}", case["height"], case["width"]);
        let (name, worst) = errors.worst_gradient();
        println!(
            "{size}: features {:.1e}, {} gradients, worst {worst:.1e} ({name})",
            errors.feature,
            errors.gradients.len()
        );
        assert!(errors.feature < tolerance, "{size}: features off by {:e}", errors.feature);
        assert!(worst < tolerance, "{size}: gradient of {name} off by {worst:e}");
        if (case["height"].as_u64(), case["width"].as_u64()) == (Some(224), Some(224)) {
            assert_eq!(errors.gradients.len(), layout.specs().len(), "every parameter's gradient is in the fixture");
        }
    }
}

#[test]
fn the_hash_is_that_of_the_fixtures() {
    let rows = [
        (0, 0, 0.7666216164272852),
        (0, 1, 0.1331231503445618),
        (1, 0, 0.532603514678172),
        (2, 147_455, 0.9297731113165444),
        (INPUT_STREAM, 0, 0.9038911642212244),
        (LOSS_STREAM, 5, 0.33403162632626504),
        (PROJECTION_STREAM, 0, -0.2576089711284191),
    ];
    for (stream, i, u) in rows {
        assert_eq!(hash(stream, i), u);
    }
}

#[test]
fn tiny_in_double_precision_at_three_image_sizes() {
    check(Arch::Tiny, Precision::F64, DOUBLE);
}

#[test]
fn tiny_in_single_precision_at_three_image_sizes() {
    check(Arch::Tiny, Precision::F32, SINGLE);
}

#[test]
fn small_in_single_precision() {
    check(Arch::Small, Precision::F32, SINGLE);
}

#[test]
fn base_in_single_precision() {
    check(Arch::Base, Precision::F32, SINGLE);
}
