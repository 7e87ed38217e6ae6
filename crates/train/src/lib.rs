//! What every training needs, self-supervised or not.
//!
//! - [`curve`]: values that change while a run goes on.
//! - [`optimizer`]: AdamW with a treatment for each parameter.
//! - [`layers`]: which layer of a network a parameter belongs to.
//! - [`reduce`]: what the processes of one run add up and decide together.
//! - [`feed`]: batches on their way to the device.
//! - [`home`]: where a run is kept, by the one of its processes that writes.
//! - [`step`]: the end of every step, from a gradient to new weights.
//! - [`state`]: what a checkpoint holds, by name.
//! - [`run`]: the run's folder, its checkpoints, logs and result, and a reader for all of them.
//! - [`trainer`]: the loop from the first step, or the last checkpoint, to the end.
//!
//! A training brings a [`Trainable`]: what a step does, what is saved, what is logged. It knows no terminal and no
//! evaluation; those come in as a [`Monitor`], an [`Evaluator`] and a question whether to stop.

mod collapse;
pub mod curve;
pub mod error;
pub mod feed;
pub mod home;
pub mod layers;
mod logarithm;
pub mod optimizer;
mod options;
mod pace;
pub mod reduce;
pub mod run;
mod save_times;
mod slowest;
pub mod state;
pub mod step;
mod substitutes;
mod trainable;
pub mod trainer;
mod watch;

pub use collapse::{Collapse, Condition, Patience};
pub use error::{Kept, NotFinite, StepError, TrainError, TrainFailure};
pub use options::{LoopOptions, Outcome};
pub use substitutes::Substitutes;
pub use trainable::{Position, StepRecord, Trainable};
pub use trainer::Trainer;
pub use watch::{Evaluation, Evaluator, Monitor, NoEvaluation, Progress};
