//! timm's folder: `model.safetensors` and `config.json`, as `timm.create_model("local-dir:FOLDER")` reads it.

use std::path::Path;

use model::VitConfig;
use serde_json::{Value, json};

use crate::weights::Weights;

/// What the folder holds.
pub const FILES: [&str; 2] = ["model.safetensors", "config.json"];

/// Its configuration. The architecture names a function of timm, and the arguments say all that makes the network: so it
/// need not be one of those that timm has a name for.
pub fn config(weights: &Weights) -> Value {
    let VitConfig { dim, depth, heads, mlp_dim, patch, image: (height, width), channels, extras } =
        weights.loaded.vit.config();
    let mut arguments = json!({
        "img_size": [height, width], "patch_size": patch, "in_chans": channels, "embed_dim": dim, "depth": depth,
        "num_heads": heads, "mlp_ratio": *mlp_dim as f64 / *dim as f64, "num_classes": 0,
    });
    if extras.registers > 0 {
        arguments["reg_tokens"] = json!(extras.registers);
    }
    if extras.layer_scale {
        arguments["init_values"] = json!(1e-5);
    }
    let normalization = &weights.normalization;
    let (seen_height, seen_width) = weights.input.size;
    let crop = if weights.input.whole { 1.0 } else { crop_share(seen_height) };
    // The whole of an oblong input is squeezed into it; anything else keeps its aspect.
    let mode = if weights.input.whole && seen_height != seen_width { "squash" } else { "center" };
    json!({
        "architecture": "vit_small_patch16_224",
        "num_classes": 0,
        "num_features": dim,
        "global_pool": "token",
        "model_args": arguments,
        "pretrained_cfg": {
            "tag": "dino_vmf",
            "custom_load": false,
            "input_size": [channels, seen_height, seen_width],
            "fixed_input_size": true,
            "interpolation": "bicubic",
            "crop_pct": crop,
            "crop_mode": mode,
            "mean": decimal(&normalization.mean),
            "std": decimal(&normalization.deviation),
            "num_classes": 0,
            "pool_size": null,
            "first_conv": "patch_embed.proj",
            "classifier": "head",
        },
    })
}

/// The share of a resized image that is seen: timm resizes to the whole part of side / share, and this program to the nearest
/// whole number of 256 / 224 of the side.
fn crop_share(side: usize) -> f64 {
    const USUAL: f64 = 224.0 / 256.0;
    let resized = (side as f64 / USUAL).round();
    if (side as f64 / USUAL).floor() == resized { USUAL } else { side as f64 / (resized + 0.5) }
}

#[cfg(test)]
#[test]
fn timm_resizes_to_what_this_program_does() {
    assert_eq!(crop_share(224), 0.875);
    for side in 8..1000 {
        let resized = (side as f64 / crop_share(side)).floor();
        assert_eq!(resized, (side as f64 * 256.0 / 224.0).round(), "{side}");
    }
}

/// Numbers as they are written by hand: 0.485, and not the nearest double of the nearest float.
pub fn decimal(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| value.to_string().parse().unwrap_or(f64::from(*value))).collect()
}

/// How to load it.
pub fn usage(folder: &Path) -> String {
    format!("  network = timm.create_model(\"local-dir:{}\", pretrained=True).eval()", text::shown(folder))
}
