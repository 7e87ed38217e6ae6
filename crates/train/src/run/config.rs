//! The settings of a run, as its folder sees them: a text to keep, and whether other settings continue the same run.

use std::error::Error;
use std::fmt;

use super::identity::Digests;

/// A setting in which two runs differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its name.
    pub key: String,
    /// Its value in the saved settings.
    pub saved: String,
    /// Its value in the settings to continue with.
    pub now: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} saved, {} now", self.key, self.saved, self.now)
    }
}

/// How settings compare with those that a run was begun with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// They are the same.
    Same,
    /// They differ only in these, which cannot change the weights, so that they continue the run.
    Continues(Vec<Difference>),
    /// They are those of another run.
    Other(Vec<Difference>),
}

/// The settings of a training.
pub trait RunConfig {
    /// All of them, as `config.toml` keeps them.
    fn to_toml(&self) -> String;

    /// Compares them with saved ones; an error where those cannot be read.
    fn compare(&self, saved: &str) -> Result<Comparison, Box<dyn Error + Send + Sync>>;

    /// Digests of the settings that shape the result, and of the data. Settings that may change while a run goes on do not
    /// count.
    fn digests(&self) -> Digests;

    /// Steps of the whole run.
    fn total_steps(&self) -> u64;

    /// How many checkpoints are kept.
    fn keep_checkpoints(&self) -> usize;
}
