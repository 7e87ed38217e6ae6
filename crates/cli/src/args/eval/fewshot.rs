//! The flags of `eval fewshot`.

use std::path::PathBuf;

use clap::Args;

use super::SetsArgs;
use crate::args::{NormArg, above_zero};

/// `eval fewshot`.
#[derive(Debug, Args)]
pub struct FewShotArgs {
    /// What is judged.
    #[command(flatten)]
    pub sets: SetsArgs,
    /// Images of each class that are learnt from, each number with a result of its own [default: 1,2,5, or those of them that every
    /// class has]
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub shots: Vec<u32>,
    /// Learn from this share of each class, too, in per cent
    #[arg(long, value_name = "P", value_parser = percent)]
    pub percent: Option<f64>,
    /// Draws of each size; their mean and deviation are reported
    #[arg(long, value_name = "N", default_value_t = eval::fewshot::DEFAULT_SPLITS as u32, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub splits: u32,
    /// Which images are drawn
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    /// Draw nothing: learn from the images that the lists in this folder name, in MSN's layout
    /// (`imagenet_subsets1/1imgs_class.txt` and so on)
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["shots", "percent"])]
    pub lists: Option<PathBuf>,
    /// Whether the class token is taken before or after the network's last norm; stored features are what they are
    #[arg(long, value_name = "before|after", default_value = "before", hide_possible_values = true)]
    pub norm: NormArg,
    /// Strength of the penalty: the number of images times lambda
    #[arg(long, value_name = "S", default_value_t = eval::fewshot::DEFAULT_STRENGTH, value_parser = above_zero)]
    pub strength: f64,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    above_zero(text)
        .ok()
        .filter(|&percent| percent <= 100.0)
        .ok_or_else(|| "it must be above 0 and at most 100".to_owned())
}

/// Examples of `eval fewshot`.
pub const EXAMPLES: &str = "\
Examples:
  dino-vmf eval fewshot --weights runs/photos --data photos
  dino-vmf eval fewshot --weights dino_vits16.pth --data imagenet --lists msn/ --json      the lists of MSN
  dino-vmf eval fewshot --train train.safetensors --test test.safetensors --shots 1,10 --percent 1 --splits 5

A linear classifier is learnt from a few images of each class, and judged on all held-out images (val/ or test/ beside
train/). Each feature has its mean taken off and is scaled to unit length; the classifier is multinomial logistic
regression without an intercept, with 0.075 / n as the weight of its penalty (--strength is the 0.075). Which images
are drawn matters much, so the mean over several draws is reported, and their standard deviation.";
