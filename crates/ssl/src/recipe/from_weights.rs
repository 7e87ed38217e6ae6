//! What a recipe takes over from the weights that a run begins with: the network that they are of.

use model::VitConfig;

use super::error::RecipeError;
use super::fields::RawRecipe;
use super::values::{Begin, MethodName, Setting, WeightsDigest};

/// The shape of the heads in a file, where they are whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadShape {
    /// Number of prototypes K.
    pub prototypes: usize,
    /// Number of prototypes of patches, where they have their own.
    pub patch_prototypes: Option<usize>,
    /// Width of the hidden layers.
    pub hidden: usize,
    /// p, the dimension of the sphere's space.
    pub bottleneck: usize,
    /// Linear layers.
    pub layers: usize,
    /// Whether there is batch normalisation between them.
    pub batch_norm: bool,
}

impl RawRecipe {
    /// The same for a run that begins with the weights of `place`, as the command line names them. Their network is the run's:
    /// a key that says otherwise is an error. A recipe that nobody asked for, which `is_built_in` knows by its place, gives way.
    pub fn beginning_with(
        mut self,
        begin: Begin,
        digest: u64,
        config: &VitConfig,
        place: &str,
        is_built_in: impl Fn(&str) -> bool,
    ) -> Result<Self, RecipeError> {
        let extras = config.extras;
        let arch = config.arch().map(|arch| arch.show());
        let network = [
            ("begin", Some(begin.show())),
            ("begin_weights", Some(WeightsDigest(Some(digest)).show())),
            ("arch", arch),
            ("patch_size", Some(config.patch.show())),
            ("channels", Some(config.channels.show())),
            ("registers", Some(extras.registers.show())),
            ("layer_scale", Some(extras.layer_scale.show())),
            ("positions", Some(extras.interpolation.show())),
            ("norm_epsilon", Some(extras.norm_epsilon.show())),
        ];
        for (key, found) in network.into_iter().filter_map(|(key, found)| Some((key, found?))) {
            if let Some((given, at)) = self.given_value(key).filter(|(given, at)| *given != found && !is_built_in(at)) {
                let (place, weights) = (at.to_owned(), place.to_owned());
                return Err(RecipeError::NotOfWeights { place, key, given, weights, found });
            }
            self.set_text(key, &found, place)?;
        }
        if self.start.as_ref().is_some_and(|start| is_built_in(&start.place)) {
            self.start = None;
        }
        Ok(self)
    }

    /// The same with heads of this shape, so that those of `place` can be taken. What was asked for stays: a head of another
    /// shape begins anew.
    pub fn with_heads(
        mut self,
        heads: &HeadShape,
        place: &str,
        is_built_in: impl Fn(&str) -> bool,
    ) -> Result<Self, RecipeError> {
        let mut keys = vec![
            ("out_dim", heads.prototypes.show()),
            ("head_hidden", heads.hidden.show()),
            ("head_bottleneck", heads.bottleneck.show()),
            ("head_layers", heads.layers.show()),
            ("head_batch_norm", heads.batch_norm.show()),
        ];
        if self.method() == MethodName::Ibot {
            keys.push(("shared_head", heads.patch_prototypes.is_none().show()));
            keys.extend(heads.patch_prototypes.map(|count| ("patch_out_dim", count.show())));
        }
        for (key, found) in keys {
            if self.given_value(key).is_none_or(|(_, at)| is_built_in(at)) {
                self.set_text(key, &found, place)?;
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Facts;
    use super::*;
    use model::{Arch, Extras};
    use tensor::ops::Interpolation;

    const FACTS: Facts = Facts { images: 500, height: 56, width: 56, labelled: true, fingerprint: 7 };

    fn config() -> VitConfig {
        let extras =
            Extras { registers: 4, layer_scale: true, interpolation: Interpolation::Antialiased, norm_epsilon: 1e-12 };
        VitConfig { extras, ..VitConfig::new(Arch::Tiny, 14, (224, 224), 3).unwrap() }
    }

    fn begun(text: &str) -> Result<RawRecipe, RecipeError> {
        let asked = RawRecipe::from_toml(text, "my.toml").unwrap();
        asked.beginning_with(Begin::Init, 7, &config(), "--init w.pth", |place| place == "built-in")
    }

    #[test]
    fn the_network_is_that_of_the_weights_and_says_so() {
        let recipe = begun("epochs = 3\npatch_size = 14").unwrap().resolve(&FACTS).unwrap();
        assert_eq!((recipe.arch(), recipe.patch_size(), recipe.registers()), (Arch::Tiny, 14, 4));
        let made = crate::setup::vit_config(&recipe).unwrap();
        assert_eq!(made, VitConfig { image: (56, 56), ..config() });
        let line = recipe.explain().into_iter().find(|line| line.key == "arch").unwrap();
        assert_eq!(line.origin.to_string(), "given: --init w.pth");
        assert_eq!(super::super::Recipe::from_toml(&recipe.to_toml(), "config.toml").unwrap(), recipe);
    }

    #[test]
    fn a_key_that_says_otherwise_is_refused_with_both() {
        let message = begun("arch = \"vit_small\"").unwrap_err().to_string();
        assert_eq!(
            message,
            "my.toml:1: arch = \"vit_small\" contradicts --init w.pth, whose network has arch = \"vit_tiny\": leave arch out"
        );
        let asked = RawRecipe::from_toml("arch = \"vit_small\"\nstart = \"mimetic\"", "built-in").unwrap();
        let begun =
            asked.beginning_with(Begin::Init, 7, &config(), "--init w.pth", |place| place.starts_with("built-in"));
        assert_eq!(begun.unwrap().resolve(&FACTS).unwrap().arch(), Arch::Tiny, "nobody asked for it");
    }

    #[test]
    fn heads_are_shaped_as_those_of_the_file_unless_asked_for() {
        let heads = HeadShape {
            prototypes: 96,
            patch_prototypes: Some(48),
            hidden: 40,
            bottleneck: 20,
            layers: 2,
            batch_norm: false,
        };
        let shaped = |text: &str| {
            begun(text).unwrap().with_heads(&heads, "--init w.pth", |_| false).unwrap().resolve(&FACTS).unwrap()
        };
        let recipe = shaped("head_hidden = 50");
        assert_eq!((recipe.out_dim(), recipe.head_hidden(), recipe.head_bottleneck()), (96, 50, 20));
        assert_eq!((recipe.head_layers(), recipe.head_batch_norm()), (2, false));
        let ibot = shaped("method = \"ibot\"");
        assert_eq!((ibot.shared_head(), ibot.patch_out_dim()), (false, 48));
    }
}
