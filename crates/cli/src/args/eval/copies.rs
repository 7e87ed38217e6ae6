//! The flags of `eval copies`.

use std::path::PathBuf;

use clap::Args;

use crate::args::network::{InferenceArgs, InputArgs};

/// `eval copies`.
#[derive(Debug, Args)]
pub struct CopiesArgs {
    /// The network: the folder of a run (its newest checkpoint is taken), a checkpoint, a .pth or .safetensors file of DINO,
    /// DINOv2, iBOT, MSN, timm or Hugging Face, or a folder of the last two
    #[arg(long, value_name = "W")]
    pub weights: PathBuf,
    /// The folder of Copydays: original/, strong/, jpegqual/3 ... 75, crops/10 ... 80. Folders of copies may be missing
    #[arg(long, value_name = "FOLDER")]
    pub data: PathBuf,
    /// Images that are searched beside the originals and are copies of none of them
    #[arg(long, value_name = "SRC")]
    pub distractors: Option<String>,
    /// Images to learn the whitening of features from; without, features are compared as they are
    #[arg(long, value_name = "SRC")]
    pub whiten: Option<String>,
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

/// Examples of `eval copies`.
pub const EXAMPLES: &str = "\
Examples:
  dino-vmf eval copies --weights runs/photos --data copydays
  dino-vmf eval copies --weights dino_vitb8.pth --data copydays --distractors yfcc10k --whiten yfcc20k

Every image is stretched to --image-size [default: 320x320] and described by its class token beside the generalised mean
(GeM, exponent 4) of its patch tokens. For each copy the originals and distractors are searched, and the 20 nearest judged by
average precision. `strong` is the number that is reported for this data set. With --json: `strong` (null without that
folder), and `blocks` with `name`, `images` and `map`, a share of one.";
