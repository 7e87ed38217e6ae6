//! Which of a network's tokens make the feature of an image.

use model::{ConfigError, Readout, VitConfig};
use rayon::prelude::*;

use crate::error::EvalError;

/// Which tokens make a feature. Registers are never part of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeatureTokens {
    /// The class token: `[width]`.
    #[default]
    Class,
    /// The mean of the patch tokens: `[width]`.
    Mean,
    /// The class token and behind it the mean of the patch tokens: [2 width].
    Both,
    /// All patch tokens, row by row of the image: [patches, width].
    Patches,
}

/// The choices by their names on the command line and in files.
const NAMES: [(&str, FeatureTokens); 4] = [
    ("class", FeatureTokens::Class),
    ("mean", FeatureTokens::Mean),
    ("both", FeatureTokens::Both),
    ("patches", FeatureTokens::Patches),
];

impl FeatureTokens {
    /// The choice of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, tokens)| *tokens)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, tokens)| *tokens == self).map_or("", |(name, _)| name)
    }
}

/// What of a network's output makes a feature.
///
/// ```
/// use eval::{FeatureTokens, Pooling};
/// use model::{Arch, VitConfig};
/// let vit = VitConfig::new(Arch::Small, 16, (224, 224), 3)?;
/// // DINO's feature, and what its linear classifier sees: the class tokens of the last four blocks, or for ViT-B the class
/// // token with the mean of the patch tokens.
/// assert_eq!(Pooling::default().shape(&vit, (224, 224)), [384]);
/// assert_eq!(Pooling { layers: 4, ..Pooling::default() }.shape(&vit, (224, 224)), [1536]);
/// assert_eq!(Pooling::of(FeatureTokens::Both).shape(&vit, (224, 224)), [768]);
/// assert_eq!(Pooling::of(FeatureTokens::Patches).shape(&vit, (224, 448)), [14 * 28, 384]);
/// # Ok::<(), model::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooling {
    /// Which tokens.
    pub tokens: FeatureTokens,
    /// Class tokens of so many of the last blocks, the last block last; at least one. The mean of patch tokens is always
    /// that of the last block.
    pub layers: usize,
    /// Whether tokens have passed the network's last norm.
    pub norm: bool,
}

impl Default for Pooling {
    /// The class token of the last block after the norm.
    fn default() -> Self {
        Self { tokens: FeatureTokens::Class, layers: 1, norm: true }
    }
}

impl Pooling {
    /// These tokens of the last block after the norm.
    pub fn of(tokens: FeatureTokens) -> Self {
        Self { tokens, ..Self::default() }
    }

    /// Shape of the feature of an image of this height and width.
    pub fn shape(&self, vit: &VitConfig, image: (usize, usize)) -> Vec<usize> {
        let classes = self.layers * vit.dim;
        match self.tokens {
            FeatureTokens::Class => vec![classes],
            FeatureTokens::Mean => vec![vit.dim],
            FeatureTokens::Both => vec![classes + vit.dim],
            FeatureTokens::Patches => vec![vit.tokens(image).saturating_sub(vit.leading_tokens()), vit.dim],
        }
    }

    /// Keys and values for the metadata of a file of features.
    pub fn metadata(&self) -> [(&'static str, String); 3] {
        [
            ("tokens", self.tokens.name().to_owned()),
            ("layers", self.layers.to_string()),
            ("norm", if self.norm { "after" } else { "before" }.to_owned()),
        ]
    }

    pub(crate) fn check(&self, vit: &VitConfig) -> Result<(), EvalError> {
        if !(1..=vit.depth).contains(&self.layers) {
            return Err(ConfigError::Layers { asked: self.layers, depth: vit.depth }.into());
        }
        match self.tokens {
            FeatureTokens::Mean | FeatureTokens::Patches if self.layers > 1 => Err(EvalError::Setting {
                setting: "layers",
                value: self.layers.to_string(),
                expected: format!("1 with `{}`: class tokens alone are taken from several blocks", self.tokens.name()),
            }),
            _ => Ok(()),
        }
    }

    /// What has to be read out of the network.
    pub(crate) fn readout(&self) -> Readout {
        let tokens = match self.tokens {
            FeatureTokens::Class => model::Tokens::Class,
            FeatureTokens::Mean | FeatureTokens::Both | FeatureTokens::Patches => model::Tokens::All,
        };
        Readout { tokens, layers: self.layers, norm: self.norm }
    }

    /// The features of `images` images, one after another, from what was read: a matrix for each layer. `leading` tokens
    /// of an image come before its patches. Threads share the images, each of which one thread computes alone.
    pub(crate) fn pool(&self, read: Vec<Vec<f32>>, images: usize, dim: usize, leading: usize) -> Vec<f32> {
        if let (FeatureTokens::Class, [_]) = (self.tokens, &read[..]) {
            return read.into_iter().next().unwrap_or_default();
        }
        let Some(last) = read.last().filter(|_| images > 0) else { return Vec::new() };
        let stride = last.len() / images;
        let class = |layer: &'_ [f32], image: usize| layer[image * stride..image * stride + dim].to_vec();
        let patches = |image: usize| &last[image * stride + leading * dim..(image + 1) * stride];
        let feature = |image: usize| -> Vec<f32> {
            match self.tokens {
                FeatureTokens::Class => read.iter().flat_map(|layer| class(layer, image)).collect(),
                FeatureTokens::Mean => mean(patches(image), dim),
                FeatureTokens::Both => {
                    let classes = read.iter().flat_map(|layer| class(layer, image));
                    classes.chain(mean(patches(image), dim)).collect()
                }
                FeatureTokens::Patches => patches(image).to_vec(),
            }
        };
        (0..images).into_par_iter().flat_map_iter(feature).collect()
    }
}

/// The mean of rows, summed in double precision and in their order.
fn mean(rows: &[f32], dim: usize) -> Vec<f32> {
    let mut sums = vec![0.0f64; dim];
    for row in rows.chunks_exact(dim) {
        sums.iter_mut().zip(row).for_each(|(sum, &value)| *sum += f64::from(value));
    }
    let count = (rows.len() / dim.max(1)).max(1) as f64;
    sums.into_iter().map(|sum| (sum / count) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Arch, Extras};

    #[test]
    fn tokens_are_taken_where_they_stand_and_registers_are_no_patches() {
        // Two images, each with a class token, a register and two patches of two values; two layers.
        let layer = |first: f32| (0..16).map(|i| first + i as f32).collect::<Vec<f32>>();
        let pool = |tokens, layers| {
            let read = [layer(100.0), layer(0.0)][2 - layers..].to_vec();
            Pooling { tokens, layers, norm: true }.pool(read, 2, 2, 2)
        };
        assert_eq!(pool(FeatureTokens::Mean, 1), [5.0, 6.0, 13.0, 14.0]);
        assert_eq!(pool(FeatureTokens::Both, 1), [0.0, 1.0, 5.0, 6.0, 8.0, 9.0, 13.0, 14.0]);
        assert_eq!(pool(FeatureTokens::Both, 2)[..6], [100.0, 101.0, 0.0, 1.0, 5.0, 6.0]);
        assert_eq!(pool(FeatureTokens::Patches, 1), [4.0, 5.0, 6.0, 7.0, 12.0, 13.0, 14.0, 15.0]);
        // Class tokens alone are read as rows of their own.
        let classes = Pooling { layers: 2, ..Pooling::default() };
        let read = vec![vec![1.0, 2.0, 3.0, 4.0], vec![5.0, 6.0, 7.0, 8.0]];
        assert_eq!(classes.pool(read.clone(), 2, 2, 2), [1.0, 2.0, 5.0, 6.0, 3.0, 4.0, 7.0, 8.0]);
        assert_eq!(Pooling::default().pool(vec![read[0].clone()], 2, 2, 2), read[0]);
    }

    #[test]
    fn shapes_leave_registers_out_and_what_cannot_be_meant_is_refused() {
        let extras = Extras { registers: 4, ..Extras::NONE };
        let vit = VitConfig { extras, ..VitConfig::new(Arch::Nano, 8, (32, 32), 3).unwrap() };
        assert_eq!(Pooling::of(FeatureTokens::Patches).shape(&vit, (32, 16)), [8, 64]);
        let of = |tokens, layers| Pooling { tokens, layers, norm: true };
        assert_eq!(of(FeatureTokens::Both, 2).shape(&vit, (32, 16)), [192]);
        for tokens in [FeatureTokens::Mean, FeatureTokens::Patches] {
            let error = of(tokens, 2).check(&vit).unwrap_err().to_string();
            assert!(error.contains("layers = 2") && error.contains(tokens.name()), "{error}");
        }
        of(FeatureTokens::Both, vit.depth).check(&vit).unwrap();
        for layers in [0, vit.depth + 1] {
            let error = of(FeatureTokens::Class, layers).check(&vit).unwrap_err();
            assert!(matches!(error, EvalError::Network(ConfigError::Layers { .. })), "{error}");
        }
        for (name, tokens) in NAMES {
            assert_eq!((FeatureTokens::of_name(name), tokens.name()), (Some(tokens), name));
        }
        assert_eq!(FeatureTokens::of_name("cls"), None);
    }
}
