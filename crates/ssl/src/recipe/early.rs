//! What is needed of a recipe before it is complete: to open the device, and to look at the data that it is derived from.

use data::Orientation;
use model::Start;
use tensor::ops::Interpolation;

use super::error::RecipeError;
use super::fields::{Given, RawRecipe};
use super::parse::parse;
use super::values::{Centering, Extension, MethodName, Prototypes, ResidualStream};

/// Channels of an ordinary image.
pub(super) const RGB: usize = 3;
/// The residual stream of a GPU.
pub(super) const RESIDUAL: ResidualStream = ResidualStream::Bf16;

impl RawRecipe {
    /// Channels that images will be brought to. The data is looked at before the recipe is complete.
    pub fn channels(&self) -> usize {
        self.channels.as_ref().map_or(RGB, |given| given.value)
    }

    /// Whether images will be turned upright. The data is looked at before the recipe is complete.
    pub fn orientation(&self) -> Orientation {
        self.orientation.as_ref().map_or(Orientation::Upright, |given| given.value)
    }

    /// Fills in what a configuration from before there was a choice means: images as they are stored, weights at random.
    pub(super) fn fill_as_before(&mut self, place: &str) {
        self.orientation.get_or_insert_with(|| Given { value: Orientation::AsStored, place: place.to_owned() });
        self.start.get_or_insert_with(|| Given { value: Start::Random, place: place.to_owned() });
    }

    /// Goes on as a run was begun whose saved configuration is older than some keys: what nobody has asked for is then what
    /// there was before there was a choice.
    pub fn go_on_as(&mut self, saved: &str, place: &str) -> Result<(), RecipeError> {
        let begun = Self::from_toml(saved, place)?;
        let (old, keys) = (format!("{place}, which is older than this key"), parse(saved, place)?);
        let is_older = |key: &str| !keys.contains_key(key);
        if is_older("orientation") && self.orientation.is_none() {
            self.orientation = begun.orientation.map(|given| Given { place: old.clone(), ..given });
        }
        if is_older("start") && self.start.is_none() {
            self.start = begun.start.map(|given| Given { place: old, ..given });
        }
        Ok(())
    }

    /// The method that will train.
    pub fn method(&self) -> MethodName {
        self.method.as_ref().map_or(MethodName::Dino, |given| given.value)
    }

    /// What the prototypes' norms will mean.
    pub fn prototypes(&self) -> Prototypes {
        let usual = if self.method() == MethodName::Msn { Prototypes::L2 } else { Prototypes::Vmf };
        self.prototypes.as_ref().map_or(usual, |given| given.value)
    }

    /// How many epochs were asked for.
    pub fn epochs(&self) -> Option<usize> {
        self.epochs.as_ref().map(|given| given.value)
    }

    /// The same for a run of so many epochs that was made longer so, from `extended_from` epochs.
    pub fn with_length(mut self, epochs: usize, extension: Extension, extended_from: usize, place: &str) -> Self {
        let place = place.to_owned();
        self.epochs = Some(Given { value: epochs, place: place.clone() });
        self.extension = Some(Given { value: extension, place: place.clone() });
        self.extended_from = Some(Given { value: extended_from, place });
        self
    }

    /// How positions are to be interpolated, where somebody said so.
    pub fn positions(&self) -> Option<Interpolation> {
        self.positions.as_ref().map(|given| given.value)
    }

    /// Where the teacher will be centred.
    pub fn centering(&self) -> Centering {
        let usual = || if self.prototypes() == Prototypes::Vmf { Centering::Probability } else { Centering::Logit };
        self.centering.as_ref().map_or_else(usual, |given| given.value)
    }

    /// Element type of the residual stream. The device is opened before the data is looked at.
    pub fn residual_stream(&self) -> ResidualStream {
        self.residual_stream.as_ref().map_or(RESIDUAL, |given| given.value)
    }

    /// Lowers a batch that was asked for to what the data has: for those who want the views and not the training.
    pub fn limit_batch(&mut self, images: usize) {
        if let Some(given) = &mut self.batch_size {
            given.value = given.value.min(images);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_run_goes_on_as_it_was_begun_and_a_new_one_as_it_is() {
        let old = "seed = 1\n[data]\nimages = 3\n";
        let mut asked = RawRecipe::default();
        asked.go_on_as(old, "config.toml").unwrap();
        assert_eq!(asked.start.unwrap().value, Start::Random);
        assert_eq!(asked.orientation.unwrap().value, Orientation::AsStored);
        let mut asked = RawRecipe::from_toml("start = \"mimetic\"", "mine.toml").unwrap();
        asked.go_on_as(old, "config.toml").unwrap();
        assert_eq!(asked.start.unwrap().value, Start::Mimetic, "what was asked for is refused or not, but not changed");
        let new = "start = \"mimetic\"\norientation = \"upright\"\n[data]\nimages = 3\n";
        let mut asked = RawRecipe::default();
        asked.go_on_as(new, "config.toml").unwrap();
        assert!(asked.start.is_none() && asked.orientation.is_none());
    }
}
