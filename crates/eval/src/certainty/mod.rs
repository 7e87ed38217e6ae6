//! Whether certainty means something: what a head's mixture says of each image, and whether it knows which images are
//! classified wrongly and which are of another data set.
//!
//! - `describe`: component, precision, entropy and log-density of every image ([`Describer`], [`Certainty`]).
//! - `scores`: the numbers by which images are ranked, the most certain highest ([`Score`]).
//! - `risk`: the errors among the images that are kept when only the most certain are ([`risk_coverage`]).
//! - `calibration`: whether a probability of 80 % is right in 80 % of the cases ([`calibration()`]).
//! - `detection`: how well a score tells two sets apart ([`auroc`]).
//!
//! Accuracy by quantile of a score is [`crate::precision::by_length`].

mod calibration;
mod describe;
mod detection;
mod risk;
mod scores;

pub use calibration::{Calibration, DEFAULT_BINS, ReliabilityBin, calibration};
pub use describe::{Certainty, Describer};
pub use detection::auroc;
pub use risk::{RiskCoverage, risk_coverage};
pub use scores::{Score, scores};
