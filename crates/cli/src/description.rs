//! What files say of the network that they hold or come from: its shape, what it sees of an image, how it was trained.
//!
//! Nothing in it names a machine, a folder or a time: the same training gives the same bytes.

use std::collections::BTreeMap;

use data::Source;
use eval::{EvalError, InputSpec, Normalization};
use model::weights::{ARCHITECTURE, NetworkRole, describe};
use model::{ConfigError, VitConfig};
use random::StableHash;
use ssl::recipe::{MethodName, Prototypes, Recipe};
use ssl::setup::vit_config;

use crate::online_knn::input_spec;
use crate::weights::Weights;

/// The method that trained the network.
const METHOD: &str = "method";
/// What its prototypes' norms mean.
const PROTOTYPES: &str = "prototypes";
/// The temperature at which it compares with them.
const TAU: &str = "tau";
/// How far its training had come, of one that was not finished.
pub const STEP: &str = "step";
/// The program that wrote the file.
const VERSION: &str = "program_version";
/// This one's name there.
const NAME: &str = "dino-vmf ";

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
    format!("{NAME}{}", env!("CARGO_PKG_VERSION"))
}

/// What is said of the weights of this step; nothing of the last one.
pub fn unfinished(step: u64, total: u64) -> Option<(&'static str, String)> {
    (step < total).then(|| (STEP, format!("{step} of {total}")))
}

/// Of one of the networks of a run: its temperature besides.
pub fn of_network_of_run(recipe: &Recipe, role: Option<NetworkRole>) -> Result<Description, ConfigError> {
    // MSN has one for both networks.
    let tau = match (recipe.method(), role) {
        (MethodName::Msn, _) | (_, Some(NetworkRole::Student)) => recipe.student_temp(),
        _ => recipe.teacher_temp(),
    };
    let mut said = of_recipe(recipe)?;
    said.push((TAU, tau.to_string()));
    Ok(said)
}

/// How a network's prototypes are used, as far as its run or its file says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrototypeUse {
    /// What their norms mean.
    pub prototypes: Option<Prototypes>,
    /// tau.
    pub temperature: Option<f64>,
    /// Whether they belong to MSN's loss rather than to the network.
    pub are_of_the_loss: bool,
}

/// What this program has said of a network's prototypes; other programs may use the words for something else. An error for what
/// cannot be meant.
pub fn prototype_use(said: &BTreeMap<String, String>) -> Result<PrototypeUse, EvalError> {
    if !said.get(VERSION).is_some_and(|version| version.starts_with(NAME)) {
        return Ok(PrototypeUse { prototypes: None, temperature: None, are_of_the_loss: false });
    }
    let wrong =
        |key, expected: &str| EvalError::Metadata { key, value: said[key].clone(), expected: expected.to_owned() };
    let prototypes = match said.get(PROTOTYPES).map(|word| Prototypes::of_word(word)) {
        Some(None) => return Err(wrong(PROTOTYPES, "`none`, `l2` or `vmf`")),
        known => known.flatten(),
    };
    let tau = said.get(TAU).map(|text| text.parse().ok().filter(|tau: &f64| *tau > 0.0 && tau.is_finite()));
    let temperature = match tau {
        Some(None) => return Err(wrong(TAU, "a number above zero")),
        known => known.flatten(),
    };
    let are_of_the_loss = said.get(METHOD).is_some_and(|method| method == MethodName::Msn.as_str());
    Ok(PrototypeUse { prototypes, temperature, are_of_the_loss })
}

/// Of a network that goes out.
pub fn of_export(weights: &Weights) -> Description {
    let mut said = of_network(weights.loaded.vit.config(), weights.input, &weights.normalization);
    for key in [METHOD, PROTOTYPES, TAU, STEP] {
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
    let trained: Description =
        [ARCHITECTURE, METHOD, PROTOTYPES, STEP].into_iter().filter_map(told).filter(is_new).collect();
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
    fn what_is_said_of_prototypes_is_read_or_refused() {
        let of_program = |program: &str, pairs: &[(&str, &str)]| {
            let version = [("program_version", program)];
            prototype_use(
                &pairs.iter().chain(&version).map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            )
        };
        let of = |pairs: &[(&str, &str)]| of_program(&program(), pairs);
        let nothing = PrototypeUse { prototypes: None, temperature: None, are_of_the_loss: false };
        assert_eq!(of(&[]).unwrap(), nothing);
        assert_eq!(of_program("another 3", &[("prototypes", "1024")]).unwrap(), nothing);
        let all = of(&[("prototypes", "vmf"), ("tau", "0.04"), ("method", "msn")]).unwrap();
        assert_eq!((all.prototypes, all.temperature, all.are_of_the_loss), (Some(Prototypes::Vmf), Some(0.04), true));
        for wrong in [("prototypes", "some"), ("tau", "0"), ("tau", "inf"), ("tau", "warm")] {
            let error = of(&[wrong]).unwrap_err().to_string();
            assert!(error.contains(wrong.0) && error.contains(wrong.1), "{error}");
        }
    }

    #[test]
    fn the_description_of_a_checkpoint_is_an_object_of_texts() {
        let said = of_checkpoint("{\"step\":3,\"network\":{\"heads\":\"3\",\"odd\":4}}").unwrap();
        assert_eq!((said.len(), said["heads"].as_str()), (1, "3"));
        assert_eq!(of_checkpoint("{\"step\":3}"), None);
        assert_eq!(of_checkpoint("no JSON"), None);
    }
}
