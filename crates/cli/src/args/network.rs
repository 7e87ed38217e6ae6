//! The flags of the commands that take a network's weights: `features` and `inspect`, and those that `eval` shares with them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use data::Orientation;
use eval::{FeatureTokens, Pooling};
use model::weights::{NetworkRole, POSITION_RULES};
use tensor::ops::Interpolation;

use super::{DeviceArgs, HeadArgs, SOURCE, gpus, orientation};

/// `features`.
#[derive(Debug, Args)]
pub struct FeaturesArgs {
    /// The network: the folder of a run (its newest checkpoint is taken), a checkpoint, a .pth or .safetensors file of DINO,
    /// DINOv2, iBOT, MSN, timm or Hugging Face, or a folder of the last two
    #[arg(long, value_name = "W")]
    pub weights: PathBuf,
    /// The images
    #[arg(long, value_name = "SRC", help = SOURCE)]
    pub data: String,
    /// File to write: .safetensors, .parquet, or .npy with a .csv and a .json beside it; each with features, labels, names
    /// and which network
    #[arg(long, value_name = "F")]
    pub out: PathBuf,
    /// Which images, where the data is split into training and held-out ones
    #[arg(long, value_enum, default_value_t = SplitArg::Train)]
    pub split: SplitArg,
    /// Replace the file if it exists and holds features; of a link, what it leads to. Inputs are never replaced
    #[arg(long)]
    pub force: bool,
    /// Beside each feature, how certain the network's head is of the image: kappa of its prototype, the entropy of its
    /// distribution over prototypes, and the mixture's log-density
    #[arg(long)]
    pub certainty: bool,
    /// How the prototypes are used.
    #[command(flatten)]
    pub head: HeadArgs,
    /// Which tokens make a feature.
    #[command(flatten)]
    pub pooling: PoolingArgs,
    /// What the network sees of an image.
    #[command(flatten)]
    pub input: InputArgs,
    /// Device, threads and precision.
    #[command(flatten)]
    pub inference: InferenceArgs,
}

/// Which of a network's tokens make the feature of an image.
#[derive(Clone, Debug, Args)]
pub struct PoolingArgs {
    /// What makes a feature: the class token, the mean of the patch tokens, both (class token first), or all patch tokens
    #[arg(long, value_name = "class|mean|both|patches", default_value = "class", value_parser = feature_tokens)]
    pub tokens: FeatureTokens,
    /// Class tokens of so many of the last blocks, one behind the other, the last block last
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub layers: u32,
    /// Whether tokens are taken before or after the network's last norm
    #[arg(long, value_name = "before|after", default_value = "after", hide_possible_values = true)]
    pub norm: NormArg,
}

impl PoolingArgs {
    /// What is asked for.
    pub fn pooling(&self) -> Pooling {
        Pooling { tokens: self.tokens, layers: self.layers as usize, norm: self.norm == NormArg::After }
    }
}

/// Where tokens are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NormArg {
    /// Before the last norm.
    Before,
    /// After it.
    After,
}

fn feature_tokens(name: &str) -> Result<FeatureTokens, String> {
    FeatureTokens::of_name(name).ok_or_else(|| "it is one of class, mean, both, patches".to_owned())
}

/// Examples of `features`.
pub const FEATURES_EXAMPLES: &str = "\
Examples:
  dino-vmf features --weights runs/photos --data photos --out photos.safetensors
  dino-vmf features --weights dino_deitsmall16_pretrain.pth --data photos --out photos.npy
  dino-vmf features --weights dinov2-small/ --data photos --out photos.parquet    a folder of Hugging Face's
  dino-vmf features --weights vitb.pth --data photos --tokens both --out photos.safetensors    as in DINO's linear protocol
  dino-vmf features --weights runs/photos --data photos --certainty --out photos.parquet    and kappa, entropy, log_density

An image is resized so that its short side is 256/224 of the image size, and its centre is cut out (torchvision's
Resize(256, bicubic), CenterCrop(224)). A run on images that are no larger than its input sees them whole instead
(`image_part` in its metadata): resized to the image size, and nothing is cut off. Photographs are turned upright by their EXIF data, where those of the training
were; torchvision's loader does not do that (--orientation as-stored). Rows are in order of path; images that cannot be
read are named and left out. Features are computed in f32 on every device; on a GPU --precision bf16 is faster and less
exact. Rows are written as they are computed: memory is that of a batch, however many images there are.

A feature has [width] values; [2 width] with --tokens both, [N width] with --layers N, [patches, width] with --tokens
patches. Register tokens are no patches. Each format says which network, images and tokens it is of (`weights_hash`,
`data_hash`, `tokens`, ...). Where --out holds features of the same weights, images and settings already, the command
says so and ends at once; other features are replaced with --force only.

--certainty needs a head: of a run, a checkpoint or a whole training. kappa and log_density are those of von Mises-Fisher
prototypes; of others, entropy alone is written. In f64: tensors of their own in a .safetensors file, columns of the .csv
beside an .npy, and of a .parquet table.

.safetensors  `features` [images, ...] in f32, `labels` [images] in i64 where there are classes (-1 for none), and in the
              metadata `names` and `class_names` as JSON lists. The names of some millions of images do not fit there:
              take one of the others. A byte of a name that cannot be shown is written \\xNN.
                f = safetensors.safe_open(\"photos.safetensors\", \"np\")
                x, names = f.get_tensor(\"features\"), json.loads(f.metadata()[\"names\"])
.npy          the array; beside it photos.csv with row, name, label, class, and photos.json with what made it
                x, rows = np.load(\"photos.npy\", mmap_mode=\"r\"), pandas.read_csv(\"photos.csv\")
.parquet      a table of name, label, class, feature (a list of floats; patches one after another)
                t = pandas.read_parquet(\"photos.parquet\"); x = np.stack(t.feature)";

/// What a weights file may not say of its network, or what is wanted otherwise.
#[derive(Clone, Debug, Default, Args)]
pub struct NetworkArgs {
    /// Size of the network's input in pixels: a side, or HEIGHTxWIDTH [default: what it was trained with]
    #[arg(long, value_name = "N|HxW", value_parser = super::pixels)]
    pub image_size: Option<(usize, usize)>,
    /// Attention heads of the network. Needed for a file that does not say and is of no size of DINO or timm; no file of
    /// this program needs it
    #[arg(long, visible_alias = "attention-heads", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub heads: Option<u32>,
    /// Size of the images that the network was trained with, for a file that does not say: which grid its positions are
    /// of, where that is no square [default: what the file says, or a square]
    #[arg(long, value_name = "N|HxW", value_parser = super::pixels)]
    pub trained_size: Option<(usize, usize)>,
    /// Which network of a training: the teacher, or the student [default: the teacher, or the only one]
    #[arg(long, value_name = "teacher|student", value_parser = network_role)]
    pub which: Option<NetworkRole>,
    /// How positions are interpolated for images of another size [default: as in the program that the file comes from; a
    /// file of timm without a classifier looks like one of DINO]
    #[arg(long, value_name = "dino|plain|antialiased", value_parser = position_rule)]
    pub positions: Option<Interpolation>,
}

pub(super) fn network_role(name: &str) -> Result<NetworkRole, String> {
    let roles = [NetworkRole::Teacher, NetworkRole::Student];
    roles.into_iter().find(|role| role.to_string() == name).ok_or_else(|| "it is one of teacher, student".to_owned())
}

pub(super) fn position_rule(name: &str) -> Result<Interpolation, String> {
    let known = POSITION_RULES.iter().find(|(rule, _)| *rule == name);
    known.map(|(_, rule)| *rule).ok_or_else(|| "it is one of dino, plain, antialiased".to_owned())
}

/// Images of a batch where no number is asked for.
pub const BATCH_SIZE: u32 = 64;

/// What a network sees of an image, and how many images at once.
#[derive(Clone, Debug, Args)]
pub struct InputArgs {
    /// The network.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Whether photographs are turned as their EXIF data says [default: as in training; upright for other files]
    #[arg(long, value_name = "upright|as-stored", value_parser = orientation)]
    pub orientation: Option<Orientation>,
    /// Images per batch; changes speed and memory, not the features
    #[arg(long, value_name = "N", default_value_t = BATCH_SIZE, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch_size: u32,
}

/// Where a network computes features, and in which precision.
#[derive(Clone, Debug, Args)]
pub struct InferenceArgs {
    /// Where to compute.
    #[command(flatten)]
    pub machine: DeviceArgs,
    /// Arithmetic of the network on a GPU: f32, or bf16 for speed (as in training). A CPU always computes in f32
    #[arg(long, value_name = "f32|bf16", default_value = "f32", help_heading = "Machine", hide_possible_values = true)]
    pub precision: PrecisionArg,
    /// GPUs that share the images, for commands that compute features of many [default: all that this machine shows]
    #[arg(long, value_name = "N", help_heading = "Machine", value_parser = gpus, conflicts_with = "device")]
    pub gpus: Option<usize>,
}

/// A precision of inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PrecisionArg {
    /// Single precision: the CPU's features up to rounding.
    F32,
    /// Activations in bfloat16, parameters in single precision.
    Bf16,
}

/// A split of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SplitArg {
    /// The training images, which are all images where the data has no splits.
    Train,
    /// The held-out images.
    Test,
    /// First the training images, then the held-out ones; names begin with train/ or test/.
    All,
}

/// `inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A run folder, a checkpoint, a .pth or .safetensors file, or a folder of Hugging Face's or timm's
    #[arg(value_name = "W")]
    pub weights: PathBuf,
    /// Print it as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Attention heads of the network, for a file that does not say and is of none of the usual sizes
    #[arg(long, visible_alias = "attention-heads", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub heads: Option<u32>,
    /// Size of the images that the network was trained with, for a file that does not say: which grid its positions are
    /// of, where that is no square [default: what the file says, or a square]
    #[arg(long, value_name = "N|HxW", value_parser = super::pixels)]
    pub trained_size: Option<(usize, usize)>,
}

/// Examples of `inspect`.
pub const INSPECT_EXAMPLES: &str = "\
Examples:
  dino-vmf inspect runs/photos                      its recipe, how far it is, its last metrics, its checkpoints
  dino-vmf inspect dino_vits16.safetensors          its tensors by group, whether a backbone is complete in it, and
                                                    how to load it in Python with timm
  dino-vmf inspect runs/photos --json               the same for scripts

The state of a run is running (a process is training it), finished, stopped (it ended in order before its last step),
killed, or unfinished where that is not known. `step` is the last one in its log, `saved_step` the one it goes on from.

With --json, `kind` says what W is:
  run         path, run (its name), state, problems (files that are not as the run left them), step, saved_step,
              total_steps, steps_per_epoch, data, recipe, metrics (the last record of a step), knn_top1, checkpoints
              (file, step, bytes, sound, problem), backbone (bytes, step, sound, problem) and result; null where there
              is none
  checkpoint  path, bytes, tensors (name, element, shape), metadata, step, run, network (what it says of it), backbone
  weights     path, bytes, tensors, metadata, backbone (complete, width, blocks, heads, patch_size, image_size, channels,
              problem)
  features    path, bytes, tensors, metadata";
