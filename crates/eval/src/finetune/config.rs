//! The settings of a fine-tuning as a run folder keeps and compares them.

use std::collections::BTreeMap;
use std::error::Error;

use random::StableHash;
use train::run::{Comparison, Difference, Digests, RunConfig};

use super::recipe::FineTuneRecipe;

/// The first line of `config.toml`, by which a fine-tuning is told from a pre-training.
const FIRST: &str = "evaluation = \"finetune\"";

/// Whether the text of a `config.toml` is that of a fine-tuning.
pub fn is_fine_tuning(config: &str) -> bool {
    config.lines().next() == Some(FIRST)
}

/// All that shapes a fine-tuning.
#[derive(Clone, Debug, PartialEq)]
pub struct FineTuneConfig {
    /// Its recipe.
    pub recipe: FineTuneRecipe,
    /// Digest of the weights that it begins with, and of what they say of their network.
    pub weights: String,
    /// What the network sees of an image: size and part.
    pub input: String,
    /// Fingerprints of the training and of the test images.
    pub data: (u64, u64),
    /// Number of classes.
    pub classes: usize,
    /// Full batches in an epoch.
    pub steps_per_epoch: u64,
}

impl FineTuneConfig {
    /// Keys and values, as they are written.
    fn lines(&self) -> Vec<(String, String)> {
        let mut lines = vec![
            ("recipe".to_owned(), format!("{:?}", self.recipe.kind.name())),
            ("weights".to_owned(), format!("{:?}", self.weights)),
            ("input".to_owned(), format!("{:?}", self.input)),
            ("train_images".to_owned(), format!("\"{:016x}\"", self.data.0)),
            ("test_images".to_owned(), format!("\"{:016x}\"", self.data.1)),
            ("classes".to_owned(), self.classes.to_string()),
        ];
        lines.extend(self.recipe.settings().iter().map(|s| (s.key.to_owned(), s.value.clone())));
        lines
    }
}

/// Keys and values of a saved text; none where it is not one of ours.
fn parse(text: &str) -> Option<BTreeMap<String, String>> {
    let lines = text.lines().skip(1).filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let pair = |line: &str| {
        let (key, value) = line.split_once('=')?;
        Some((key.trim().to_owned(), value.trim().to_owned()))
    };
    is_fine_tuning(text).then(|| lines.map(pair).collect()).flatten()
}

impl RunConfig for FineTuneConfig {
    fn to_toml(&self) -> String {
        let lines = self.lines().into_iter().map(|(key, value)| format!("{key} = {value}\n"));
        format!("{FIRST}\n{}", lines.collect::<String>())
    }

    fn compare(&self, saved: &str) -> Result<Comparison, Box<dyn Error + Send + Sync>> {
        let mut saved = parse(saved).ok_or("it is not the configuration of a fine-tuning")?;
        let mut differences = Vec::new();
        for (key, now) in self.lines() {
            let saved = saved.remove(&key).unwrap_or_else(|| "nothing".to_owned());
            if saved != now {
                differences.push(Difference { key, saved, now });
            }
        }
        let more = saved.into_iter().map(|(key, saved)| Difference { key, saved, now: "nothing".to_owned() });
        differences.extend(more);
        Ok(if differences.is_empty() { Comparison::Same } else { Comparison::Other(differences) })
    }

    fn digests(&self) -> Digests {
        let digest = |text: &str| {
            let mut hash = StableHash::new();
            hash.write(text.as_bytes());
            format!("{:016x}", hash.finish())
        };
        Digests { recipe: digest(&self.to_toml()), data: format!("{:016x}", self.data.0) }
    }

    fn total_steps(&self) -> u64 {
        self.recipe.epochs * self.steps_per_epoch
    }

    fn keep_checkpoints(&self) -> usize {
        2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finetune::recipe::{Facts, Kind};

    fn config(given: &[(String, String)]) -> FineTuneConfig {
        let recipe = FineTuneRecipe::resolve(Kind::Beit, &Facts { images: 100, width: 64 }, given).unwrap();
        let (weights, input) = ("0123".to_owned(), "32x32 whole".to_owned());
        FineTuneConfig { recipe, weights, input, data: (1, 2), classes: 10, steps_per_epoch: 16 }
    }

    #[test]
    fn the_same_settings_go_on_and_any_other_is_named() {
        let (usual, other) = (config(&[]), config(&[("lr".to_owned(), "0.5".to_owned())]));
        assert_eq!(usual.compare(&usual.to_toml()).unwrap(), Comparison::Same);
        let Comparison::Other(differences) = usual.compare(&other.to_toml()).unwrap() else { panic!("they differ") };
        assert_eq!(differences.len(), 1);
        assert_eq!((differences[0].key.as_str(), differences[0].saved.as_str()), ("lr", "0.5"));
        let moved = FineTuneConfig { data: (1, 3), ..usual.clone() };
        let Comparison::Other(differences) = moved.compare(&usual.to_toml()).unwrap() else { panic!("they differ") };
        assert_eq!(differences[0].key, "test_images");
        assert_ne!(usual.digests(), other.digests());
    }

    #[test]
    fn the_settings_of_a_pre_training_are_another_run() {
        assert!(config(&[]).compare("method = \"dino\"\n").is_err());
        assert!(is_fine_tuning(&config(&[]).to_toml()) && !is_fine_tuning("method = \"dino\"\n"));
        let more = format!("{}nonsense\n", config(&[]).to_toml());
        assert!(config(&[]).compare(&more).is_err());
    }
}
