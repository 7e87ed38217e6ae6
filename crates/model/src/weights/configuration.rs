//! What the configuration files beside weights say of a network: Hugging Face's `config.json` and `preprocessor_config.json`,
//! and timm's `config.json`. Told in the words that this program's own files use for the same.

use std::path::Path;

use serde_json::Value;

use super::error::WeightsError;
use super::small_json;

/// What the names of weights that a configuration belongs to begin with.
const OF_A_FOLDER: [&str; 4] = ["model.", "model-", "pytorch_model.", "pytorch_model-"];

/// What Hugging Face's image processor is configured by.
const PREPROCESSOR: &str = "preprocessor_config.json";

/// Keys of a weights file's metadata and what the configuration in the same folder says of them. Nothing where there is
/// none, or one of another kind of program; and nothing for a file of another name, which merely lies beside one.
pub(super) fn beside(path: &Path) -> Result<Vec<(&'static str, String)>, WeightsError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !OF_A_FOLDER.iter().any(|beginning| name.starts_with(beginning)) {
        return Ok(Vec::new());
    }
    let config = path.with_file_name("config.json");
    let wrong = |path, reason| WeightsError::Configuration { path, reason };
    let Some(value) = small_json::read::<Value>(&config, wrong)? else { return Ok(Vec::new()) };
    if value.get("pretrained_cfg").is_some() {
        return Ok(of_timm(&value));
    }
    if !value["model_type"].is_string() || !value["hidden_size"].is_u64() {
        return Ok(Vec::new());
    }
    let activation = value["hidden_act"].as_str().unwrap_or("gelu");
    if activation != "gelu" {
        return Err(WeightsError::Activation { path: config, activation: activation.to_owned() });
    }
    let preprocessor = small_json::read(&path.with_file_name(PREPROCESSOR), wrong)?.unwrap_or(Value::Null);
    Ok(of_hugging_face(&value, &preprocessor))
}

fn of_hugging_face(config: &Value, preprocessor: &Value) -> Vec<(&'static str, String)> {
    let mut said = Vec::new();
    // Held against the tensors: the rest of a configuration of another network would be believed.
    said.extend(numbers(
        config,
        [("hidden_size", "width"), ("num_hidden_layers", "depth"), ("patch_size", "patch_size")],
    ));
    said.extend(config["num_attention_heads"].as_u64().map(|heads| ("heads", heads.to_string())));
    said.extend(size(&config["image_size"]).map(|size| ("image_size", size)));
    said.extend(config["layer_norm_eps"].as_f64().map(|epsilon| ("norm_epsilon", format!("{epsilon:e}"))));
    let channels = config["num_channels"].as_u64().unwrap_or(3).clamp(1, 16) as usize;
    let (none, one) = (vec![0.0; channels].into(), vec![1.0; channels].into());
    let (mean, deviation) = match preprocessor["do_normalize"].as_bool() {
        Some(false) => (&none, &one),
        _ => (&preprocessor["image_mean"], &preprocessor["image_std"]),
    };
    said.extend(normalization(&rescaled(mean, preprocessor), &rescaled(deviation, preprocessor)));
    said
}

fn of_timm(config: &Value) -> Vec<(&'static str, String)> {
    let (pretrained, arguments) = (&config["pretrained_cfg"], &config["model_args"]);
    let mut said = vec![("positions", "antialiased".to_owned())];
    said.extend(numbers(arguments, [("embed_dim", "width"), ("depth", "depth"), ("patch_size", "patch_size")]));
    said.extend(arguments["num_heads"].as_u64().map(|heads| ("heads", heads.to_string())));
    said.extend(size(&arguments["img_size"]).map(|size| ("image_size", size)));
    said.extend(normalization(&pretrained["mean"], &pretrained["std"]));
    said
}

/// Whole numbers in a configuration, by our names for them.
fn numbers<'a>(
    config: &'a Value,
    names: [(&'a str, &'static str); 3],
) -> impl Iterator<Item = (&'static str, String)> + 'a {
    names.into_iter().filter_map(|(theirs, ours)| Some((ours, config[theirs].as_u64()?.to_string())))
}

/// One number for both sides, or height and width.
fn size(value: &Value) -> Option<String> {
    let side = |value: &Value| value.as_u64().filter(|&side| side > 0);
    let (height, width) = match value.as_array().map(Vec::as_slice) {
        Some([height, width]) => (side(height)?, side(width)?),
        Some(_) => return None,
        None => (side(value)?, side(value)?),
    };
    Some(format!("{height}x{width}"))
}

/// Means or deviations of pixels that a processor has multiplied by another factor than 1/255, for values from 0 to 1.
fn rescaled(numbers: &Value, preprocessor: &Value) -> Value {
    let is_rescaled = preprocessor["do_rescale"].as_bool() != Some(false);
    let factor = preprocessor["rescale_factor"].as_f64();
    let factor = factor.filter(|factor| is_rescaled && factor.is_finite() && *factor > 0.0);
    let largest = 255.0 * factor.unwrap_or(1.0 / 255.0);
    match numbers.as_array() {
        // Rounding of the factor is not meant.
        Some(numbers) if (largest - 1.0).abs() > 1e-6 => {
            numbers.iter().filter_map(Value::as_f64).map(|number| number / largest).collect()
        }
        _ => numbers.clone(),
    }
}

fn normalization(mean: &Value, deviation: &Value) -> Vec<(&'static str, String)> {
    match (mean.is_array(), deviation.is_array()) {
        (true, true) => vec![("mean", mean.to_string()), ("std", deviation.to_string())],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn configurations_are_told_in_our_words() {
        let config = json!({ "hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "image_size": [32, 48], "layer_norm_eps": 1e-12 });
        let preprocessor = json!({ "image_mean": [0.5, 0.5, 0.5], "image_std": [0.25, 0.25, 0.25] });
        let said = of_hugging_face(&config, &preprocessor);
        let want = [
            ("width", "384"),
            ("depth", "12"),
            ("heads", "6"),
            ("image_size", "32x48"),
            ("norm_epsilon", "1e-12"),
            ("mean", "[0.5,0.5,0.5]"),
            ("std", "[0.25,0.25,0.25]"),
        ];
        assert_eq!(said, want.map(|(key, value)| (key, value.to_owned())));
        let bare = of_hugging_face(&json!({}), &json!({ "do_normalize": false, "image_mean": [0.5, 0.5, 0.5] }));
        assert_eq!(bare, [("mean", "[0.0,0.0,0.0]".to_owned()), ("std", "[1.0,1.0,1.0]".to_owned())]);
        // (x / 127.5 - 1) / 1 of bytes x is (x / 255 - 0.5) / 0.5.
        let doubled = json!({ "rescale_factor": 1.0 / 127.5, "image_mean": [1.0], "image_std": [1.0] });
        assert_eq!(of_hugging_face(&json!({}), &doubled)[0].1, "[0.5]");
        let unscaled = json!({ "do_rescale": false, "rescale_factor": 0.5, "image_mean": [0.5], "image_std": [0.5] });
        assert_eq!(of_hugging_face(&json!({}), &unscaled)[1].1, "[0.5]");
        let timm = of_timm(&json!({ "pretrained_cfg": {}, "model_args": { "img_size": 64, "num_heads": 3 } }));
        assert_eq!(timm[1..], [("heads", "3".to_owned()), ("image_size", "64x64".to_owned())]);
        assert_eq!(size(&json!([1, 2, 3])), None);
    }
}
