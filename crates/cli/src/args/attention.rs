//! The flags of `attention`.

use std::path::PathBuf;

use clap::Args;
use data::Orientation;

use super::network::{InferenceArgs, NetworkArgs, SplitArg};
use super::{SOURCE, orientation};

/// `attention`.
#[derive(Debug, Args)]
pub struct AttentionArgs {
    /// The network: the folder of a run (its newest checkpoint is taken), a checkpoint, a .pth or .safetensors file of DINO,
    /// DINOv2, iBOT, MSN, timm or Hugging Face, or a folder of the last two
    #[arg(long, value_name = "W")]
    pub weights: PathBuf,
    /// The images
    #[arg(long, value_name = "SRC", help = SOURCE)]
    pub data: String,
    /// Folder to write the pictures into, made if it is not there
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// Show also the patches that hold this share of the attention: the rest of the image is dimmed
    #[arg(long, value_name = "T", value_parser = share)]
    pub threshold: Option<f64>,
    /// The images are the frames of a video: one picture each, the mean over heads, named by their numbers in order
    #[arg(long, conflicts_with = "threshold")]
    pub frames: bool,
    /// How many images, the first ones [default: 8; all with --frames]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub images: Option<u32>,
    /// Which images, where the data is split into training and held-out ones
    #[arg(long, value_enum, default_value_t = SplitArg::Train)]
    pub split: SplitArg,
    /// Replace pictures in the folder
    #[arg(long)]
    pub force: bool,
    /// The network.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Whether photographs are turned as their EXIF data says [default: as in training; upright for other files]
    #[arg(long, value_name = "upright|as-stored", value_parser = orientation)]
    pub orientation: Option<Orientation>,
    /// Device, threads and precision.
    #[command(flatten)]
    pub inference: InferenceArgs,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("it must be a number above 0 and at most 1".to_owned()),
    }
}

/// Examples of `attention`.
pub const EXAMPLES: &str = "\
Examples:
  dino-vmf attention --weights runs/photos --data photos --out maps
  dino-vmf attention --weights dino_deitsmall8_pretrain.pth --data photos --out maps --threshold 0.6
  dino-vmf attention --weights runs/photos --data frames/ --frames --out video
  ffmpeg -framerate 25 -i video/%05d.png video.mp4                   a video of them

What the class token of the last block looks at: a picture for each attention head (0001-NAME-head0.png, ...), one of
their mean (0001-NAME-mean.png) and the image as the network saw it (0001-NAME.png). Bright is much, dark little; each
patch is a square. With --threshold 0.6 there is for each head also the image with all dimmed but the patches that hold
60 % of its attention (0001-NAME-head0-kept.png).

An image is seen whole, 480 pixels on its short side and in proportion, or at the --image-size that is asked for; a
network that was trained on small images sees them at the size of its training.";
