//! The flags of `eval video`.

use std::path::PathBuf;

use clap::Args;
use model::weights::NetworkRole;
use tensor::ops::Interpolation;

use crate::args::network::{InferenceArgs, NetworkArgs, network_role, position_rule};

/// `eval video`.
#[derive(Debug, Args)]
pub struct VideoArgs {
    /// The DAVIS folder, with JPEGImages/480p, Annotations/480p and ImageSets/2017/val.txt
    #[arg(long, value_name = "ROOT")]
    pub davis: PathBuf,
    /// Score these masks, made by anything: FOLDER/SEQUENCE/FRAME.png, with the number of the object as the palette's index
    #[arg(long, value_name = "FOLDER", required_unless_present = "weights", conflicts_with = "weights")]
    pub masks: Option<PathBuf>,
    /// Make the masks with this network: the folder of a run (its newest checkpoint is taken), a checkpoint, a .pth or
    /// .safetensors file of DINO, DINOv2, iBOT, MSN, timm or Hugging Face, or a folder of the last two
    #[arg(long, value_name = "W")]
    pub weights: Option<PathBuf>,
    /// Write the masks that the network makes as FOLDER/SEQUENCE/FRAME.png
    #[arg(long, value_name = "FOLDER", requires = "weights")]
    pub save: Option<PathBuf>,
    /// Replace pictures in the folder of --save
    #[arg(long, requires = "save")]
    pub force: bool,
    /// Only these sequences [default: those of val.txt]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub sequences: Vec<String>,
    /// Frames before a frame that its labels are taken from, beside the first
    #[arg(long, value_name = "N", default_value_t = 7, requires = "weights", value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub last_frames: u16,
    /// How far a patch may have moved, in patches along rows and columns; 0 for any distance
    #[arg(long, value_name = "N", default_value_t = 12, requires = "weights", value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub reach: u16,
    /// How many of the most similar patches the labels are taken from
    #[arg(long, value_name = "K", default_value_t = 5, requires = "weights", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub top_k: u16,
    /// Attention heads of the network, for a file that does not say and is of none of the usual sizes
    #[arg(long, visible_alias = "attention-heads", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub heads: Option<u32>,
    /// Size of the images that the network was trained with, for a file that does not say: which grid its positions are
    /// of, where that is no square [default: what the file says, or a square]
    #[arg(long, value_name = "N|HxW", value_parser = crate::args::pixels)]
    pub trained_size: Option<(usize, usize)>,
    /// Which network of a training: the teacher, or the student [default: the teacher, or the only one]
    #[arg(long, value_name = "teacher|student", value_parser = network_role)]
    pub which: Option<NetworkRole>,
    /// How positions are interpolated for images of another size [default: as in the program that the file comes from]
    #[arg(long, value_name = "dino|plain|antialiased", value_parser = position_rule)]
    pub positions: Option<Interpolation>,
    /// Device, threads and precision.
    #[command(flatten)]
    pub inference: InferenceArgs,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

impl VideoArgs {
    /// What is asked for of the network.
    pub fn network(&self) -> NetworkArgs {
        let Self { heads, trained_size, which, positions, .. } = *self;
        NetworkArgs { image_size: None, heads, trained_size, which, positions }
    }
}

/// Examples of `eval video`.
pub const EXAMPLES: &str = "\
Examples:
  dino-vmf eval video --davis DAVIS --weights dino_deitsmall16_pretrain.pth --save masks
  dino-vmf eval video --davis DAVIS --weights runs/photos --sequences blackswan,libby --json
  dino-vmf eval video --davis DAVIS --masks DAVIS/Results/osvos       masks made elsewhere

A network follows the objects of the first mask of each sequence through its frames: a patch takes the labels of the
patches that are most like it in earlier frames. Nothing is trained. J is the intersection of a mask and the annotation
over their union, F how well their boundaries agree, J&F the mean of both; recall is the share of frames above 0.5, and
decay what is lost from the first quarter of the frames to the last. All are in per cent, means over objects, without the
first and the last frame, as the DAVIS-2017 benchmark has them.

Frames are seen with 480 pixels on the short side: patches of 16 pixels give some 1,560 of them, those of 8 four times as
many, and take far longer on a CPU.";
