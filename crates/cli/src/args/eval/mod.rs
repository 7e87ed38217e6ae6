//! The flags of `eval`: a file for each protocol, and [`sets`] for what most of them judge.

mod knn;
mod linear;
mod mixture;
mod sets;

use clap::Subcommand;

pub use knn::KnnArgs;
pub use linear::LinearArgs;
pub use mixture::{AssignmentArg, MixtureArgs};
pub use sets::SetsArgs;

/// The evaluation protocols.
#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    /// Classify by the nearest neighbours among labelled images (the weighted kNN of DINO)
    #[command(allow_negative_numbers = true, after_help = knn::EXAMPLES)]
    Knn(KnnArgs),
    /// Train a linear classifier on frozen features (the linear probes of DINO and iBOT)
    #[command(allow_negative_numbers = true, after_help = linear::EXAMPLES)]
    Linear(LinearArgs),
    /// Fit a mixture of von Mises-Fisher distributions to features (movMF), beside the network's own prototypes
    #[command(allow_negative_numbers = true, after_help = mixture::EXAMPLES)]
    Mixture(MixtureArgs),
}
