//! The flags of `eval`: a file for each protocol, and [`sets`] for what most of them judge.

mod copies;
mod head;
mod knn;
mod precision;
mod prototypes;
mod retrieval;
mod sets;

use clap::Subcommand;

pub use copies::CopiesArgs;
pub use head::{HeadArgs, PrototypesArg};
pub use knn::KnnArgs;
pub use precision::PrecisionArgs;
pub use prototypes::PrototypesArgs;
pub use retrieval::RetrievalArgs;
pub use sets::SetsArgs;

/// The evaluation protocols.
#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    /// Classify by the nearest neighbours among labelled images (the weighted kNN of DINO)
    #[command(allow_negative_numbers = true, after_help = knn::EXAMPLES)]
    Knn(KnnArgs),
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
}
