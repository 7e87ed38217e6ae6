//! The flags of `eval mixture`.

use clap::{Args, ValueEnum};

use super::SetsArgs;
use crate::args::above_zero;

/// `eval mixture`.
#[derive(Debug, Args)]
pub struct MixtureArgs {
    /// What is described.
    #[command(flatten)]
    pub sets: SetsArgs,
    /// Components of the mixture [default: as many as there are classes]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub components: Option<u32>,
    /// How images are shared out: soft, by probability (maximum likelihood), or hard, each to its most probable component
    #[arg(long, value_name = "soft|hard", default_value = "soft", hide_possible_values = true)]
    pub assignment: AssignmentArg,
    /// One concentration for all components
    #[arg(long)]
    pub shared_kappa: bool,
    /// Fits from beginnings of their own, of which the one of the highest likelihood is kept
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub starts: u32,
    /// Iterations of a fit, at most
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub iterations: u32,
    /// No concentration goes beyond this: the likelihood of a single image alone has no limit
    #[arg(long, value_name = "KAPPA", default_value_t = 1e5, value_parser = above_zero)]
    pub largest_kappa: f64,
    /// What the beginnings are drawn from
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// How images are shared out among components.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AssignmentArg {
    /// By probability.
    Soft,
    /// Each to its most probable component.
    Hard,
}

/// Examples of `eval mixture`.
pub const EXAMPLES: &str = "\
Examples:
  dino-vmf eval mixture --weights runs/photos --data photos                   beside the run's own prototypes
  dino-vmf eval mixture --train train.safetensors --test test.safetensors --components 50
  dino-vmf eval mixture --train train.safetensors --components 10 --assignment hard --shared-kappa --json

Fits a mixture of von Mises-Fisher distributions to the directions of the training features (movMF) and says how it
describes the held-out ones: log-likelihood in nats per image, and how far components agree with classes (purity grows
with the number of components, NMI does not). With a run, the same is done on the sphere of its head, where the run's
prototypes are a mixture too: with equal weights, as it was trained, and with weights fitted to the training images.
Log-likelihoods compare on one sphere only. Labels are used for purity and NMI, and for nothing else.";
