//! The flags of `eval`: a file for each protocol, and [`sets`] for what most of them judge.

mod finetune;
mod knn;
mod linear;
mod mixture;
mod sets;
mod video;

use clap::Subcommand;

pub use finetune::{FinetuneArgs, RecipeArg};
pub use knn::KnnArgs;
pub use linear::LinearArgs;
pub use mixture::{AssignmentArg, MixtureArgs};
pub use sets::SetsArgs;
pub use video::VideoArgs;

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
    /// Follow objects through videos with a network's patch features, or score masks made elsewhere (DAVIS-2017)
    #[command(allow_negative_numbers = true, after_help = video::EXAMPLES)]
    Video(VideoArgs),
    /// Train a classifier together with the network, by the recipe of BEiT or DeiT
    #[command(allow_negative_numbers = true, after_help = finetune::EXAMPLES)]
    Finetune(FinetuneArgs),
}
