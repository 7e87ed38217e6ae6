//! Why a training ended before its end, and what is left of it.

use std::fmt;
use std::path::PathBuf;

use data::LoaderError;
use model::{ConfigError, PeerError};
use tensor::DeviceError;

use crate::run::RunError;

/// Something is not a finite number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{term} is not finite")]
pub struct NotFinite {
    /// Which quantity, in words.
    pub term: String,
}

/// A step that cannot be taken. Nothing that is trained has changed, except after a failure of the device, or where another
/// process was lost at the step's end: then [`Trainable::collect`](crate::Trainable::collect) fails.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// Images that do not fit the network.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A value of the step.
    #[error(transparent)]
    NotFinite(#[from] NotFinite),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Another process of the same run, which says why, or all others.
    #[error(transparent)]
    Peers(PeerError),
}

impl From<PeerError> for StepError {
    fn from(error: PeerError) -> Self {
        match error {
            PeerError::Device(error) => Self::Device(error),
            other => Self::Peers(other),
        }
    }
}

/// Why a training ended.
#[derive(Debug, thiserror::Error)]
pub enum TrainFailure {
    /// A step, or the device.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The data.
    #[error(transparent)]
    Data(#[from] LoaderError),
    /// The run folder.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A checkpoint of this program that does not fit this run.
    #[error("{}: {what}; remove the file to go on from the one before", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A checkpoint that the process which writes the run has found, and that this process cannot use.
    #[error(
        "this process cannot use the checkpoint of step {step} that the run goes on from: {what}. All processes of a run need \
         the same folder"
    )]
    Unseen {
        /// Its step.
        step: u64,
        /// Why.
        what: String,
    },
    /// Something that is not finite, found when it was to be saved.
    #[error(
        "step {step}: {name} has values that are not finite, so nothing was saved. In a new run (another --out) a lower lr \
         or weight_decay usually helps"
    )]
    State {
        /// What: `student`, `center`.
        name: String,
        /// The step.
        step: u64,
    },
    /// A value that is not finite.
    #[error(
        "step {step}: {term} is not finite, so training stopped before it could change a weight. {report} In a new run \
         (another --out) a lower lr, a longer warm-up or a smaller clip_grad usually helps"
    )]
    NotFinite {
        /// The step.
        step: u64,
        /// Which quantity.
        term: String,
        /// Where the batch is described, in words.
        report: String,
    },
}

/// What a training that failed has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It had not begun: there is nothing to keep.
    NotBegun,
    /// Everything up to its last step.
    All {
        /// That step.
        step: u64,
    },
    /// The last checkpoint before the failure.
    Checkpoint {
        /// Its step.
        step: u64,
    },
    /// No checkpoint had been written.
    Nothing,
    /// A checkpoint had been written, but somebody has taken it away.
    Gone {
        /// Its step.
        step: u64,
    },
    /// The folder itself is gone, with whatever was in it.
    NoFolder,
    /// A checkpoint from before steps that were not saved, because they were trained on substitutes for images that could
    /// not be read: when those are back, the run is to become what it would have been.
    BeforeSubstitutes {
        /// Its step; none where no checkpoint had been written.
        saved: Option<u64>,
        /// The last step that was taken.
        step: u64,
    },
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kept::NotBegun => Ok(()),
            Kept::All { step } => write!(f, ". The run was saved after step {step}"),
            Kept::Checkpoint { step } => write!(f, ". The checkpoint of step {step} is intact"),
            Kept::Nothing => f.write_str(". No checkpoint had been written yet"),
            Kept::Gone { step } => write!(f, ". The checkpoint of step {step} is not there any more"),
            Kept::NoFolder => Ok(()),
            Kept::BeforeSubstitutes { saved, step } => {
                let from = match saved {
                    Some(saved) => format!("goes on after step {saved}"),
                    None => "begins again".to_owned(),
                };
                write!(
                    f,
                    "\nSome of the steps up to {step} were trained on other images in the place of unreadable ones, so they \
                     were not saved: the same command {from}, and gives what it would have given with all images readable"
                )
            }
        }
    }
}

/// A training that ended before its end.
#[derive(Debug, thiserror::Error)]
#[error("{cause}{kept}")]
pub struct TrainError {
    /// Why.
    pub cause: TrainFailure,
    /// What is left of it.
    pub kept: Kept,
}

impl<E: Into<TrainFailure>> From<E> for TrainError {
    fn from(cause: E) -> Self {
        Self { cause: cause.into(), kept: Kept::NotBegun }
    }
}
