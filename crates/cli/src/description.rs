//! What files say of the network that they hold or come from: its shape, what it sees of an image, how it was trained.
//!
//! Nothing in it names a machine, a folder or a time: the same training gives the same bytes.

use std::collections::BTreeMap;

use data::Source;
use eval::{InputSpec, Normalization};
use model::weights::{ARCHITECTURE, describe};
use model::{ConfigError, VitConfig};
use random::StableHash;
use ssl::recipe::Recipe;
use ssl::setup::vit_config;

use crate::online_knn::input_spec;
use crate::weights::Weights;

/// The method that trained the network.
const METHOD: &str = "method";
/// What its prototypes' norms mean.
const PROTOTYPES: &str = "prototypes";
/// The program that wrote the file.
const VERSION: &str = "program_version";

/// Metadata: a text for each key.
pub type Description = Vec<(&'static str, String)>;

/// Of the network that a recipe trains.
pub fn of_recipe(recipe: &Recipe) -> Result<Description, ConfigError> {
    let usual = Normalization::usual(recipe.channels());
    let mut said = of_network(&vit_config(recipe)?, input_spec(recipe), &usual);
    said.push((METHOD, recipe.method().to_string()));
    said.push((PROTOTYPES, recipe.prototypes().to_string()));
    Ok(said)
}

fn of_network(config: &VitConfig, input: InputSpec, normalization: &Normalization) -> Description {
    // The size of the input stands for that of the positions: they are the same, unless another input was asked for.
    let seen = input.metadata();
    let shape = describe(config).into_iter().filter(|(key, _)| seen.iter().all(|(other, _)| other != key));
    let version = (VERSION, program());
    shape.chain(seen.clone()).chain(normalization.metadata()).chain([version]).collect()
}

/// This program and its version.
pub fn program() -> String {
    format!("dino-vmf {}", env!("CARGO_PKG_VERSION"))
}

/// Of a network that goes out.
pub fn of_export(weights: &Weights) -> Description {
    let mut said = of_network(weights.loaded.vit.config(), weights.input, &weights.normalization);
    for key in [METHOD, PROTOTYPES] {
        said.extend(weights.said.get(key).map(|value| (key, value.clone())));
    }
    said
}

/// Of the network that features were computed with, for this input. Its weights are told by a hash: features that were
/// computed with an older state of a run can be told from new ones.
pub fn of_features(weights: &Weights, input: InputSpec, precision: &str) -> Description {
    let config = weights.loaded.vit.config();
    let mut said = of_network(config, input, &weights.normalization);
    let told = |key: &'static str| Some((key, weights.said.get(key)?.clone()));
    let is_new = |(key, _): &(&str, String)| !said.iter().any(|(there, _)| there == key);
    let trained: Description = [ARCHITECTURE, METHOD, PROTOTYPES].into_iter().filter_map(told).filter(is_new).collect();
    said.extend(trained);
    said.push(("weights_hash", weights_digest(weights)));
    said.push(("precision", precision.to_owned()));
    said
}

/// Of the images that features are of: a hash of their names, sizes, labels and contents, and how many there are.
pub fn of_data(source: &dyn Source) -> Description {
    vec![("data_hash", format!("{:016x}", source.fingerprint())), ("images", source.len().to_string())]
}

/// Tells the values of a backbone from those of any other, whatever file they came from.
pub fn weights_digest(weights: &Weights) -> String {
    let mut hash = StableHash::new();
    weights.loaded.weights.iter().for_each(|tensor| hash.write(&tensor.to_le_bytes()));
    format!("{:016x}", hash.finish())
}

/// What a checkpoint says of its network: its state is one JSON object among the file's metadata, and the description an
/// object in that. None in those of earlier versions.
pub fn of_checkpoint(state: &str) -> Option<BTreeMap<String, String>> {
    let state: serde_json::Value = serde_json::from_str(state).ok()?;
    let said = state.get(ssl::pretraining::NETWORK)?.as_object()?;
    Some(said.iter().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect())
}

/// The first thing that a checkpoint says otherwise than the recipe of its run, with both values. The program may be
/// another one.
pub fn difference(
    said: &BTreeMap<String, String>,
    recipe: &Recipe,
) -> Result<Option<(&'static str, String, String)>, ConfigError> {
    let mut now = of_recipe(recipe)?.into_iter().filter(|(key, _)| *key != VERSION);
    Ok(now.find_map(|(key, now)| Some((key, said.get(key).filter(|said| **said != now)?.clone(), now))))
}

/// Python that loads a backbone of this shape into timm, with what its images must be.
pub fn timm_snippet(path: &str, config: &VitConfig, normalization: &Normalization) -> String {
    let VitConfig { dim, depth, heads, mlp_dim, patch, image: (height, width), channels, extras } = config;
    let scale = if extras.layer_scale { ", init_values=1e-5" } else { "" };
    let ratio = *mlp_dim as f64 / *dim as f64;
    let [(_, mean), (_, std)] = normalization.metadata();
    format!(
        "  from safetensors.torch import load_file\n  \
           from timm.models.vision_transformer import VisionTransformer\n  \
           network = VisionTransformer(img_size=({height}, {width}), patch_size={patch}, in_chans={channels}, num_classes=0,\n      \
               embed_dim={dim}, depth={depth}, num_heads={heads}, mlp_ratio={ratio}{scale})\n  \
           network.load_state_dict(load_file({path:?}))\n  \
           features = network.eval()(images)  # [n, {channels}, {height}, {width}], from 0 to 1, less {mean}, divided by {std}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_of_a_checkpoint_is_an_object_of_texts() {
        let said = of_checkpoint("{\"step\":3,\"network\":{\"heads\":\"3\",\"odd\":4}}").unwrap();
        assert_eq!((said.len(), said["heads"].as_str()), (1, "3"));
        assert_eq!(of_checkpoint("{\"step\":3}"), None);
        assert_eq!(of_checkpoint("no JSON"), None);
    }
}
