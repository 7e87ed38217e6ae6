//! How fast the layers of a backbone learn beside its heads.
//!
//! Of a network that has been trained, the first layers see what all images have in common, and change the least. With a
//! layer decay d below one, the learning rate of block i of L is multiplied by d^(L - i), that of everything before the
//! first block by d^L, and that of the norm after the last one by one.

use model::ParamSpec;
use train::layers::layer_of;
use train::optimizer::Treatment;

use crate::learner::BACKBONE;

/// Factors on the learning rate of a backbone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackboneLearning {
    /// Of all of it.
    pub lr: f64,
    /// From each block to the one before it; 1 for the same throughout.
    pub layer_decay: f64,
}

impl Default for BackboneLearning {
    /// As fast as its heads.
    fn default() -> Self {
        Self { lr: 1.0, layer_decay: 1.0 }
    }
}

impl BackboneLearning {
    /// The treatment of a parameter in a network of so many blocks: where it is the backbone's, it waits while heads warm up,
    /// is pulled towards where it began, and learns as fast as its layer does.
    pub fn treatment(&self, usual: Treatment, spec: &ParamSpec, depth: usize) -> Treatment {
        let Some(name) = spec.name.strip_prefix(BACKBONE) else { return usual };
        let lr_factor =
            usual.lr_factor * self.lr * self.layer_decay.powi(depth.saturating_sub(layer_of(name, depth)) as i32);
        Treatment { waits: true, pulled: true, lr_factor, ..usual }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Arch, Init, Layout, Vit, VitConfig};

    #[test]
    fn each_layer_learns_slower_than_the_one_above_it() {
        let mut layout = Layout::default();
        Vit::new(&mut layout, BACKBONE, VitConfig::new(Arch::Tiny, 16, (32, 32), 3).unwrap());
        layout.add("head.mlp.0.weight", &[2, 2], Init::Constant(0.0));
        let learning = BackboneLearning { lr: 0.1, layer_decay: 0.8 };
        let of = |name: &str| {
            let spec = &layout.specs()[layout.find(name).unwrap().0];
            learning.treatment(Treatment::usual(spec), spec, 12)
        };
        // Twelve blocks, counted from 0: the plain product of the way down.
        let mut expected = 0.1;
        for block in (0..12).rev() {
            for part in ["attn.qkv.weight", "norm1.bias", "mlp.fc2.weight"] {
                let found = of(&format!("backbone.blocks.{block}.{part}")).lr_factor;
                assert!((found - expected).abs() < 1e-15, "{block}: {found} {expected}");
            }
            expected *= 0.8;
        }
        for name in ["cls_token", "pos_embed", "patch_embed.proj.weight"] {
            assert!((of(&format!("backbone.{name}")).lr_factor - expected).abs() < 1e-15);
        }
        assert_eq!(of("backbone.norm.weight").lr_factor, 0.1);
        assert!(of("backbone.norm.weight").waits && of("backbone.cls_token").pulled);
        let spec = &layout.specs()[layout.find("head.mlp.0.weight").unwrap().0];
        assert_eq!(learning.treatment(Treatment::usual(spec), spec, 12), Treatment::usual(spec));
    }
}
