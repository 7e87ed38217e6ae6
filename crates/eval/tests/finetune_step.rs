//! Three optimiser steps of both fine-tuning recipes against timm and PyTorch, from the same weights, images, soft targets and
//! branches.
//!
//! tools/oracle/finetune_step.py wrote the results.

use data::supervised::smoothed;
use eval::finetune::{Facts, FineTuneRecipe, Kind, Tuner};
use model::{DropPath, Extras, Layout, Vit, VitConfig};
use serde_json::Value;
use tensor::ops::{PixelData, Pixels};
use tensor::{CpuOptions, Device, ParamId, ParamSet, Precision};
use train::reduce::Alone;

const CONFIG: VitConfig =
    VitConfig { dim: 8, depth: 3, heads: 2, mlp_dim: 16, patch: 4, image: (8, 8), channels: 3, extras: Extras::NONE };
const IMAGES: usize = 6;
const CLASSES: usize = 5;
const INPUT_STREAM: u64 = 1_000_000;
const PROJECTION_STREAM: u64 = 3_000_000;
const BRANCH_STREAM: u64 = 4_000_000;

/// u(stream, 0 .. count-1) of tools/oracle/vit_hash.py.
fn uniform(stream: u64, count: usize) -> Vec<f64> {
    let at = |i: u64| {
        let z = ((stream << 32) + i).wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let z = z ^ (z >> 31);
        (z >> 11) as f64 * (-52f64).exp2() - 1.0
    };
    (0..count as u64).map(at).collect()
}

/// The weights of the script, by name.
fn begun(device: &Device) -> (Layout, ParamSet) {
    let mut layout = Layout::default();
    Vit::new(&mut layout, "", CONFIG);
    model::Classifier::new(&mut layout, "head", CONFIG.dim, CLASSES);
    let mut weights = layout.zeros(device);
    for (q, spec) in layout.specs().iter().enumerate() {
        let fan_in: usize = spec.shape[1..].iter().product();
        let value = |u: f64| match spec.name.as_str() {
            name if name.ends_with("bias") => 0.1 * u,
            name if name.contains("norm") => 1.0 + 0.2 * u,
            "cls_token" | "pos_embed" => 0.5 * u,
            _ => (3.0 / fan_in as f64).sqrt() * u,
        };
        let values: Vec<f64> = uniform(q as u64, weights[ParamId(q)].len()).into_iter().map(value).collect();
        weights[ParamId(q)].copy_from_f64(&values);
    }
    (layout, weights)
}

/// Norm, and projection on the direction of parameter q.
fn summary(values: &[f64], q: usize) -> [f64; 2] {
    let direction = uniform(PROJECTION_STREAM + q as u64, values.len());
    let norm = values.iter().map(|x| x * x).sum::<f64>().sqrt();
    [norm, values.iter().zip(direction).map(|(x, r)| x * r).sum()]
}

/// The largest difference of a set of tensors from the script's, relative to their norms.
fn difference(of: impl Fn(usize) -> Vec<f64>, layout: &Layout, expected: &Value, skip: &str) -> f64 {
    let mut worst: f64 = 0.0;
    for (q, spec) in layout.specs().iter().enumerate().filter(|(_, spec)| !spec.name.ends_with(skip)) {
        let expected = [0, 1].map(|i| expected[&spec.name][i].as_f64().unwrap());
        let found = summary(&of(q), q);
        let apart = (0..2).map(|i| (found[i] - expected[i]).abs()).fold(0.0, f64::max) / expected[0].max(1e-12);
        worst = worst.max(apart);
    }
    worst
}

/// Runs the three steps; the largest relative differences of losses, first gradients and updates.
fn run(kind: Kind, precision: Precision, skip: &str) -> [f64; 3] {
    let text = include_str!("fixtures/finetune_step.json");
    let fixture: Value = serde_json::from_str(text).unwrap();
    let number = |key: &str| fixture[key].as_f64().unwrap();
    let expected = &fixture[kind.name()];
    let given = [("layer_decay", if kind == Kind::Beit { number("layer_decay") } else { 1.0 })];
    let given = given.map(|(key, value)| (key.to_owned(), value.to_string()));
    let recipe = FineTuneRecipe::resolve(kind, &Facts { images: 1000, width: 384 }, &given).unwrap();
    let device = Device::cpu(CpuOptions { threads: Some(1), precision }).unwrap();
    let mut tuner = Tuner::new(&device, CONFIG, CLASSES, &recipe).unwrap();
    let (layout, weights) = begun(&device);
    assert_eq!(tuner.begin_with(&layout, &weights), layout.specs().len(), "all weights are given");

    let (mut of_losses, mut of_gradients): (f64, f64) = (0.0, 0.0);
    for step in 0..3 {
        let values: Vec<f64> =
            uniform(INPUT_STREAM + step as u64, IMAGES * 3 * 64).into_iter().map(|u| 2.0 * u).collect();
        let images = [Pixels { count: IMAGES, height: 8, width: 8, channels: 3, data: PixelData::Values(&values) }];
        let share = fixture["lambdas"][step].as_f64().unwrap();
        let mut targets = vec![0.0; IMAGES * CLASSES];
        for (i, target) in targets.chunks_exact_mut(CLASSES).enumerate() {
            smoothed(target, (i + step) % CLASSES, 0.1, share);
            smoothed(target, (IMAGES - 1 - i + step) % CLASSES, 0.1, 1.0 - share);
        }
        let drawn = uniform(BRANCH_STREAM + step as u64, IMAGES * 6);
        let takes = |i: usize, block: usize, branch: usize| block == 0 || drawn[6 * i + 2 * block + branch] >= -0.6;
        let drop_path = DropPath::chosen(number("drop_path"), 3, IMAGES, takes);
        tuner.clear();
        // In two parts, whose gradients are added up.
        let mut loss = 0.0;
        for part in [0..4, 4..6] {
            let taken = drop_path.segments(|i| part.contains(&i));
            let targets = &targets[part.start * CLASSES..part.end * CLASSES];
            let images = [images[0].slice(part)];
            loss += tuner.add_gradient(&images, targets, Some(&taken), 1.0 / IMAGES as f64).unwrap();
        }
        let expected_loss = expected["losses"][step].as_f64().unwrap();
        of_losses = of_losses.max((loss / expected_loss - 1.0).abs());
        if step == 0 {
            let gradient = |q: usize| tuner.gradient()[ParamId(q)].to_f64();
            of_gradients = difference(gradient, &layout, &expected["gradients"], skip);
        }
        tuner.complete(Ok(loss), fixture["rates"][step].as_f64().unwrap(), &mut Alone).unwrap();
    }
    let update = |q: usize| -> Vec<f64> {
        let (now, before) = (tuner.weights()[ParamId(q)].to_f64(), weights[ParamId(q)].to_f64());
        now.iter().zip(before).map(|(now, before)| now - before).collect()
    };
    [of_losses, of_gradients, difference(update, &layout, &expected["updates"], skip)]
}

fn shown(apart: [f64; 3]) -> String {
    apart.map(|x| format!("{x:.1e}")).join(", ")
}

#[test]
fn three_steps_of_each_recipe_are_those_of_timm_and_pytorch() {
    for kind in [Kind::Beit, Kind::Deit] {
        let apart = run(kind, Precision::F64, "nothing");
        println!("{}: f64 losses, gradients and updates differ by {}", kind.name(), shown(apart));
        assert!(apart.iter().all(|&x| x < 1e-7), "{kind:?}: {apart:?}");
    }
}

#[test]
fn in_single_precision_they_are_so_to_one_in_ten_thousand() {
    for kind in [Kind::Beit, Kind::Deit] {
        // The gradient of the keys' bias is zero but for rounding, and AdamW divides by its size.
        let apart = run(kind, Precision::F32, "qkv.bias");
        println!("{}: f32 losses, gradients and updates differ by {}", kind.name(), shown(apart));
        assert!(apart.iter().all(|&x| x < 1e-4), "{kind:?}: {apart:?}");
    }
}
