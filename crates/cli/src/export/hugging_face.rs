//! Hugging Face's folder: `model.safetensors`, `config.json` and `preprocessor_config.json`, as `from_pretrained` reads it.

use std::path::Path;

use eval::{InputSpec, Normalization, Preparation};
use model::VitConfig;
use model::weights::HuggingFaceModel;
use serde_json::{Value, json};

use super::ExportError;
use super::timm::decimal;

/// What the folder holds.
pub const FILES: [&str; 3] = ["model.safetensors", "config.json", "preprocessor_config.json"];

/// The network's configuration.
pub fn config(vit: &VitConfig, model: HuggingFaceModel) -> Result<Value, ExportError> {
    let VitConfig { dim, depth, heads, mlp_dim, patch, image: (height, width), channels, extras } = vit;
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
    if height != width {
        let what = format!(
            "{}'s positions are for square images (it takes the root of their number), and these are for {height}x{width}",
            model.class()
        );
        return Err(ExportError::Unsupported { what, instead: "timm" });
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

/// Why there is no configuration of a processor.
pub const NO_PREPROCESSOR: &str = "no preprocessor_config.json is written: no processor of transformers covers an oblong \
                                   input as this program does. Resize images to cover 256/224 of the input and cut out its centre";

/// What becomes of an image before the network sees it; none where none of their processors does what ours do.
pub fn preprocessor(input: &InputSpec, normalization: &Normalization) -> Option<Value> {
    let (height, width) = input.size;
    let mut config = json!({
        "do_resize": true,
        "do_rescale": true,
        "rescale_factor": 1.0 / 255.0,
        "do_normalize": true,
        "image_mean": decimal(&normalization.mean),
        "image_std": decimal(&normalization.deviation),
        // Pillow's number for bicubic.
        "resample": 3,
    });
    let shorter_side = match input.preparation() {
        Preparation::Stretch(_) => {
            config["image_processor_type"] = json!("ViTImageProcessor");
            config["size"] = json!({ "height": height, "width": width });
            return Some(config);
        }
        Preparation::Cover(_) if height != width => return None,
        Preparation::Cover(_) => (height as f64 * 256.0 / 224.0).round() as usize,
        Preparation::Transform(transform) => transform.resize_short,
    };
    // The only one of theirs that resizes the shorter side and cuts out the centre.
    config["image_processor_type"] = json!("BitImageProcessor");
    config["size"] = json!({ "shortest_edge": shorter_side });
    config["do_center_crop"] = json!(true);
    config["crop_size"] = json!({ "height": height, "width": width });
    config["do_convert_rgb"] = json!(true);
    Some(config)
}

/// How to load it, and how to prepare images for it where there is a configuration of a processor.
pub fn usage(folder: &Path, model: HuggingFaceModel, has_processor: bool) -> String {
    let class = model.class();
    let pooler = if model == HuggingFaceModel::Vit { ", add_pooling_layer=False" } else { "" };
    let folder = text::shown(folder);
    let prepared = match has_processor {
        true => format!("**transformers.AutoImageProcessor.from_pretrained({folder:?})(images, return_tensors=\"pt\")"),
        false => "pixels".to_owned(),
    };
    format!(
        "  network = transformers.{class}.from_pretrained({folder:?}{pooler})\n  \
           features = network({prepared}).last_hidden_state[:, 0]"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_that_dinov2_would_take_for_square_ones_are_refused() {
        let oblong = VitConfig::new(model::Arch::Tiny, 8, (16, 32), 3).unwrap();
        assert_eq!(config(&oblong, HuggingFaceModel::Vit).unwrap()["image_size"], json!([16, 32]));
        for model in [HuggingFaceModel::Dinov2, HuggingFaceModel::Dinov2WithRegisters] {
            let error = config(&oblong, model).unwrap_err().to_string();
            assert!(error.contains("16x32") && error.contains("--to timm has a place for it"), "{error}");
            config(&VitConfig { image: (16, 16), ..oblong.clone() }, model).unwrap();
        }
    }

    #[test]
    fn a_processor_does_what_this_program_does_with_an_image_or_there_is_none() {
        let of = |input: InputSpec| preprocessor(&input, &Normalization::usual(3));
        let (center, whole) =
            (InputSpec::center((224, 224)), |size| InputSpec { whole: true, ..InputSpec::center(size) });
        let config = of(center).unwrap();
        assert_eq!((&config["size"], &config["crop_size"]["width"]), (&json!({ "shortest_edge": 256 }), &json!(224)));
        // The whole of a square input: the shorter side to its size, as an image that is not square is not squeezed.
        let config = of(whole((32, 32))).unwrap();
        assert_eq!((&config["size"], &config["do_center_crop"]), (&json!({ "shortest_edge": 32 }), &json!(true)));
        let config = of(whole((32, 48))).unwrap();
        assert_eq!((&config["size"], &config["do_center_crop"]), (&json!({ "height": 32, "width": 48 }), &Value::Null));
        assert_eq!(of(InputSpec::center((32, 48))), None);
    }

    #[test]
    fn a_processor_is_named_only_where_there_is_one() {
        let of = |has_processor| usage(Path::new("net"), HuggingFaceModel::Vit, has_processor);
        assert!(of(true).contains("AutoImageProcessor") && of(true).contains(".last_hidden_state[:, 0]"));
        assert!(!of(false).contains("AutoImageProcessor") && of(false).contains("network(pixels)"));
    }
}
