//! Fine-tuning: a linear classifier on the class token, trained together with the backbone, and judged on held-out images
//! after every epoch. The best top-1 accuracy is the result, as in the papers.
//!
//! - [`recipe`]: BEiT's (ImageNet) and DeiT's (small sets), every setting with the reason for its value.
//! - [`schedule`]: their learning rates.
//! - [`loss`]: cross-entropy with soft targets.
//! - [`tuner`]: the network, its gradient and its optimiser; knows no data.
//! - [`training`]: the same as the loop of crate `train` sees it: batches with RandAugment, erasing, mixup and cutmix.
//! - [`config`]: what makes a run folder this training's.
//! - `judge`: top-1 and top-5 on held-out images.

pub mod config;
mod judge;
pub mod loss;
pub mod recipe;
pub mod schedule;
pub mod training;
pub mod tuner;

pub use config::{FineTuneConfig, is_fine_tuning};
pub use judge::{Accuracy, Best, Judge, best};
pub use recipe::{Facts, FineTuneRecipe, Kind, RecipeError, Setting};
pub use training::{FineTuneError, FineTuning, Parts, description, open};
pub use tuner::Tuner;
