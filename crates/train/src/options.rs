//! How a run goes, and how it may end.

use std::time::Duration;

use data::LoaderConfig;

use crate::collapse::Patience;

/// How a run goes.
#[derive(Clone, Debug)]
pub struct LoopOptions {
    /// How batches are made.
    pub loader: LoaderConfig,
    /// Passes over the data.
    pub epochs: u64,
    /// Steps between two records of the log.
    pub log_every: u64,
    /// Epochs between two evaluations; 0 for none. The last epoch is evaluated in any case where others are.
    pub evaluate_every: u64,
    /// Whether what the run begins with is evaluated before the first step.
    pub evaluate_start: bool,
    /// Time between two checkpoints, at most.
    pub save_every: Duration,
    /// How long a collapse must last before it ends the run; none for a run that goes on in any case.
    pub patience: Option<Patience>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All steps are done.
    Finished,
    /// It was asked for; the same command continues.
    Stopped {
        /// Steps done.
        step: u64,
    },
    /// It has collapsed, and that has lasted. The same command would end it again.
    Collapsed {
        /// Steps done.
        step: u64,
        /// The step of the first record that told of it.
        since: u64,
    },
}
