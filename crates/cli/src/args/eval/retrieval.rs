//! The flags of `eval retrieval`.

use std::path::PathBuf;

use clap::Args;
use data::Orientation;

use crate::args::network::{InferenceArgs, NetworkArgs};
use crate::args::orientation;

/// `eval retrieval`.
#[derive(Debug, Args)]
pub struct RetrievalArgs {
    /// The ground truth: gnd_roxford5k.pkl or gnd_rparis6k.pkl, as the benchmark's authors publish it. It is read, not run
    #[arg(long, value_name = "G.pkl")]
    pub gnd: PathBuf,
    /// A ranking of another program: an .npy file of image numbers [database, queries], best match on top
    #[arg(long, value_name = "R.npy", required_unless_present_any = ["weights", "database"], conflicts_with_all = ["weights", "data"])]
    pub ranks: Option<PathBuf>,
    /// The network: the folder of a run (its newest checkpoint is taken), a checkpoint, a .pth or .safetensors file of DINO,
    /// DINOv2, iBOT, MSN, timm or Hugging Face, or a folder of the last two
    #[arg(long, value_name = "W", requires = "data")]
    pub weights: Option<PathBuf>,
    /// The folder of the images: NAME.jpg for every name of the ground truth, in it or in its folder jpg
    #[arg(long, value_name = "FOLDER", requires = "weights")]
    pub data: Option<PathBuf>,
    /// Stored features of the database images (.safetensors, .npy or .parquet, of any model), found by the names in the ground truth
    #[arg(long, value_name = "F", requires = "queries", conflicts_with_all = ["weights", "data", "ranks"])]
    pub database: Option<PathBuf>,
    /// Stored features of the query images; may be the same file
    #[arg(long, value_name = "G", requires = "database")]
    pub queries: Option<PathBuf>,
    /// Describe an image at its own scale alone, instead of the mean over the scales 1, 1/sqrt 2 and 1/2
    #[arg(long, conflicts_with_all = ["ranks", "database"])]
    pub single_scale: bool,
    /// Cut the part out of a query that the ground truth means, as the benchmark itself does. DINO shows the whole image
    #[arg(long, conflicts_with_all = ["ranks", "database"])]
    pub crop_queries: bool,
    /// Whether photographs are turned as their EXIF data says
    #[arg(long, value_name = "upright|as-stored", default_value = "as-stored", value_parser = orientation)]
    pub orientation: Orientation,
    /// The network.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Device, threads and precision.
    #[command(flatten)]
    pub inference: InferenceArgs,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Examples of `eval retrieval`.
pub const EXAMPLES: &str = "\
Examples:
  dino-vmf eval retrieval --gnd gnd_rparis6k.pkl --weights runs/photos --data rparis6k
  dino-vmf eval retrieval --gnd gnd_roxford5k.pkl --weights runs/photos --data roxford5k --image-size 224 --single-scale
  dino-vmf eval retrieval --gnd gnd_roxford5k.pkl --ranks ranks.npy --json      a ranking of any program
  dino-vmf eval retrieval --gnd gnd_roxford5k.pkl --database all.npy --queries all.npy    features of any model

The two commands with --weights are the settings of DINO and the DINO-vMF paper for Paris and Oxford. Images keep their
aspect; --image-size is the most pixels of a side [default: 512]. The table has per cent. With --json `easy`, `medium` and
`hard` have `map`, `mp` at 1, 5 and 10, and `aps`, one for each query (null without a right answer): shares of one, as
the benchmark's own scorer gives them.";
