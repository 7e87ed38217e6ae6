//! A run is a folder: `identity.json`, `config.toml`, `metrics.jsonl`, TensorBoard events and `checkpoints/`.
//!
//! Whatever happens to the process or the machine, the folder stays one that the same command continues: files are
//! replaced atomically, a checkpoint proves itself by a checksum before it is used, and the log is cut back to the step
//! from which training goes on.

mod atomic;
mod attempts;
mod checkpoint;
mod config;
mod error;
mod extension;
mod folder;
mod format;
mod identity;
mod in_place;
mod lock;
mod machine;
mod metrics;
mod reader;
mod result;
mod run_state;
mod tensorboard;

pub use attempts::{Attempt, Change, Vacated};
pub use checkpoint::{Checkpoints, Recovered, Skipped, Written};
pub use config::{Comparison, Difference, RunConfig};
pub use error::RunError;
pub use folder::{BACKBONE_FILE, CENSUS_FILE, INITIAL_FILE, NOT_FINITE_FILE, REPORT_FILE, RunFolder, is_run};
pub use format::{Checkpoint, Damage, Element, TensorRef};
pub use identity::{Digests, Identity, Shorter};
pub use lock::Activity;
pub use machine::{Machine, MachineSince};
pub use metrics::{MetricsLog, Record, Truncated};
pub use reader::RunReader;
pub use result::{CollapsedAt, KnnTable, RESULT_FILE, ResultError, RunResult, checksum};
pub use run_state::RunState;
pub use tensorboard::EventLog;
