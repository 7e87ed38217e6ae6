//! The flags of `eval certainty`.

use clap::Args;

use super::precision::PrecisionArgs;

/// `eval certainty`.
#[derive(Debug, Args)]
pub struct CertaintyArgs {
    /// What is judged, and how.
    #[command(flatten)]
    pub judged: PrecisionArgs,
    /// Images of another kind, which certainty should tell from these: any data; with --train, their stored features. Of data
    /// with held-out images those are taken. No labels are needed
    #[arg(long, value_name = "SRC|F")]
    pub other: Option<String>,
    /// Ranges of probability, of equal width, in which the vote's calibration is measured
    #[arg(long, value_name = "N", default_value_t = eval::certainty::DEFAULT_BINS as u32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub calibration_bins: u32,
}

/// Examples of `eval certainty`.
pub const EXAMPLES: &str = "\
Examples:
  dino-vmf eval certainty --weights runs/photos --data photos
  dino-vmf eval certainty --weights runs/cifar10 --data cifar10 --other cifar100 --json
  dino-vmf eval certainty --weights runs/photos --train train.npy --test test.npy --other elsewhere.npy

Images are ranked by how certain they are: by kappa of the prototype that they belong to, by the entropy of their distribution
over prototypes (less is more certain), by the mixture's log-density, by the cosine with the nearest training image, and by the
share of their neighbours' votes. If only the most certain are kept, how many of these does kNN get wrong? The area under that
curve is AURC, of which less is better; excess is what it has above the best possible order. AUROC is the chance that an image
of these is more certain than one of --other: 0.5 is chance.

Only von Mises-Fisher prototypes have a precision and a density; of others, entropy, neighbours and votes are compared.";
