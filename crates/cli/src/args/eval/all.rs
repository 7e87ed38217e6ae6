//! The flags of `eval all`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::sets::JudgingArgs;
use crate::args::SOURCE;

/// `eval all`.
#[derive(Debug, Args)]
pub struct AllArgs {
    /// The network: the folder of a run (its newest checkpoint is taken), a checkpoint, a .pth or .safetensors file of DINO,
    /// DINOv2, iBOT, MSN, timm or Hugging Face, or a folder of the last two
    #[arg(long, value_name = "W")]
    pub weights: PathBuf,
    /// The images, or the folder of one of the benchmarks below, which is known by its layout
    #[arg(long, value_name = "SRC", help = SOURCE, required_unless_present_any = ["oxford", "paris", "copydays", "davis"])]
    pub data: Option<String>,
    /// Folder of the results, made if it is not there. The same command again computes what is missing
    #[arg(long, value_name = "FOLDER", default_value = "evaluation")]
    pub out: PathBuf,
    /// Revisited Oxford: a folder with gnd_roxford5k.pkl and the images, in it or in its folder jpg
    #[arg(long, value_name = "FOLDER")]
    pub oxford: Option<PathBuf>,
    /// Revisited Paris: a folder with gnd_rparis6k.pkl and the images
    #[arg(long, value_name = "FOLDER")]
    pub paris: Option<PathBuf>,
    /// Copydays: a folder with original/, strong/, jpegqual/ and crops/
    #[arg(long, value_name = "FOLDER")]
    pub copydays: Option<PathBuf>,
    /// DAVIS-2017: a folder with JPEGImages/480p, Annotations/480p and ImageSets/2017/val.txt
    #[arg(long, value_name = "FOLDER")]
    pub davis: Option<PathBuf>,
    /// Only these protocols
    #[arg(long, value_name = "P,P", value_delimiter = ',', conflicts_with = "skip")]
    pub only: Vec<ProtocolArg>,
    /// All but these protocols
    #[arg(long, value_name = "P,P", value_delimiter = ',')]
    pub skip: Vec<ProtocolArg>,
    /// Images of another kind, which `certainty` should tell from these, as its own flag
    #[arg(long, value_name = "SRC")]
    pub other: Option<String>,
    /// Neighbours of `knn`, as its own flag
    #[arg(long, value_name = "K,K", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub k: Vec<u32>,
    /// Epochs of `linear`, as its own flag [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub epochs: Option<u32>,
    /// Compute everything again, and replace results of other weights or data in the folder
    #[arg(long)]
    pub force: bool,
    /// Ends this process when the one with this number, which started it, is gone.
    #[arg(long, hide = true)]
    pub stop_with: Option<u32>,
    /// What the network sees, where it computes, and how the result is printed.
    #[command(flatten)]
    pub judging: JudgingArgs,
}

/// A protocol of `eval all`, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProtocolArg {
    /// Nearest neighbours.
    Knn,
    /// Linear probes on features that are computed once.
    Linear,
    /// A few images of each class.
    Fewshot,
    /// Logistic regression.
    Transfer,
    /// Mixtures of von Mises-Fisher distributions.
    Mixture,
    /// The prototypes of the head.
    Prototypes,
    /// kNN by the precision of prototypes.
    Precision,
    /// Whether certainty means something.
    Certainty,
    /// Revisited Oxford and Paris.
    Retrieval,
    /// Copydays.
    Copies,
    /// DAVIS-2017.
    Video,
    /// What the network looks at in some images.
    Attention,
}

/// Examples of `eval all`.
pub const EXAMPLES: &str = "\
Examples:
  dino-vmf eval all --weights runs/photos --data photos --out photos-results
  dino-vmf eval all --weights dino_vits16.pth --data imagenette --only knn,linear,fewshot --json
  dino-vmf eval all --weights runs/photos --data photos --oxford roxford5k --davis DAVIS --skip mixture

Runs every protocol that the data allows, with the settings of its own command, and says why it leaves the others out. The
features of an image are computed once for all of them. `linear` runs with --no-augment; `finetune` is a training of its
own and no part of this.

FOLDER/results.json has under `results` what each command prints with --json, FOLDER/index.html shows all of them in a
browser, and FOLDER/attention has pictures. Both files are written after every protocol, so that Ctrl-C loses only the one
that is at work; the same command goes on there. A result of the same weights, data and settings is not computed again.";
