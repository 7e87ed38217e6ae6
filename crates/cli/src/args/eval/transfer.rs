//! The flags of `eval transfer`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use data::source::Published;
use eval::transfer::{Metric, Selection};

use super::SetsArgs;
use crate::args::above_zero;

/// `eval transfer`.
#[derive(Debug, Args)]
pub struct TransferArgs {
    /// What is judged.
    #[command(flatten)]
    pub sets: SetsArgs,
    /// Which data set --data is the folder of, as it is downloaded, with its own splits and metric: aircraft, caltech101, cifar10,
    /// cifar100, dtd, flowers102, food101, pets or sun397. Without it --data may be any labelled images
    #[arg(long, value_name = "NAME", value_parser = published)]
    pub dataset: Option<Published>,
    /// Stored features of images that the penalty is chosen on
    #[arg(long, value_name = "H", requires = "train")]
    pub validation: Option<PathBuf>,
    /// What the penalty is chosen on: the validation images (a fifth of the training images where there are none), or five
    /// stratified folds
    #[arg(long, value_enum, default_value = "cv5")]
    pub select: SelectArg,
    /// The accuracy that it is chosen by, and that is reported first [default: that of the data set; top1]
    #[arg(long, value_enum)]
    pub metric: Option<MetricArg>,
    /// Strengths of the penalty to choose from [default: 45 from 1e-6 to 1e5]
    #[arg(long, value_name = "S,S", value_delimiter = ',', value_parser = above_zero)]
    pub strengths: Vec<f64>,
    /// Of the folds, or of the fifth that is held out
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    /// Largest element of the gradient at the end of a fit, divided by the images: scikit-learn's `tol`
    #[arg(long, value_name = "T", default_value_t = 1e-4, value_parser = above_zero)]
    pub tolerance: f64,
    /// Steps of a fit, at most: scikit-learn's `max_iter`
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_iterations: u32,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What a penalty is chosen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SelectArg {
    /// Validation images, or a fifth of the training images.
    Holdout,
    /// Five stratified folds.
    Cv5,
}

impl From<SelectArg> for Selection {
    fn from(select: SelectArg) -> Self {
        match select {
            SelectArg::Holdout => Selection::HoldOut,
            SelectArg::Cv5 => Selection::CrossValidation,
        }
    }
}

/// An accuracy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MetricArg {
    /// The share of images that are classified rightly.
    Top1,
    /// The mean over classes of that share.
    MeanPerClass,
}

impl From<MetricArg> for Metric {
    fn from(metric: MetricArg) -> Self {
        match metric {
            MetricArg::Top1 => Metric::Top1,
            MetricArg::MeanPerClass => Metric::MeanPerClass,
        }
    }
}

fn published(name: &str) -> Result<Published, String> {
    let names = || Published::ALL.map(Published::name).join(", ");
    Published::ALL.into_iter().find(|set| set.name() == name).ok_or_else(|| format!("it is one of {}", names()))
}

/// Examples of `eval transfer`.
pub const EXAMPLES: &str = "\
Examples:
  dino-vmf eval transfer --weights dino_vits16.pth --data oxford-iiit-pet --dataset pets
  dino-vmf eval transfer --weights runs/photos --data photos --select holdout      any labelled images
  dino-vmf eval transfer --train train.safetensors --test test.safetensors --json  features of any model

Multinomial logistic regression on frozen features. 45 strengths of its L2 penalty, from 1e-6 to 1e5 (C = 1 / strength
in scikit-learn), are judged on images that were not learnt from; the best, the weakest of equal ones, is fitted to all
of them and judged on the test images. aircraft, caltech101, flowers102 and pets are judged by the mean accuracy of
their classes, the others by top-1; both are printed.

A fit ends at the gradient that scikit-learn asks for with tol=1e-4, and only where the objective is at its minimum to
about seven digits besides; scikit-learn's protocol stops after 100 steps, before that.";
