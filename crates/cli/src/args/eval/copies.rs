//! The flags of `eval copies`.

use std::path::PathBuf;

use clap::Args;

use super::sets::JudgingArgs;

/// `eval copies`.
#[derive(Debug, Args)]
pub struct CopiesArgs {
    /// The network: the folder of a run (its newest checkpoint is taken), a checkpoint, a .pth or .safetensors file of DINO,
    /// DINOv2, iBOT, MSN, timm or Hugging Face, or a folder of the last two
    #[arg(long, value_name = "W", requires = "data", required_unless_present = "features")]
    pub weights: Option<PathBuf>,
    /// The folder of Copydays: original/, strong/, jpegqual/3 ... 75, crops/10 ... 80. Folders of copies may be missing
    #[arg(long, value_name = "FOLDER", requires = "weights")]
    pub data: Option<PathBuf>,
    /// Instead of both: stored features of all images of that folder, with their names in it (.safetensors, .npy or .parquet, of
    /// any model)
    #[arg(long, value_name = "F", conflicts_with_all = ["weights", "data"])]
    pub features: Option<PathBuf>,
    /// Images that are searched beside the originals and are copies of none of them; with --features, stored features
    #[arg(long, value_name = "SRC")]
    pub distractors: Option<String>,
    /// Images to learn the whitening of features from; without, features are compared as they are. With --features, stored
    /// features
    #[arg(long, value_name = "SRC")]
    pub whiten: Option<String>,
    /// What the network sees, where it computes, and how the result is printed.
    #[command(flatten)]
    pub judging: JudgingArgs,
}

/// Examples of `eval copies`.
pub const EXAMPLES: &str = "\
Examples:
  dino-vmf eval copies --weights runs/photos --data copydays
  dino-vmf eval copies --weights dino_vitb8.pth --data copydays --distractors yfcc10k --whiten yfcc20k
  dino-vmf eval copies --features copydays.npy --distractors yfcc10k.npy     features of any model

Every image is stretched to --image-size [default: 320x320] and described by its class token beside the generalised mean
(GeM, exponent 4) of its patch tokens. For each copy the originals and distractors are searched, and the 20 nearest judged by
average precision. `strong` is the number that is reported for this data set. With --json: `strong` (null without that
folder), and `blocks` with `name`, `images` and `map`, a share of one.";
