//! Evaluation of trained backbones: features of any image source, and the protocols that judge them, one file each.
//!
//! - [`input`]: what a network sees of an image, and [`prepare`]: the resize and crop behind it.
//! - [`features`]: features of a source, or its raw pixels as a baseline; [`pooling`]: of which tokens they are made.
//! - [`mod@save`]: features into a file; [`stored`]: out of one.
//! - [`labelled`]: features with a class for every row, which protocols learn from and are judged on.
//! - [`knn`]: the weighted nearest-neighbour classifier of DINO; [`online`]: the same on a fixed sample during training.
//! - [`logistic`]: multinomial logistic regression, along a path of penalties and for several folds at once.
//! - [`fewshot`]: logistic regression on a few images of each class; [`transfer`]: the same with the penalty chosen by validation.
//! - [`linear`]: linear classifiers on frozen features, all learning rates side by side.
//! - [`mixture`]: a mixture of von Mises-Fisher distributions fitted to features, and a network's prototypes as one.
//! - [`copies`]: Copydays: which original is this a copy of?
//! - [`prototypes`]: which of a head's prototypes are one, which are used, how concentrated they are; [`precision`]: kNN by that.
//! - [`certainty`]: how sure a head is of an image, and whether that means something.
//! - [`retrieval`]: revisited Oxford and Paris: ground truth, rankings, mAP.
//! - [`finetune`]: a classifier trained together with the backbone, by the recipes of BEiT and DeiT.
//! - [`map()`](map::map): features on a plane, near ones near each other, to be looked at.
//! - [`memory`]: how much of it features take.
//! - [`attention`]: what a network looks at, as pictures.
//! - [`subset`]: a fixed random sample of a source.
//! - [`video`]: object segmentation on DAVIS-2017, and the scores of masks made by anything.

pub mod attention;
pub mod certainty;
pub mod copies;
mod eigen;
mod error;
pub mod features;
pub mod fewshot;
pub mod finetune;
pub mod input;
pub mod knn;
#[cfg(test)]
mod knn_golden;
pub mod labelled;
pub mod linear;
pub mod logistic;
pub mod map;
pub mod memory;
pub mod mixture;
mod neighbors;
mod network;
mod normalization;
pub mod online;
pub mod pooling;
pub mod precision;
pub mod prepare;
pub mod prototypes;
mod reading;
pub mod retrieval;
pub mod save;
mod spread;
pub mod stored;
pub mod subset;
pub mod transfer;
pub mod video;

pub use error::EvalError;
pub use features::{Extraction, FeatureBatch, Features, after_norm, extract, extract_each, raw_pixels};
pub use input::InputSpec;
pub use knn::{KnnOptions, KnnResult};
pub use labelled::Labelled;
pub use linear::{LinearOptions, LinearResult};
pub use neighbors::{Neighbor, Place, nearest_rows};
pub use network::{Network, Twin};
pub use normalization::Normalization;
pub use online::{OnlineKnn, OnlineKnnOptions};
pub use pooling::{FeatureTokens, Pooling};
pub use prepare::Preparation;
pub use reading::{Pass, ReadOptions, ReadProgress, prepared_images};
pub use save::{FEATURES_FORMAT, FeatureFormat, FeatureWriter, save, save_as};
pub use stored::{StoredFeatures, StoredProblem};
pub use subset::{Subset, is_labelled};
