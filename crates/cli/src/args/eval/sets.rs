//! What a protocol judges: a network on labelled images, or features that were stored.

use std::path::PathBuf;

use clap::Args;

use crate::args::network::{InferenceArgs, InputArgs};

/// What `--data` of a protocol may be.
const LABELLED: &str = "The labelled images: a folder with a sub-folder for each class, tar or parquet files (also as a pattern), \
                        a folder of CIFAR or IDX files, a text file that lists images, or `synthetic`";

/// Training and test images: of a network on labelled images, or stored features of both.
#[derive(Debug, Args)]
pub struct SetsArgs {
    /// The network: the folder of a run (its newest checkpoint is taken), a checkpoint, a .pth or .safetensors file of DINO,
    /// DINOv2, iBOT, MSN, timm or Hugging Face, or a folder of the last two
    #[arg(long, value_name = "W", requires = "data", required_unless_present = "train")]
    pub weights: Option<PathBuf>,
    /// The labelled images
    #[arg(long, value_name = "SRC", requires = "weights", help = LABELLED)]
    pub data: Option<String>,
    /// Instead of --weights and --data: stored features of the training images, with labels (.safetensors, .npy with
    /// its .csv, or .parquet, as `features` writes them, of any model)
    #[arg(long, value_name = "F", conflicts_with_all = ["weights", "data"])]
    pub train: Option<PathBuf>,
    /// Stored features of the held-out images
    #[arg(long, value_name = "G", requires = "train")]
    pub test: Option<PathBuf>,
    /// What the network sees of an image.
    #[command(flatten)]
    pub input: InputArgs,
    /// Device, threads and precision.
    #[command(flatten)]
    pub inference: InferenceArgs,
}

/// How a network sees images and where it computes, and how the result is printed: what protocols with data of their own take besides.
#[derive(Clone, Debug, Args)]
pub struct JudgingArgs {
    /// What the network sees of an image.
    #[command(flatten)]
    pub input: InputArgs,
    /// Device, threads and precision.
    #[command(flatten)]
    pub inference: InferenceArgs,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}
