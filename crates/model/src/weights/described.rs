//! What a weights file says of its network in words: safetensors metadata, a text for each key.
//!
//! Shapes tell width, depth and patch size, but not how many heads attention has: a network of 128 columns with four
//! heads has the tensors of one with two, and run as the other it gives plausible, wrong features. So a file that this
//! program writes says it, and what a file says is held against its tensors.

use std::collections::BTreeMap;
use std::path::Path;

use tensor::ops::Interpolation;

use super::error::WeightsError;
use crate::{Extras, VitConfig};

/// Name of the architecture.
pub const ARCHITECTURE: &str = "architecture";
const WIDTH: &str = "width";
const DEPTH: &str = "depth";
const HEADS: &str = "heads";
const PATCH: &str = "patch_size";
const CHANNELS: &str = "channels";
const IMAGE: &str = "image_size";
const POSITIONS: &str = "positions";
const EPSILON: &str = "norm_epsilon";
/// Keys that say in what way the program that the file is for computes with it.
pub const HOW_IT_COMPUTES: [&str; 2] = [POSITIONS, EPSILON];
/// Which part of an image the network saw: what this program has always noted in its own files.
const OURS: &str = "image_part";

/// Keys and values for the metadata of a file with this network. They name no machine and no time, so that the same
/// training gives the same bytes.
pub fn describe(config: &VitConfig) -> Vec<(&'static str, String)> {
    let VitConfig { dim, depth, heads, patch, image: (height, width), channels, .. } = config;
    let mut said: Vec<(&'static str, String)> =
        [(WIDTH, dim), (DEPTH, depth), (HEADS, heads), (PATCH, patch), (CHANNELS, channels)]
            .map(|(key, number)| (key, number.to_string()))
            .to_vec();
    said.push((IMAGE, format!("{height}x{width}")));
    if let Some(arch) = config.arch() {
        said.push((ARCHITECTURE, arch.name().to_owned()));
    }
    // Files from before there was a choice say nothing, and have no registers.
    if config.extras.interpolation != Interpolation::Dino || config.extras.registers > 0 {
        said.push((POSITIONS, positions_name(config.extras.interpolation).to_owned()));
    }
    if config.extras.norm_epsilon != Extras::NONE.norm_epsilon {
        said.push((EPSILON, format!("{:e}", config.extras.norm_epsilon)));
    }
    said
}

/// The rules by which positions are interpolated, by their names on the command line and in files.
pub const POSITION_RULES: [(&str, Interpolation); 3] =
    [("dino", Interpolation::Dino), ("plain", Interpolation::Plain), ("antialiased", Interpolation::Antialiased)];

fn positions_name(rule: Interpolation) -> &'static str {
    POSITION_RULES.iter().find(|(_, known)| *known == rule).map_or("dino", |(name, _)| name)
}

/// The rule by which the file says that its positions are interpolated.
pub(super) fn interpolation(
    path: &Path,
    metadata: &BTreeMap<String, String>,
) -> Result<Option<Interpolation>, WeightsError> {
    let Some(said) = metadata.get(POSITIONS) else { return Ok(None) };
    let known = POSITION_RULES.iter().find(|(name, _)| name == said);
    known.map(|(_, rule)| Some(*rule)).ok_or_else(|| WeightsError::Metadata {
        path: path.to_owned(),
        key: POSITIONS,
        value: said.clone(),
        problem: "this program knows `dino`, `plain` and `antialiased`".to_owned(),
    })
}

/// Where the number of heads comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadsFrom {
    /// Whoever loads the file has said so.
    Given,
    /// The file's metadata.
    Metadata,
    /// A file of this program from before it noted the heads: they were 64 columns wide.
    OldFile,
    /// Width and depth are those of a network of the literature, called so.
    Known(&'static str),
}

/// The networks whose heads are a matter of common knowledge.
struct Known {
    name: &'static str,
    dim: usize,
    depth: usize,
    heads: usize,
}

/// Those of DINO, DeiT and timm. Heads are 64 columns wide up to ViT-L, and 80 in ViT-H.
const KNOWN: [Known; 5] = [
    Known { name: "vit_tiny", dim: 192, depth: 12, heads: 3 },
    Known { name: "vit_small", dim: 384, depth: 12, heads: 6 },
    Known { name: "vit_base", dim: 768, depth: 12, heads: 12 },
    Known { name: "vit_large", dim: 1024, depth: 24, heads: 16 },
    Known { name: "vit_huge", dim: 1280, depth: 32, heads: 16 },
];

impl Known {
    fn of(dim: usize, depth: usize) -> Option<&'static Known> {
        KNOWN.iter().find(|known| (known.dim, known.depth) == (dim, depth))
    }
}

/// The number of heads of a network of this width and depth, and who says so. An error where nobody does, or where two
/// say different things.
pub(super) fn heads(
    path: &Path,
    metadata: &BTreeMap<String, String>,
    (dim, depth): (usize, usize),
    given: Option<usize>,
    is_checkpoint: bool,
) -> Result<(usize, HeadsFrom), WeightsError> {
    let said = metadata.get(HEADS);
    let number = said.and_then(|text| text.parse::<usize>().ok());
    match (given, said, number) {
        (Some(given), _, Some(said)) if given != said => {
            Err(WeightsError::OtherHeads { path: path.to_owned(), given, said })
        }
        (Some(given), _, _) => Ok((given, HeadsFrom::Given)),
        (None, Some(_), Some(said)) => Ok((said, HeadsFrom::Metadata)),
        (None, Some(text), None) => Err(WeightsError::Metadata {
            path: path.to_owned(),
            key: HEADS,
            value: text.clone(),
            problem: "that is no number; give it with --attention-heads N".to_owned(),
        }),
        (None, None, _) if (metadata.contains_key(OURS) || is_checkpoint) && dim.is_multiple_of(64) => {
            Ok((dim / 64, HeadsFrom::OldFile))
        }
        (None, None, _) => match Known::of(dim, depth) {
            Some(known) => Ok((known.heads, HeadsFrom::Known(known.name))),
            None => Err(WeightsError::Heads { path: path.to_owned(), dim, depth }),
        },
    }
}

/// What the file says that LayerNorm adds to a variance.
pub(super) fn norm_epsilon(path: &Path, metadata: &BTreeMap<String, String>) -> Result<Option<f64>, WeightsError> {
    let Some(said) = metadata.get(EPSILON) else { return Ok(None) };
    let number = said.parse().ok().filter(|epsilon| (0.0..1.0).contains(epsilon));
    number.map(Some).ok_or_else(|| WeightsError::Metadata {
        path: path.to_owned(),
        key: EPSILON,
        value: said.clone(),
        problem: "that is no number between 0 and 1".to_owned(),
    })
}

/// Height and width in pixels of the images that the file says its positions are for.
pub(super) fn image(metadata: &BTreeMap<String, String>) -> Option<(usize, usize)> {
    let (height, width) = metadata.get(IMAGE)?.split_once('x')?;
    Some((height.parse().ok()?, width.parse().ok()?))
}

/// An error where the file says another network than its tensors are.
pub(super) fn check(path: &Path, metadata: &BTreeMap<String, String>, config: &VitConfig) -> Result<(), WeightsError> {
    let found = [(WIDTH, config.dim), (DEPTH, config.depth), (PATCH, config.patch), (CHANNELS, config.channels)];
    for (key, found) in found {
        // Other programs may use these words for something else; a number is meant.
        let said = metadata.get(key).and_then(|text| text.parse::<usize>().ok());
        if said.is_some_and(|said| said != found) {
            return Err(WeightsError::Metadata {
                path: path.to_owned(),
                key,
                value: metadata[key].clone(),
                problem: format!("its tensors are those of a network with {found}"),
            });
        }
    }
    match image(metadata) {
        Some(said) if said != config.image => Err(WeightsError::Metadata {
            path: path.to_owned(),
            key: IMAGE,
            value: metadata[IMAGE].clone(),
            problem: format!("{}x{} was given as the size that it was trained with", config.image.0, config.image.1),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arch;

    fn metadata(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    fn find(pairs: &[(&str, &str)], shape: (usize, usize), given: Option<usize>) -> Result<(usize, HeadsFrom), String> {
        heads(Path::new("w"), &metadata(pairs), shape, given, false).map_err(|error| error.to_string())
    }

    #[test]
    fn the_heads_of_the_literatures_networks_are_known_and_no_others() {
        for (dim, depth, heads) in [(192, 12, 3), (384, 12, 6), (768, 12, 12), (1024, 24, 16), (1280, 32, 16)] {
            assert_eq!(find(&[], (dim, depth), None).unwrap().0, heads, "{dim}");
        }
        for (dim, depth) in [(128, 4), (384, 8), (768, 8), (1280, 24), (100, 2)] {
            let message = find(&[], (dim, depth), None).unwrap_err();
            assert!(message.contains("--attention-heads N") && message.contains(&format!("{dim}")), "{message}");
        }
    }

    #[test]
    fn what_the_file_says_counts_more_than_what_is_usual() {
        assert_eq!(find(&[("heads", "12")], (384, 12), None), Ok((12, HeadsFrom::Metadata)));
        assert_eq!(find(&[], (384, 12), Some(12)), Ok((12, HeadsFrom::Given)));
        assert_eq!(find(&[("image_part", "whole")], (128, 3), None), Ok((2, HeadsFrom::OldFile)));
        let message = find(&[("heads", "12")], (384, 12), Some(6)).unwrap_err();
        assert!(message.contains("says that it has 12") && message.contains("--attention-heads 6"), "{message}");
        let message = find(&[("heads", "many")], (384, 12), None).unwrap_err();
        assert!(message.contains("`heads`") && message.contains("many"), "{message}");
        assert_eq!(find(&[("heads", "many")], (384, 12), Some(6)).unwrap().0, 6, "the way out");
    }

    #[test]
    fn a_description_that_is_not_of_these_tensors_is_an_error() {
        let config = VitConfig::new(Arch::Tiny, 16, (32, 48), 3).unwrap();
        let said: BTreeMap<String, String> = describe(&config).into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        check(Path::new("w"), &said, &config).unwrap();
        assert_eq!((said["architecture"].as_str(), image(&said)), ("vit_tiny", Some((32, 48))));
        let turned = VitConfig { image: (48, 32), ..config.clone() };
        let message = check(Path::new("w"), &said, &turned).unwrap_err().to_string();
        assert!(message.contains("`image_size` is `32x48`") && message.contains("48x32"), "{message}");
        let message = check(Path::new("w"), &said, &VitConfig { depth: 11, ..config }).unwrap_err().to_string();
        assert!(message.contains("`depth`") && message.contains("a network with 11"), "{message}");
    }
}
