//! Vision transformers, exported, read back and run, against onnxruntime and timm.

mod common;

use common::{ClosedForm, INPUT_STREAM, model, pixels, tiny, vit16};
use onnx::vit::{BuildError, Head, VitGraph};
use onnx::{Dim, Writer, read, run};
use serde_json::Value as Json;

fn json(path: &str) -> Json {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))).unwrap()
}

fn numbers(json: &Json) -> Vec<f64> {
    json.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number")).collect()
}

/// Largest difference, relative to the largest number.
fn difference(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    found.iter().zip(expected).fold(0.0f64, |most, (a, b)| most.max((f64::from(*a) - b).abs())) / largest
}

/// 64-bit FNV-1a.
fn digest(bytes: &[u8]) -> String {
    let step = |digest: u64, &byte: &u8| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// The fixture is what onnxruntime gave for these very bytes, which PyTorch confirmed: `tools/oracle/onnx_vit.py`.
#[test]
fn a_network_with_registers_layer_scale_and_head_gives_what_onnxruntime_gives() {
    let (vit, tensors, head) = tiny();
    let fixture = json("tests/fixtures/tiny_vit.json");
    let bytes = Writer::new(&model(&vit, &tensors, Some(&head))).unwrap().to_bytes().unwrap();
    assert_eq!(bytes.len() as u64, fixture["file"]["bytes"]);
    assert_eq!(digest(&bytes), fixture["file"]["fnv1a"], "another file: make the fixture anew");
    let model = read(&bytes).unwrap();
    for batch in [1, 7] {
        let outputs = run(&model, pixels(&vit, batch, INPUT_STREAM)).unwrap();
        let shapes = ["class", "kappa", "log_density", "patches"].map(|name| outputs[name].shape().to_vec());
        assert_eq!(shapes, [vec![batch, 16], vec![batch], vec![batch], vec![batch, 12, 16]]);
        for (name, expected) in fixture["batches"][batch.to_string()].as_object().unwrap() {
            let error = difference(outputs[name].as_f32().unwrap(), &numbers(expected));
            assert!(error < 2e-6, "{name}, batch {batch}: {error}");
        }
    }
}

/// Weights, images and features are those with which the network of `crates/model` is compared.
#[test]
fn vit_tiny_gives_the_features_of_timm() {
    let case = &json("../model/tests/fixtures/vit_tiny.json")["cases"][0];
    assert_eq!((case["height"].as_u64(), case["number"].as_u64()), (Some(224), Some(0)));
    let vit = vit16(192);
    let tensors = ClosedForm::of(&vit, &[]);
    let model = model(&vit, &tensors, None);
    assert_eq!(model.graph.outputs.len(), 2);
    let outputs = run(&model, pixels(&vit, 2, INPUT_STREAM)).unwrap();
    let class = outputs["class"].as_f32().unwrap();
    for (b, feature) in class.chunks(vit.dim).enumerate() {
        let norm = case["feature_norm"][b].as_f64().unwrap();
        let found = feature.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        assert!((found / norm - 1.0).abs() < 1e-5, "{found} {norm}");
        for (a, expected) in feature.iter().zip(numbers(&case["features"][b])) {
            assert!((f64::from(*a) - expected).abs() < 1e-5 * norm, "{a} {expected}");
        }
    }
}

#[test]
fn the_batch_has_a_name_and_the_image_a_size() {
    let (vit, tensors, head) = tiny();
    let model = model(&vit, &tensors, Some(&head));
    let batch = Dim::Named("batch".to_owned());
    let dims = |name: &str| {
        let mut all = model.graph.inputs.iter().chain(&model.graph.outputs);
        all.find(|value| value.name == name).unwrap().dims.clone()
    };
    assert_eq!(dims("pixels"), [batch.clone(), Dim::Fixed(3), Dim::Fixed(18), Dim::Fixed(13)]);
    assert_eq!(dims("patches"), [batch.clone(), Dim::Fixed(12), Dim::Fixed(16)]);
    assert_eq!(dims("kappa"), [batch]);
    let norms = model.graph.nodes.iter().filter(|node| node.op == "LayerNormalization").count();
    assert_eq!(norms, 2 * vit.depth + 1);
}

#[test]
fn a_batch_of_no_images_has_no_features() {
    let (vit, tensors, head) = tiny();
    let outputs = run(&model(&vit, &tensors, Some(&head)), pixels(&vit, 0, INPUT_STREAM)).unwrap();
    assert_eq!(outputs["patches"].shape(), [0, 12, 16]);
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_loaded() {
    let (vit, mut tensors, head) = tiny();
    let error = |vit: &VitGraph, tensors: &ClosedForm, head: &Head| vit.build(tensors, Some(head)).unwrap_err();
    let sizes = |vit: VitGraph| matches!(error(&vit, &tensors, &head), BuildError::Sizes { .. });
    assert!(sizes(VitGraph { heads: 3, ..vit.clone() }) && sizes(VitGraph { patch: 14, ..vit.clone() }));
    assert!(sizes(VitGraph { patch: 0, ..vit.clone() }) && sizes(VitGraph { heads: 0, ..vit.clone() }));
    let other_grid = VitGraph { image: (16, 16), ..vit.clone() };
    assert_eq!(
        error(&other_grid, &tensors, &head).to_string(),
        "tensor `pos_embed` has the shape [1, 13, 16] and should have [1, 17, 16]"
    );
    let deeper = VitGraph { depth: 3, ..vit.clone() };
    let missing = BuildError::Missing { name: "blocks.2.norm1.weight".to_owned() };
    assert_eq!(error(&deeper, &tensors, &head), missing);
    let mut narrow = head.clone();
    narrow.mixture.log_weights.pop();
    assert_eq!(error(&vit, &tensors, &narrow).to_string(), "the mixture has 6 components, but 5 mixing weights");
    let mut short = head.clone();
    short.layers.pop();
    assert!(matches!(error(&vit, &tensors, &short), BuildError::Mixture { found: 30, .. }));
    short.layers.clear();
    assert!(matches!(error(&vit, &tensors, &short), BuildError::Sizes { .. }));
    tensors.remove("head.mlp.4.bias");
    assert_eq!(error(&vit, &tensors, &head), BuildError::Missing { name: "head.mlp.4.bias".to_owned() });
}
