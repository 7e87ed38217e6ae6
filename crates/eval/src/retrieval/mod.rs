//! Image retrieval on the revisited Oxford and Paris benchmarks (ROxford5k, RParis6k), by the protocol of DINO.
//!
//! Database images are ranked by the cosine of their features with a query's. A positive is a picture of the same building,
//! easy or hard to recognise; what shows it badly is junk, and taken out of the ranking.
//!
//! - [`GroundTruth`]: the benchmark's official pickle, read without running it.
//! - [`Ranking`]: made from features, or elsewhere.
//! - [`score`]: average precision and precision at k, Easy, Medium and Hard.
//! - [`Benchmark`]: the images, and [`describe_images`]: their features, at several scales.

mod error;
mod features;
mod ground_truth;
mod images;
mod ranking;
mod scales;
mod score;
mod stored;

pub use error::RetrievalError;
pub use features::{Described, READ, SearchOptions, describe_images};
pub use ground_truth::{GroundTruth, Query};
pub use images::{Benchmark, Part};
pub use ranking::Ranking;
pub use score::{DEPTHS, Difficulty, Score, average_precision, score};
pub use stored::of_images;

/// The two queries over twelve images whose scores are known.
#[cfg(test)]
fn test_truth() -> GroundTruth {
    let query = |name: &str, easy: &[u32], hard: &[u32], junk: &[u32]| Query {
        name: name.to_owned(),
        easy: easy.to_vec(),
        hard: hard.to_vec(),
        junk: junk.to_vec(),
        part: None,
    };
    GroundTruth {
        database: (0..12).map(|image| format!("image_{image}")).collect(),
        queries: vec![query("a", &[3, 5], &[2], &[7, 0]), query("b", &[], &[6, 11], &[0])],
    }
}
