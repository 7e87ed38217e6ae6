//! Backbones as other programs save them, run as those programs run them.
//!
//! The files and the features are made by `tools/oracle/weights_files.py` with PyTorch, timm and Hugging Face's transformers.

use std::path::{Path, PathBuf};

use model::weights::{KeyLayout, LoadOptions, Packing, WeightsError, WeightsFile};
use serde_json::Value;
use tensor::ops::{PixelData, Pixels};
use tensor::{CpuOptions, Device, Precision};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/layouts")
}

fn expected() -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder().join("expected.json")).unwrap()).unwrap()
}

fn layout_of(name: &str) -> KeyLayout {
    match name {
        "dino" => KeyLayout::Dino,
        "ibot" => KeyLayout::Ibot,
        "msn" => KeyLayout::Msn,
        "timm" => KeyLayout::Timm,
        "huggingface" => KeyLayout::HuggingFace,
        other => panic!("{other}"),
    }
}

/// The same closed form as in the script, which computes it in double precision and rounds it.
fn pixels(height: usize, width: usize) -> Vec<f64> {
    let value = |i: usize| 1.5 * (0.7 * i as f64 + 0.01 * (i as f64).powf(1.3)).sin();
    (0..3 * height * width).map(|i| f64::from(value(i) as f32)).collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

#[test]
fn features_of_every_layout_and_packing_are_those_of_the_program_it_comes_from() {
    let device = Device::cpu(CpuOptions { threads: Some(1), precision: Precision::F32 }).unwrap();
    let expected = expected();
    let heads = expected["heads"].as_u64().unwrap() as usize;
    let files = expected["files"].as_array().unwrap();
    assert!(files.len() > 20);
    for case in files {
        let name = case["file"].as_str().unwrap();
        let says_heads = case["says_heads"].as_bool().unwrap();
        let mut file = WeightsFile::open(&folder().join(name)).unwrap_or_else(|error| panic!("{error}"));
        let options = LoadOptions { heads: (!says_heads).then_some(heads), ..Default::default() };
        if !says_heads {
            let error = file.vit_config(&LoadOptions::default()).unwrap_err();
            assert!(matches!(error, WeightsError::Heads { .. }), "{name}: {error}");
        }
        let loaded = file.load_vit(&options, &device).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(loaded.report.layout, layout_of(case["layout"].as_str().unwrap()), "{name}");
        assert_eq!((loaded.report.missing.len(), loaded.vit.config().heads), (0, heads), "{name}");
        for image in case["images"].as_array().unwrap() {
            let side = |key: &str| image[key].as_u64().unwrap() as usize;
            let (height, width) = (side("height"), side("width"));
            let values = pixels(height, width);
            let group = Pixels { count: 1, height, width, channels: 3, data: PixelData::Values(&values) };
            let got = loaded.vit.features(&loaded.weights, &device, &[group]).unwrap().to_f64();
            let want = numbers(&image["features"]);
            let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
            let error = norm(&mut got.iter().zip(&want).map(|(a, b)| a - b)) / norm(&mut want.iter().copied());
            assert!(error < 5e-6, "{name} at {height}x{width}: {error:e}");
        }
    }
}

#[test]
fn a_file_says_what_it_is_packed_in() {
    let packing = |name: &str| WeightsFile::open(&folder().join(name)).unwrap().packing();
    assert_eq!(packing("dino_full.pth"), Packing::Torch);
    assert_eq!(packing("dino_full_legacy.pth"), Packing::LegacyTorch);
    assert_eq!(packing("timm.safetensors"), Packing::Safetensors);
    assert_eq!(packing("hf_vit_shards"), Packing::Shards);
}

/// Every way in which a file can end too early: an error that says so, and never a backbone.
#[test]
fn a_truncated_pytorch_file_is_an_error_at_every_length() {
    let device = Device::cpu(Default::default()).unwrap();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("cut.pth");
    for name in ["dino_backbone.pth", "dino_backbone_legacy.pth"] {
        let bytes = std::fs::read(folder().join(name)).unwrap();
        // Every length up to the end of the pickles, and some behind them.
        for length in
            (0..6000).step_by(7).chain((6000..bytes.len()).step_by(331)).filter(|&length| length < bytes.len())
        {
            std::fs::write(&path, &bytes[..length]).unwrap();
            let options = LoadOptions { heads: Some(2), ..Default::default() };
            let loaded = WeightsFile::open(&path).and_then(|mut file| file.load_vit(&options, &device));
            assert!(loaded.is_err(), "{name} with {length} of {} bytes", bytes.len());
        }
    }
}

#[test]
fn a_flipped_bit_in_a_tensor_of_an_archive_is_noticed() {
    let bytes = std::fs::read(folder().join("dino_backbone.pth")).unwrap();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("flipped.pth");
    let mut file = WeightsFile::open(&folder().join("dino_backbone.pth")).unwrap();
    let tensor = file.tensor("blocks.0.mlp.fc1.weight").unwrap().clone();
    let values = match file.read(&tensor).unwrap() {
        model::weights::Values::F32(values) => values,
        other => panic!("{other:?}"),
    };
    let start: Vec<u8> = values[..4].iter().flat_map(|x| x.to_le_bytes()).collect();
    let at = bytes.windows(16).position(|window| window == start).unwrap();
    let mut flipped = bytes.clone();
    flipped[at] ^= 1;
    std::fs::write(&path, flipped).unwrap();
    let message = WeightsFile::open(&path).unwrap().read(&tensor).unwrap_err().to_string();
    assert!(message.contains("checksum") && message.contains("blocks.0.mlp.fc1.weight"), "{message}");
}

#[test]
fn a_configuration_of_another_network_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let (from, at) = (self::folder().join("hf_vit"), |name: &str| folder.path().join(name));
    for name in ["model.safetensors", "config.json"] {
        std::fs::copy(from.join(name), at(name)).unwrap();
    }
    std::fs::copy(from.join("model.safetensors"), at("mine.safetensors")).unwrap();
    let options = LoadOptions::default();
    WeightsFile::open(folder.path()).unwrap().vit_config(&options).unwrap();
    // A file of another name merely lies beside it.
    let error = WeightsFile::open(&at("mine.safetensors")).unwrap().vit_config(&options).unwrap_err();
    assert!(matches!(error, WeightsError::Heads { .. }), "{error}");
    let config: Value = serde_json::from_slice(&std::fs::read(from.join("config.json")).unwrap()).unwrap();
    for (theirs, ours) in [("hidden_size", "`width`"), ("num_hidden_layers", "`depth`")] {
        let mut other = config.clone();
        other[theirs] = (config[theirs].as_u64().unwrap() * 2).into();
        std::fs::write(at("config.json"), other.to_string()).unwrap();
        let error = WeightsFile::open(folder.path()).unwrap().vit_config(&options).unwrap_err().to_string();
        assert!(error.contains(ours) && error.contains("its tensors are those of a network with"), "{error}");
    }
}
