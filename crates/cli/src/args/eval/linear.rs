//! The flags of `eval linear`.

use clap::Args;

use super::SetsArgs;
use crate::args::above_zero;
use crate::args::network::PoolingArgs;

/// `eval linear`.
#[derive(Debug, Args)]
pub struct LinearArgs {
    /// What is judged.
    #[command(flatten)]
    pub sets: SetsArgs,
    /// Which tokens make a feature.
    #[command(flatten)]
    pub pooling: PoolingArgs,
    /// Learning rates for a batch of 256, trained side by side [default: 1, 2 and 5 times 10^-4 to 10^-1, and 1]
    #[arg(long, value_name = "R,R", value_delimiter = ',', value_parser = above_zero)]
    pub rates: Vec<f64>,
    /// The 45 learning rates of iBOT's sweep: n 10^k for n from 1 to 9 and k from -4 to 0
    #[arg(long, conflicts_with = "rates")]
    pub ibot_rates: bool,
    /// Passes over the training images
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub epochs: u32,
    /// Images of an optimiser step; the learning rate is multiplied by this over 256
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub step_images: u32,
    /// Compute the features of training images once, of their usual view, instead of a random view in every epoch: far
    /// faster, and a little lower. Stored features are always that
    #[arg(long)]
    pub no_augment: bool,
    /// What initial weights, orders and views are drawn from
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Examples of `eval linear`.
pub const EXAMPLES: &str = "\
Examples:
  dino-vmf eval linear --weights runs/photos --data photos                    the published protocol: random views
  dino-vmf eval linear --weights runs/photos --data photos --layers 4         DINO's protocol for ViT-S
  dino-vmf eval linear --weights runs/photos --data photos --tokens both      and for ViT-B
  dino-vmf eval linear --weights runs/photos --data photos --no-augment       features computed once
  dino-vmf eval linear --train train.safetensors --test test.safetensors --epochs 50 --rates 0.01,0.1,1 --json

A linear classifier on frozen features: cross-entropy, SGD with momentum 0.9, no weight decay, the learning rate falling
along a cosine from epoch to epoch. Held-out images are judged after every epoch, and the best epoch of the best learning
rate is reported, as DINO and iBOT do; `last_top1` of each rate in --json is that of the last epoch. Every rate has a
classifier of its own, from the same initial weights and on the same batches.

With --weights the network sees a random crop (8 to 100 % of the area, bilinear) of each training image in every epoch,
mirrored every other time, so that features are computed anew in every epoch.";
