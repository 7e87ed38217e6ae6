//! A run is a folder: `config.toml`, `metrics.jsonl`, TensorBoard events and `checkpoints/`.
//!
//! Whatever happens to the process or the machine, the folder stays one that the same command continues: files are
//! replaced atomically, a checkpoint proves itself by a checksum before it is used, and the log is cut back to the step
//! from which training goes on.

mod atomic;
mod checkpoint;
mod error;
mod folder;
mod format;
mod metrics;
mod tensorboard;

pub use checkpoint::{Checkpoints, Recovered, Skipped};
pub use error::RunError;
pub use folder::{RunFolder, is_run, read_config};
pub use format::{Checkpoint, Damage, Element, TensorRef};
pub use metrics::{MetricsLog, Record, Truncated};
pub use tensorboard::EventLog;
