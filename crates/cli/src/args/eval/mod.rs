//! The flags of `eval`: a file for each protocol, and [`sets`] for what most of them judge.

mod all;
mod certainty;
mod copies;
mod fewshot;
mod finetune;
mod head;
mod knn;
mod linear;
mod mixture;
mod precision;
mod prototypes;
mod retrieval;
mod sets;
mod transfer;
mod video;

use clap::Subcommand;

pub use all::{AllArgs, ProtocolArg};
pub use certainty::CertaintyArgs;
pub use copies::CopiesArgs;
pub use fewshot::FewShotArgs;
pub use finetune::{FinetuneArgs, RecipeArg};
pub use head::{HeadArgs, PrototypesArg};
pub use knn::KnnArgs;
pub use linear::LinearArgs;
pub use mixture::{AssignmentArg, MixtureArgs};
pub use precision::{PrecisionArgs, PrecisionSettings};
pub use prototypes::{PrototypesArgs, PrototypesSettings};
pub use retrieval::RetrievalArgs;
pub use sets::SetsArgs;
pub use transfer::TransferArgs;
pub use video::VideoArgs;

/// The evaluation protocols.
#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    /// Run every protocol that the data allows, and write one page
    #[command(after_help = all::EXAMPLES)]
    All(Box<AllArgs>),
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
    /// Learn from a few images of each class by logistic regression (MSN's protocol)
    #[command(allow_negative_numbers = true, after_help = fewshot::EXAMPLES)]
    Fewshot(Box<FewShotArgs>),
    /// Learn a data set by logistic regression, its penalty chosen by validation (transfer to nine data sets, or any other)
    #[command(allow_negative_numbers = true, after_help = transfer::EXAMPLES)]
    Transfer(Box<TransferArgs>),
    /// Search landmarks: mAP on the revisited Oxford and Paris benchmarks, of a network or of a ranking made elsewhere
    #[command(after_help = retrieval::EXAMPLES)]
    Retrieval(RetrievalArgs),
    /// Find the originals of copies: mAP on Copydays
    #[command(after_help = copies::EXAMPLES)]
    Copies(CopiesArgs),
    /// Look at the prototypes of a head: duplicates, the void set, which are used, how concentrated they are
    #[command(allow_negative_numbers = true, after_help = prototypes::EXAMPLES)]
    Prototypes(PrototypesArgs),
    /// kNN accuracy by the precision of the prototype that an image belongs to
    #[command(allow_negative_numbers = true, after_help = precision::EXAMPLES)]
    Precision(PrecisionArgs),
    /// Whether certainty means something: errors among the most certain images, calibration, images of another data set
    #[command(allow_negative_numbers = true, after_help = certainty::EXAMPLES)]
    Certainty(Box<CertaintyArgs>),
}
