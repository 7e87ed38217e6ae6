//! Why `W` of the command line is not loaded, beside what is wrong with its tensors.

use std::path::PathBuf;

use train::run::Damage;

/// Why given weights are not taken.
#[derive(Debug, thiserror::Error)]
pub enum GivenWeightsError {
    /// A run that has no checkpoint yet.
    #[error(
        "{}: the run has not saved a checkpoint yet; wait for its first one, or continue it with `dino-vmf pretrain`",
        text::shown(path)
    )]
    NoCheckpoint {
        /// The run folder.
        path: PathBuf,
    },
    /// The checkpoints of a run are gone.
    #[error(
        "{}: the run has saved step {step}, but none of its checkpoints is there any more. Where it was stopped, its {} \
         is the teacher of that step: give that file",
        text::shown(path),
        train::run::BACKBONE_FILE
    )]
    CheckpointsGone {
        /// The run folder.
        path: PathBuf,
        /// The last step that was saved.
        step: u64,
    },
    /// A damaged checkpoint.
    #[error("{}: {source}", text::shown(path))]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Damage,
    },
    /// The backbone of a finished run is not what the run wrote.
    #[error(
        "{}: is damaged: it is not what its run wrote. The run's own command makes it again, and its folder as --weights \
         takes the last checkpoint", path.display()
    )]
    DamagedBackbone {
        /// The file.
        path: PathBuf,
    },
    /// Features where weights are expected.
    #[error("{}: this file holds features, not a network; give the run or the weights that they came from", path.display())]
    FeaturesAsWeights {
        /// The file.
        path: PathBuf,
    },
    /// The settings of a run are no longer those of its checkpoint.
    #[error(
        "{}: this checkpoint was trained with {key} {said}, but the run's config.toml now means {now}: its features would be \
         wrong. Put config.toml back as it was", path.display()
    )]
    ChangedSettings {
        /// The checkpoint.
        path: PathBuf,
        /// What differs.
        key: &'static str,
        /// What the checkpoint says.
        said: String,
        /// What the settings say.
        now: String,
    },
    /// A weights file whose description of itself cannot be meant.
    #[error("{}: {source}. The file was not written as it should be", path.display())]
    Described {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: eval::EvalError,
    },
}
