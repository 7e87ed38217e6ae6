//! The flags of `eval prototypes`.

use std::path::PathBuf;

use clap::Args;

use super::head::HeadArgs;
use crate::args::{InferenceArgs, InputArgs, SOURCE, SplitArg};

/// `eval prototypes`.
#[derive(Debug, Args)]
pub struct PrototypesArgs {
    /// The network with its head: the folder of a run (its newest checkpoint is taken), a checkpoint, or a .pth or .safetensors
    /// file of a whole training
    #[arg(long, value_name = "RUN")]
    pub weights: PathBuf,
    /// Images whose choice of prototypes is counted; without, only the prototypes themselves are looked at
    #[arg(long, value_name = "SRC", help = SOURCE)]
    pub data: Option<String>,
    /// Instead of --data: stored features of images by this network, its class tokens (.safetensors, .npy or .parquet)
    #[arg(long, value_name = "F", conflicts_with = "data")]
    pub features: Option<PathBuf>,
    /// Which images, where the data is split into training and held-out ones
    #[arg(long, value_enum, default_value_t = SplitArg::Train, requires = "data")]
    pub split: SplitArg,
    /// How they are looked at.
    #[command(flatten)]
    pub how: PrototypesSettings,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What `figure prototypes` has in common with it.
#[derive(Clone, Debug, Args)]
pub struct PrototypesSettings {
    /// Cosines above which two prototypes are duplicates
    #[arg(long, value_name = "C,C", value_delimiter = ',', default_values_t = eval::prototypes::DEFAULT_THRESHOLDS, value_parser = cosine)]
    pub thresholds: Vec<f64>,
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

fn cosine(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(cosine) if cosine > 0.0 && cosine < 1.0 => Ok(cosine),
        _ => Err("it must be a cosine between 0 and 1, like 0.9".to_owned()),
    }
}

/// Examples of `eval prototypes`.
pub const EXAMPLES: &str = "\
Examples:
  dino-vmf eval prototypes --weights runs/photos
  dino-vmf eval prototypes --weights runs/photos --data photos --thresholds 0.9,0.95,0.99 --json
  dino-vmf eval prototypes --weights dino_vitbase16_pretrain_full_checkpoint.pth

Prototypes whose directions have a cosine above a threshold are duplicates. In index order, each joins the first leader that
it is a duplicate of, or becomes a leader: the leaders are the unique prototypes, and the largest set is that of the leader
with the most members. Connected components, where chains count, are the second estimate.

With --data each image chooses the prototype of its largest logit: how many are used, their perplexity, and whether the
largest set is void: chosen by no image, and pointing away from the mean of all (a cosine near -1). kappa = |w| / tau is
how concentrated a component is; tau is the teacher's at its end, or the student's for --which student. The prototypes are
those of class tokens; iBOT's patches have the same ones unless the run has shared_head = false.";
