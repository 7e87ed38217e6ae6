//! From views to the batch that a classifier is trained on: values are normalised, rectangles erased, images mixed in pairs,
//! and labels become distributions. All of it as timm does it; every draw is a function of its key.

mod batch;
mod erase;
mod mix;

pub use batch::{TrainingBatch, Treatment};
pub use erase::Erasing;
pub use mix::{Mix, Mixing, smoothed};
