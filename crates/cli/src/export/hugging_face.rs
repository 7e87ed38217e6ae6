//! Hugging Face's folder: `model.safetensors`, `config.json` and `preprocessor_config.json`, as `from_pretrained` reads it.

use std::path::Path;

use model::VitConfig;
use model::weights::HuggingFaceModel;
use serde_json::{Value, json};

use super::ExportError;
use super::timm::decimal;
use crate::weights::Weights;

/// What the folder holds.
pub const FILES: [&str; 3] = ["model.safetensors", "config.json", "preprocessor_config.json"];

/// The network's configuration.
pub fn config(weights: &Weights, model: HuggingFaceModel) -> Result<Value, ExportError> {
    let VitConfig { dim, depth, heads, mlp_dim, patch, image: (height, width), channels, extras } =
        weights.loaded.vit.config();
    let size = if height == width { json!(height) } else { json!([height, width]) };
    let mut config = json!({
        "architectures": [model.class()],
        "hidden_size": dim,
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.02,
        "layer_norm_eps": extras.norm_epsilon,
        "image_size": size,
        "patch_size": patch,
        "num_channels": channels,
        "qkv_bias": true,
        "torch_dtype": "float32",
    });
    if model == HuggingFaceModel::Vit {
        config["model_type"] = json!("vit");
        config["intermediate_size"] = json!(mlp_dim);
        return Ok(config);
    }
    if !mlp_dim.is_multiple_of(*dim) {
        let what = format!("{} has no MLP of {mlp_dim} columns for a width of {dim}", model.class());
        return Err(ExportError::Unsupported { what, instead: "timm" });
    }
    config["mlp_ratio"] = json!(mlp_dim / dim);
    config["layerscale_value"] = json!(1.0);
    config["drop_path_rate"] = json!(0.0);
    config["use_swiglu_ffn"] = json!(false);
    config["model_type"] = json!("dinov2");
    if model == HuggingFaceModel::Dinov2WithRegisters {
        config["model_type"] = json!("dinov2_with_registers");
        config["num_register_tokens"] = json!(extras.registers);
    }
    Ok(config)
}

/// What becomes of an image before the network sees it.
pub fn preprocessor(weights: &Weights) -> Value {
    let (height, width) = weights.input.size;
    let mut config = json!({
        "do_resize": true,
        "do_rescale": true,
        "rescale_factor": 1.0 / 255.0,
        "do_normalize": true,
        "image_mean": decimal(&weights.normalization.mean),
        "image_std": decimal(&weights.normalization.deviation),
        // Pillow's number for bicubic.
        "resample": 3,
    });
    if weights.input.whole || height != width {
        config["image_processor_type"] = json!("ViTImageProcessor");
        config["size"] = json!({ "height": height, "width": width });
    } else {
        // The only one of theirs that resizes the shorter side and cuts out the centre.
        config["image_processor_type"] = json!("BitImageProcessor");
        config["size"] = json!({ "shortest_edge": (height as f64 * 256.0 / 224.0).round() as usize });
        config["do_center_crop"] = json!(true);
        config["crop_size"] = json!({ "height": height, "width": width });
        config["do_convert_rgb"] = json!(true);
    }
    config
}

/// How to load it.
pub fn usage(folder: &Path, model: HuggingFaceModel) -> String {
    let class = model.class();
    let pooler = if model == HuggingFaceModel::Vit { ", add_pooling_layer=False" } else { "" };
    let folder = text::shown(folder);
    format!(
        "  network = transformers.{class}.from_pretrained({folder:?}{pooler})\n  \
           features = network(**transformers.AutoImageProcessor.from_pretrained({folder:?})(images, return_tensors=\"pt\")).last_hidden_state[:, 0]"
    )
}
