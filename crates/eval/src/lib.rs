//! What a trained backbone is worth: features of any image source, and the protocols that judge them.
//!
//! - [`prepare`]: what happens to an image before the network sees it.
//! - [`features`]: class-token features of a source (or its raw pixels, to compare with).
//! - [`mod@save`]: features into a file.
//! - [`knn`]: the weighted nearest-neighbour classifier of DINO.

mod error;
pub mod features;
pub mod knn;
#[cfg(test)]
mod knn_golden;
mod neighbors;
pub mod prepare;
mod reading;
pub mod save;

pub use error::EvalError;
pub use features::{Extraction, Features, Network, extract, raw_pixels};
pub use knn::{KnnOptions, KnnResult};
pub use prepare::Preparation;
pub use reading::{Progress, ReadOptions};
pub use save::{FEATURES_FORMAT, FeatureFormat, save};
