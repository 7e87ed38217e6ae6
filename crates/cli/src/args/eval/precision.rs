//! The flags of `eval precision`.

use std::path::PathBuf;

use clap::Args;

use super::head::HeadArgs;
use crate::args::{InferenceArgs, InputArgs, SplitArg, above_zero};

/// `eval precision`.
#[derive(Debug, Args)]
pub struct PrecisionArgs {
    /// The network with its head: the folder of a run (its newest checkpoint is taken), a checkpoint, or a .pth or .safetensors
    /// file of a whole training
    #[arg(long, value_name = "RUN")]
    pub weights: PathBuf,
    /// The labelled images
    #[arg(long, value_name = "SRC", required_unless_present = "train")]
    pub data: Option<String>,
    /// Instead of --data: stored features of the training images by this network, its class tokens (.safetensors, .npy or
    /// .parquet)
    #[arg(long, value_name = "F", conflicts_with_all = ["data", "split"])]
    pub train: Option<PathBuf>,
    /// Stored features of the held-out images
    #[arg(long, value_name = "G", requires = "train")]
    pub test: Option<PathBuf>,
    /// How they are judged.
    #[command(flatten)]
    pub how: PrecisionSettings,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What `eval certainty` and the figures have in common with it.
#[derive(Clone, Debug, Args)]
pub struct PrecisionSettings {
    /// Classify the images of this split leave-one-out, each by all others of it [default: held-out by training images]
    #[arg(long, value_enum)]
    pub split: Option<SplitArg>,
    /// Ranges, of equally many images
    #[arg(long, value_name = "N", default_value_t = eval::precision::DEFAULT_BINS as u32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub bins: u32,
    /// Neighbours that vote
    #[arg(long, value_name = "K", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub k: u32,
    /// How much nearer neighbours count more: one with cosine s votes with weight exp(s / T)
    #[arg(long, value_name = "T", default_value_t = eval::knn::DEFAULT_TEMPERATURE, value_parser = above_zero)]
    pub temperature: f64,
    /// How the prototypes are used.
    #[command(flatten)]
    pub head: HeadArgs,
    /// What the network sees of an image.
    #[command(flatten)]
    pub input: InputArgs,
    /// Device, threads and precision.
    #[command(flatten)]
    pub inference: InferenceArgs,
}

/// Examples of `eval precision`.
pub const EXAMPLES: &str = "\
Examples:
  dino-vmf eval precision --weights runs/photos --data photos
  dino-vmf eval precision --weights runs/photos --data photos --bins 5 --k 20 --json

Each image belongs to the prototype of its largest logit, whose length |w| is its precision (kappa times the temperature). Images
are sorted by it and cut into ranges of equally many; each range has its own kNN accuracy. Where lengths mean something, as in
DINO-vMF, images of longer prototypes are classified better (Fig. 2 of the paper).";
