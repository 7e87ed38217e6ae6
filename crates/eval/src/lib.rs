//! Evaluation of trained backbones: features of any image source, and the protocols that judge them, one file each.
//!
//! - [`input`]: what a network sees of an image, and [`prepare`]: the resize and crop behind it.
//! - [`features`]: class-token features of a source, or its raw pixels as a baseline.
//! - [`mod@save`]: features into a file; [`stored`]: out of one.
//! - [`labelled`]: features with a class for every row, which protocols learn from and are judged on.
//! - [`knn`]: the weighted nearest-neighbour classifier of DINO; [`online`]: the same on a fixed sample during training.
//! - [`copies`]: Copydays: which original is this a copy of?
//! - [`prototypes`]: which of a head's prototypes are one, which are used, how concentrated they are; [`precision`]: kNN by that.
//! - [`retrieval`]: revisited Oxford and Paris: ground truth, rankings, mAP.
//! - [`memory`]: how much of it features take.
//! - [`subset`]: a fixed random sample of a source.

pub mod copies;
mod eigen;
mod error;
pub mod features;
pub mod input;
pub mod knn;
#[cfg(test)]
mod knn_golden;
pub mod labelled;
pub mod memory;
mod neighbors;
mod normalization;
pub mod online;
pub mod precision;
pub mod prepare;
pub mod prototypes;
mod reading;
pub mod retrieval;
pub mod save;
pub mod stored;
pub mod subset;

pub use error::EvalError;
pub use features::{Extraction, Features, Network, extract, raw_pixels};
pub use input::InputSpec;
pub use knn::{KnnOptions, KnnResult};
pub use labelled::Labelled;
pub use normalization::Normalization;
pub use online::{OnlineKnn, OnlineKnnOptions};
pub use prepare::Preparation;
pub use reading::{ReadOptions, ReadProgress};
pub use save::{FEATURES_FORMAT, FeatureFormat, save, save_as};
pub use stored::{StoredFeatures, StoredProblem};
pub use subset::{Subset, is_labelled};
