//! Video object segmentation on DAVIS-2017: how far a network's patch features alone can follow an object.
//!
//! - `davis`: the data set on disk.
//! - `score`: J, F, their recall and decay, of masks made by anything; `boundary`: the F of two masks.
//! - `propagate`: the masks that a network gives, from the first one of each sequence: `frame` prepares what it sees,
//!   `affinity` carries soft masks from frame to frame, `soft` makes labels of them.

mod affinity;
mod boundary;
mod davis;
mod error;
mod frame;
#[cfg(test)]
mod golden;
mod propagate;
mod score;
mod soft;

pub use davis::{Part, Sequence, digests, sequences};
pub use error::VideoError;
pub use propagate::{Propagation, propagate};
pub use score::{Score, SequenceScore, Statistics, VideoScore, score_folder, score_masks};

use rayon::{ThreadPool, ThreadPoolBuilder};
use tensor::Device;

use crate::error::EvalError;

/// As many threads as the host's device has.
fn threads(host: &Device) -> Result<ThreadPool, EvalError> {
    let pool = ThreadPoolBuilder::new().num_threads(host.threads()).build();
    pool.map_err(|error| EvalError::Thread { reason: error.to_string() })
}
