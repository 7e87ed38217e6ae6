//! The numbers by which images are ranked, of which a larger one is more certain.

use std::fmt;

use super::describe::Certainty;
use crate::knn::Vote;

/// What certainty is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// kappa of the component that an image belongs to.
    Precision,
    /// Minus the entropy of its distribution over prototypes.
    Entropy,
    /// log p(y) of the mixture.
    LogDensity,
    /// Cosine with the nearest training image.
    Neighbor,
    /// The share of its neighbours' votes that the winning class has.
    Vote,
}

impl Score {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Precision, Self::Entropy, Self::LogDensity, Self::Neighbor, Self::Vote];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Precision => "precision",
            Self::Entropy => "entropy",
            Self::LogDensity => "log_density",
            Self::Neighbor => "neighbor",
            Self::Vote => "vote",
        }
    }

    /// Of one image; none where its head has no such number.
    fn of(self, certainty: &Certainty, vote: &Vote) -> Option<f64> {
        match self {
            Self::Precision => certainty.kappa,
            Self::Entropy => Some(-certainty.entropy),
            Self::LogDensity => certainty.log_density,
            Self::Neighbor => Some(vote.similarity),
            Self::Vote => Some(vote.share),
        }
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name().replace('_', "-"))
    }
}

/// Every score that images have, with its value for each.
///
/// # Panics
/// When there are not as many votes as images.
pub fn scores(certainties: &[Certainty], votes: &[Vote]) -> Vec<(Score, Vec<f64>)> {
    assert_eq!(certainties.len(), votes.len(), "a vote on each image");
    let values =
        |score: Score| certainties.iter().zip(votes).map(|(c, v)| score.of(c, v)).collect::<Option<Vec<f64>>>();
    Score::ALL.into_iter().filter_map(|score| Some((score, values(score)?))).collect()
}
