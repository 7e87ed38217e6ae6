//! Networks whose weights are closed forms, so that other software can compute the same: `tools/oracle/vit_hash.py` has
//! those of a backbone, `tools/oracle/onnx_vit.py` those of registers, LayerScale and head.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;

use onnx::vit::{Head, Mixture, Tensors, VitGraph};
use onnx::{Model, Value};

/// The stream of the images of case 0.
pub const INPUT_STREAM: u64 = 1_000_000;
/// The streams of a mixture: directions, concentrations, log-normalisers, logarithms of the weights.
const MIXTURE_STREAM: u64 = 10_000;

/// Value `i` of a stream: splitmix64 mapped to [-1, 1).
pub fn hash(stream: u64, i: u64) -> f64 {
    let mut z = (stream << 32 | i).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    (z >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

pub fn hashes(stream: u64, count: usize) -> impl Iterator<Item = f64> {
    (0..count as u64).map(move |i| hash(stream, i))
}

/// Images of a batch, as all fixtures have them.
pub fn pixels(vit: &VitGraph, batch: usize, stream: u64) -> BTreeMap<String, Value> {
    let shape = [batch, vit.channels, vit.image.0, vit.image.1];
    let values = hashes(stream, shape.iter().product()).map(|u| (2.0 * u) as f32).collect();
    BTreeMap::from([("pixels".to_owned(), Value::f32(&shape, values).unwrap())])
}

/// Tensors by name: shapes and numbers of the parameters, which give the values.
#[derive(Default)]
pub struct ClosedForm {
    parameters: BTreeMap<String, (Vec<usize>, u64)>,
}

impl ClosedForm {
    /// The tensors of a backbone, and of a head with these widths.
    pub fn of(vit: &VitGraph, head: &[usize]) -> Self {
        let (dim, mlp, patch) = (vit.dim, vit.mlp_dim, vit.patch);
        let mut form = Self::default();
        form.add("cls_token", &[1, 1, dim]);
        form.add("pos_embed", &[1, 1 + vit.patches(), dim]);
        form.add("patch_embed.proj.weight", &[dim, vit.channels, patch, patch]);
        form.add("patch_embed.proj.bias", &[dim]);
        for block in (0..vit.depth).map(|i| format!("blocks.{i}")) {
            form.pair(&format!("{block}.norm1"), &[dim]);
            form.pair(&format!("{block}.attn.qkv"), &[3 * dim, dim]);
            form.pair(&format!("{block}.attn.proj"), &[dim, dim]);
            form.pair(&format!("{block}.norm2"), &[dim]);
            form.pair(&format!("{block}.mlp.fc1"), &[mlp, dim]);
            form.pair(&format!("{block}.mlp.fc2"), &[dim, mlp]);
        }
        form.pair("norm", &[dim]);
        if vit.registers > 0 {
            form.add("register_tokens", &[1, vit.registers, dim]);
        }
        for block in (0..vit.depth).map(|i| format!("blocks.{i}")).filter(|_| vit.layer_scale) {
            form.add(&format!("{block}.ls1.gamma"), &[dim]);
            form.add(&format!("{block}.ls2.gamma"), &[dim]);
        }
        let widths = [&[dim], head].concat();
        for (i, sides) in widths.windows(2).enumerate() {
            form.pair(&head_layer(i), &[sides[1], sides[0]]);
        }
        form
    }

    fn pair(&mut self, layer: &str, shape: &[usize]) {
        self.add(&format!("{layer}.weight"), shape);
        self.add(&format!("{layer}.bias"), &shape[..1]);
    }

    fn add(&mut self, name: &str, shape: &[usize]) {
        let number = self.parameters.len() as u64;
        self.parameters.insert(name.to_owned(), (shape.to_vec(), number));
    }

    pub fn remove(&mut self, name: &str) {
        self.parameters.remove(name).unwrap();
    }
}

impl Tensors for ClosedForm {
    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.parameters.get(name).map(|(shape, _)| shape.clone())
    }

    fn values(&self, name: &str) -> io::Result<Cow<'_, [f32]>> {
        let (shape, number) = &self.parameters[name];
        let (offset, scale) = match name {
            _ if name.ends_with("bias") => (0.0, 0.1),
            _ if name.ends_with("gamma") => (0.5, 0.3),
            _ if name.contains("norm") => (1.0, 0.2),
            "cls_token" | "pos_embed" | "register_tokens" => (0.0, 0.5),
            _ => (0.0, (3.0 / shape[1..].iter().product::<usize>() as f64).sqrt()),
        };
        let values = hashes(*number, shape.iter().product()).map(|u| (offset + scale * u) as f32);
        Ok(values.collect())
    }
}

/// The name of linear layer `i` of a head.
fn head_layer(i: usize) -> String {
    format!("head.mlp.{}", 2 * i)
}

/// A network with everything that a network may have, as small as can be.
pub fn tiny() -> (VitGraph, ClosedForm, Head) {
    let vit = VitGraph {
        dim: 16,
        depth: 2,
        heads: 2,
        mlp_dim: 40,
        patch: 4,
        channels: 3,
        // Four by three patches, and some pixels too many.
        image: (18, 13),
        registers: 2,
        layer_scale: true,
        epsilon: 1e-6,
    };
    with_head(vit, &[12, 10, 5], 6)
}

/// The smallest such network, where a fuzzer begins.
pub fn seed() -> (VitGraph, ClosedForm, Head) {
    let (vit, ..) = tiny();
    let vit = VitGraph { dim: 4, depth: 1, mlp_dim: 3, patch: 2, channels: 1, image: (4, 2), registers: 1, ..vit };
    with_head(vit, &[3, 2], 2)
}

fn with_head(vit: VitGraph, widths: &[usize], components: usize) -> (VitGraph, ClosedForm, Head) {
    let tensors = ClosedForm::of(&vit, widths);
    let layers = (0..widths.len()).map(head_layer).collect();
    let mixture = mixture(components, *widths.last().unwrap());
    (vit, tensors, Head { layers, mixture })
}

/// The model of a network, with something in every field.
pub fn model<'a>(vit: &VitGraph, tensors: &'a ClosedForm, head: Option<&Head>) -> Model<'a> {
    let metadata = [("image.mean", "0.485 0.456 0.406"), ("image.std", "0.229 0.224 0.225")];
    Model {
        producer_name: "closed forms".to_owned(),
        producer_version: "1".to_owned(),
        metadata: metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ..vit.build(tensors, head).unwrap()
    }
}

/// Components whose logits are in the hundreds, where `exp` overflows.
fn mixture(components: usize, dim: usize) -> Mixture {
    let rows: Vec<f64> = hashes(MIXTURE_STREAM, components * dim).collect();
    let unit = |row: &[f64]| {
        let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        row.iter().map(|x| (x / norm) as f32).collect::<Vec<_>>()
    };
    let list = |stream: u64| hashes(MIXTURE_STREAM + stream, components);
    let concentrations: Vec<f64> = list(1).map(|u| 40.0 + 30.0 * u).collect();
    Mixture {
        directions: rows.chunks(dim).flat_map(unit).collect(),
        log_normalizers: list(2).zip(&concentrations).map(|(u, kappa)| 300.0 - kappa + 5.0 * u).collect(),
        log_weights: list(3).map(|u| -2.0 + u).collect(),
        concentrations,
    }
}

/// A backbone of the literature, without registers and LayerScale.
pub fn vit16(dim: usize) -> VitGraph {
    VitGraph {
        dim,
        depth: 12,
        heads: dim / 64,
        mlp_dim: 4 * dim,
        patch: 16,
        channels: 3,
        image: (224, 224),
        registers: 0,
        layer_scale: false,
        epsilon: 1e-6,
    }
}
