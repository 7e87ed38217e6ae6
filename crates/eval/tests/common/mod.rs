//! What the tests of protocols share: fixtures, the closed-form network of `tools/oracle/vit_hash.py`, and where real data is.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};

use model::weights::LoadedHead;
use model::{Arch, HeadConfig, Layout, Projector, PrototypeLayer, Vit, VitConfig};
use serde_json::Value;
use tensor::{Device, ParamId, ParamSet};

/// A file that `tools/oracle` made.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The pictures of the features fixture.
pub fn pictures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/fixtures/features/images")
}

/// A JSON file that `tools/oracle` made.
pub fn expected(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(fixture(name)).unwrap()).unwrap()
}

/// A folder of real data; none, with a message, where it is not there.
pub fn shared(name: &str) -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
    let root = std::env::var("DINO_VMF_TEST_DATA").unwrap_or_else(|_| beside.to_owned());
    let folder = Path::new(&root).join(name);
    if !folder.is_dir() {
        eprintln!("skipped: no data in {}", folder.display());
    }
    Some(folder).filter(|folder| folder.is_dir())
}

/// Numbers of a JSON list.
pub fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

/// How far two vectors are apart, relative to the second.
pub fn deviation(ours: &[f32], theirs: &[f64]) -> f64 {
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let difference = norm(&mut ours.iter().zip(theirs).map(|(a, b)| f64::from(*a) - b));
    difference / norm(&mut theirs.iter().copied())
}

/// u(stream, i) of `tools/oracle/vit_hash.py`.
pub fn hash(stream: u64, i: u64) -> f64 {
    let mut z = (stream << 32 | i).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    (z >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// ViT-Tiny/16 for 224 pixels with the weights of `vit_hash.py`.
pub fn hashed_tiny(device: &Device) -> (Vit, ParamSet) {
    let mut layout = Layout::default();
    let vit = Vit::new(&mut layout, "", VitConfig::new(Arch::Tiny, 16, (224, 224), 3).unwrap());
    let mut weights = layout.zeros(device);
    for (q, spec) in layout.specs().iter().enumerate() {
        let (offset, scale) = match spec.name.as_str() {
            name if name.ends_with("bias") => (0.0, 0.1),
            name if name.contains("norm") => (1.0, 0.2),
            "cls_token" | "pos_embed" => (0.0, 0.5),
            _ => (0.0, (3.0 / spec.shape[1..].iter().product::<usize>() as f64).sqrt()),
        };
        let tensor = &mut weights[ParamId(q)];
        let values: Vec<f64> = (0..tensor.len() as u64).map(|i| offset + scale * hash(q as u64, i)).collect();
        tensor.copy_from_f64(&values);
    }
    (vit, weights)
}

/// A head whose MLP is the identity in `p` dimensions, with these prototypes: v_k one after another, and g_k.
pub fn identity_head(device: &Device, p: usize, directions: &[f64], lengths: &[f64]) -> LoadedHead {
    let count = lengths.len();
    let config = HeadConfig { inputs: p, hidden: p, bottleneck: p, prototypes: count, layers: 1, batch_norm: false };
    let mut layout = Layout::default();
    let projector = Projector::new(&mut layout, "head.mlp", &config.projector());
    let prototypes = PrototypeLayer::new(&mut layout, "head.last_layer", count, p);
    let mut weights = layout.zeros(device);
    let identity: Vec<f64> = (0..p * p).map(|at| if at / p == at % p { 1.0 } else { 0.0 }).collect();
    weights[layout.find("head.mlp.weight").unwrap()].copy_from_f64(&identity);
    weights[prototypes.direction()].copy_from_f64(directions);
    weights[prototypes.magnitude()].copy_from_f64(lengths);
    LoadedHead { config, projector, prototypes, weights }
}
