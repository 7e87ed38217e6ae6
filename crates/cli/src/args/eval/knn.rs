//! The flags of `eval knn`.

use clap::Args;

use super::SetsArgs;
use crate::args::{SplitArg, above_zero};

/// `eval knn`.
#[derive(Debug, Args)]
pub struct KnnArgs {
    /// What is judged.
    #[command(flatten)]
    pub sets: SetsArgs,
    /// Classify the images of this split leave-one-out, each by all others of it [default: held-out by training images]
    #[arg(long, value_enum, conflicts_with = "train")]
    pub split: Option<SplitArg>,
    /// Numbers of neighbours that vote, each with a result of its own [default: 10,20; fewer for fewer images]
    #[arg(long, value_name = "K,K", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub k: Vec<u32>,
    /// How much nearer neighbours count more: one with cosine s votes with weight exp(s / T)
    #[arg(long, value_name = "T", default_value_t = eval::knn::DEFAULT_TEMPERATURE, value_parser = above_zero)]
    pub temperature: f64,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Examples of `eval knn`.
pub const EXAMPLES: &str = "\
Examples:
  dino-vmf eval knn --weights runs/photos --data photos
  dino-vmf eval knn --weights dino_vits16.safetensors --data imagenet --k 10,20,100,200 --json
  dino-vmf eval knn --train train.safetensors --test test.safetensors      features of any model

Each class is a folder of images. The held-out images (val/ or test/ beside train/) are classified by the training
images. Data without held-out images is classified leave-one-out: each image by all the others. So are stored features
without --test. Top-1 is the share of images whose class gets the most votes, top-5 that of those whose class is among
the five with the most.

Features are computed in f32 on every device; on a GPU --precision bf16 is faster and less exact. Neighbours are
compared in f32, on the GPU where features are computed in f32 there, otherwise on the host.";
