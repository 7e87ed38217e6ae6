//! The command line as types. Scripts rely on these names; `--help` is where most people meet the program.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use model::Arch;

/// Pre-trains vision transformers on unlabelled images with DINO and DINO-vMF, and evaluates them.
#[derive(Debug, Parser)]
#[command(name = "dino-vmf", version, propagate_version = true, after_help = START_HERE)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const START_HERE: &str = "\
Start here:
  dino-vmf doctor                                  what this machine offers
  dino-vmf pretrain                                train on made-up images, with nothing to download
  dino-vmf pretrain --data photos --out runs/mine  train on a folder; the same command again continues the run

Results go to standard output, everything else to standard error. `dino-vmf COMMAND --help` has examples.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a vision transformer on unlabelled images
    #[command(args_override_self = true, after_help = PRETRAIN_EXAMPLES, after_long_help = pretrain_help())]
    Pretrain(Box<PretrainArgs>),
    /// Write the class-token features of images to a file
    #[command(args_override_self = true, after_help = FEATURES_EXAMPLES)]
    Features(FeaturesArgs),
    /// Measure how good features are
    #[command(subcommand)]
    Eval(EvalCommand),
    /// Say what a weights file or a run holds
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectArgs),
    /// Measure how fast this machine is
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Say what this machine offers, what is missing and how to get it
    Doctor(DoctorArgs),
}

/// The evaluation protocols.
#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    /// Classify by the nearest neighbours among labelled images (the weighted kNN of DINO)
    #[command(args_override_self = true, after_help = KNN_EXAMPLES)]
    Knn(KnnArgs),
}

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Time training steps on random pixels: two global views of 224 pixels and local ones of 96
    #[command(args_override_self = true, after_help = BENCH_EXAMPLES)]
    Step(BenchStepArgs),
}

/// Where and with how many threads to compute.
#[derive(Clone, Debug, Args)]
pub struct DeviceArgs {
    /// Where to compute: auto, cpu or `cuda[:N]`
    #[arg(long, value_name = "DEVICE", default_value = "auto", help_heading = "Machine")]
    pub device: String,
    /// Threads that compute; the result is the same for any number [default: RAYON_NUM_THREADS, or all cores]
    #[arg(long, value_name = "N", help_heading = "Machine", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

const SOURCE: &str = "a folder of images (searched to any depth), or `synthetic` for images that the program makes";

/// `pretrain`.
#[derive(Debug, Args)]
pub struct PretrainArgs {
    /// The images: a folder (searched to any depth), or `synthetic` for images that the program makes
    #[arg(long, value_name = "SRC", default_value = "synthetic")]
    pub data: String,
    /// Folder of the run [default: runs/DATA-METHOD-PROTOTYPES-ARCH]
    #[arg(long, value_name = "RUN")]
    pub out: Option<PathBuf>,
    /// Recipe file: TOML, one `key = value` a line. A run's config.toml is one
    #[arg(long, value_name = "FILE")]
    pub recipe: Option<PathBuf>,
    /// Sets a key of the recipe, whatever the file says. `--help` lists the keys
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
    /// The flags that stand for a key of the recipe.
    #[command(flatten)]
    pub keys: RecipeFlags,
    /// Where to compute.
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// Flags that stand for a key of the recipe. They are read by the recipe's own rules, so they are texts here.
#[derive(Debug, Args)]
#[command(next_help_heading = "Recipe (what is not given is derived from the data)")]
pub struct RecipeFlags {
    /// Training method: dino
    #[arg(long, value_name = "METHOD")]
    pub method: Option<String>,
    /// What the prototypes' norms mean: none, l2 or vmf
    #[arg(long, value_name = "KIND")]
    pub prototypes: Option<String>,
    /// Where the teacher is centred: logit or probability
    #[arg(long, value_name = "SPACE")]
    pub centering: Option<String>,
    /// Backbone: vit_nano, vit_tiny, vit_small, vit_base or vit_large
    #[arg(long, value_name = "ARCH")]
    pub arch: Option<String>,
    /// Side of a patch in pixels
    #[arg(long, value_name = "P")]
    pub patch_size: Option<String>,
    /// Passes over the data
    #[arg(long, value_name = "N")]
    pub epochs: Option<String>,
    /// Images of a step
    #[arg(long, value_name = "N")]
    pub batch_size: Option<String>,
    /// Number of prototypes
    #[arg(long, value_name = "K")]
    pub out_dim: Option<String>,
    /// Local views of an image
    #[arg(long, value_name = "N")]
    pub local_crops: Option<String>,
    /// Seed of everything random in training; the images of `synthetic` have their own (synthetic:seed=S)
    #[arg(long, value_name = "S")]
    pub seed: Option<String>,
}

impl RecipeFlags {
    /// Each given flag: the recipe's key, the text, and the flag as the user wrote it.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, &str, &'static str)> {
        [
            ("method", &self.method, "--method"),
            ("prototypes", &self.prototypes, "--prototypes"),
            ("centering", &self.centering, "--centering"),
            ("arch", &self.arch, "--arch"),
            ("patch_size", &self.patch_size, "--patch-size"),
            ("epochs", &self.epochs, "--epochs"),
            ("batch_size", &self.batch_size, "--batch-size"),
            ("out_dim", &self.out_dim, "--out-dim"),
            ("local_crops", &self.local_crops, "--local-crops"),
            ("seed", &self.seed, "--seed"),
        ]
        .into_iter()
        .filter_map(|(key, text, flag)| Some((key, text.as_deref()?, flag)))
    }
}

const PRETRAIN_EXAMPLES: &str = "\
Examples:
  dino-vmf pretrain
      DINO-vMF on `synthetic`; needs nothing but this program
  dino-vmf pretrain --data photos --epochs 100 --out runs/photos
      on a folder. Sub-folders train/ and val/ are told apart; class folders give labels for the online kNN
  dino-vmf pretrain --data photos --prototypes l2 --centering logit --out runs/plain-dino
      plain DINO instead of DINO-vMF
  dino-vmf pretrain --recipe recipes/synthetic.toml --set epochs=50 --set teacher_temp=0.05
      a recipe with two keys changed

Ctrl-C saves and stops. The same command again continues, also after a crash or a kill; the result is bit for bit
that of an unbroken run.";

fn pretrain_help() -> String {
    let keys: Vec<&str> = ssl::recipe::keys().collect();
    let mut lines = String::new();
    for row in keys.chunks(4) {
        lines += &format!("\n  {}", row.join(", "));
    }
    format!("{PRETRAIN_EXAMPLES}\n\nKeys of a recipe, for --set and for the file:{lines}")
}

/// `features`.
#[derive(Debug, Args)]
pub struct FeaturesArgs {
    /// A run folder, a checkpoint or a safetensors file
    #[arg(long, value_name = "W")]
    pub weights: PathBuf,
    /// The images
    #[arg(long, value_name = "SRC", help = SOURCE)]
    pub data: String,
    /// File to write: .safetensors (features, labels, names) or .npy (features alone)
    #[arg(long, value_name = "F")]
    pub out: PathBuf,
    /// Which part of data that is split
    #[arg(long, value_enum, default_value_t = SplitArg::Train)]
    pub split: SplitArg,
    /// How images are shown to the network.
    #[command(flatten)]
    pub view: ViewArgs,
    /// Where to compute.
    #[command(flatten)]
    pub device: DeviceArgs,
}

const FEATURES_EXAMPLES: &str = "\
Examples:
  dino-vmf features --weights runs/photos --data photos --out photos.safetensors
  dino-vmf features --weights dino_vits16.safetensors --data photos --out photos.npy

An image is resized so that its short side is 256/224 of the image size, and its centre is cut out (torchvision's
Resize(256, bicubic), CenterCrop(224)). Row i is image i in order of path; images that cannot be read are named and left out.";

/// How images are shown to a network.
#[derive(Clone, Debug, Args)]
pub struct ViewArgs {
    /// Side in pixels of what the network sees [default: what it was trained with]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub image_size: Option<u32>,
    /// Images that are computed at once; does not change the features
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch_size: u32,
}

/// Which part of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SplitArg {
    /// The training images; all, where the data is not split.
    Train,
    /// The held-out images.
    Test,
}

impl From<SplitArg> for data::Split {
    fn from(split: SplitArg) -> Self {
        match split {
            SplitArg::Train => data::Split::Train,
            SplitArg::Test => data::Split::Test,
        }
    }
}

/// `eval knn`.
#[derive(Debug, Args)]
pub struct KnnArgs {
    /// A run folder, a checkpoint or a safetensors file
    #[arg(long, value_name = "W")]
    pub weights: PathBuf,
    /// The labelled images
    #[arg(long, value_name = "SRC", help = SOURCE)]
    pub data: String,
    /// Numbers of neighbours that vote, as a list
    #[arg(long, value_name = "K,K", value_delimiter = ',', default_values_t = [10, 20])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub k: Vec<u32>,
    /// Temperature of the votes: a neighbour with cosine s votes with weight exp(s / T)
    #[arg(long, value_name = "T", default_value_t = eval::knn::DEFAULT_TEMPERATURE, value_parser = above_zero)]
    pub temperature: f64,
    /// How images are shown to the network.
    #[command(flatten)]
    pub view: ViewArgs,
    /// Where to compute.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

fn above_zero(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err("it must be a number above zero".to_owned()),
    }
}

const KNN_EXAMPLES: &str = "\
Examples:
  dino-vmf eval knn --weights runs/photos --data photos
  dino-vmf eval knn --weights dino_vits16.safetensors --data imagenet --k 10,20,100,200 --json

The held-out images (val/ or test/ beside train/) are classified by the training images. Data without held-out images
is classified leave-one-out: each image by all the others.";

/// `inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A run folder, a checkpoint or a safetensors file
    #[arg(value_name = "W")]
    pub weights: PathBuf,
}

const INSPECT_EXAMPLES: &str = "\
Examples:
  dino-vmf inspect runs/photos                      its recipe, how far it is, its last metrics, its checkpoints
  dino-vmf inspect dino_vits16.safetensors          its tensors by group, and whether a backbone is complete in it";

/// `bench step`.
#[derive(Debug, Args)]
pub struct BenchStepArgs {
    /// Backbone: vit_nano, vit_tiny, vit_small, vit_base or vit_large
    #[arg(long, value_name = "A", default_value_t = Arch::Tiny)]
    pub arch: Arch,
    /// Side of a patch in pixels
    #[arg(long, value_name = "P", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=96))]
    pub patch_size: u32,
    /// Images of a step
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch_size: u32,
    /// Local views of an image
    #[arg(long, value_name = "L", default_value_t = 6, value_parser = clap::value_parser!(u32).range(0..=256))]
    pub local_crops: u32,
    /// Number of prototypes
    #[arg(long, value_name = "K", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(2..=1 << 24))]
    pub out_dim: u32,
    /// Steps that are timed, after two that are not
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub steps: u32,
    /// Where to compute.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

const BENCH_EXAMPLES: &str = "\
Examples:
  dino-vmf bench step --arch vit_small --batch-size 8 --local-crops 8 --out-dim 65536
  dino-vmf bench step --steps 10 --threads 2 --json

mfu is the share of this machine's own matrix-product rate, measured just before, that a step reaches, counting the
operations that published figures count.";

/// `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Where to compute.
    #[command(flatten)]
    pub device: DeviceArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_recipe_flag_names_a_key_of_the_recipe() {
        let text = || Some("x".to_owned());
        let flags = RecipeFlags {
            method: text(),
            prototypes: text(),
            centering: text(),
            arch: text(),
            patch_size: text(),
            epochs: text(),
            batch_size: text(),
            out_dim: text(),
            local_crops: text(),
            seed: text(),
        };
        let known: Vec<&str> = ssl::recipe::keys().collect();
        for (key, _, flag) in flags.given() {
            assert!(known.contains(&key), "{key}");
            assert_eq!(flag, format!("--{}", key.replace('_', "-")));
        }
        assert_eq!(flags.given().count(), 10);
    }

    #[test]
    fn the_commands_of_the_design_parse() {
        for line in [
            "pretrain",
            "pretrain --data d --method dino --prototypes vmf --centering probability --arch vit_tiny --patch-size 16 \
             --epochs 3 --batch-size 8 --out-dim 64 --local-crops 2 --recipe r.toml --set a=b --set c=d --out o \
             --device cpu --seed 3",
            "features --weights w --data d --out f.npy",
            "eval knn --weights w --data d --k 10,20 --json",
            "inspect w",
            "bench step --arch vit_tiny --patch-size 16 --batch-size 8 --local-crops 6 --out-dim 4096 --steps 5 \
             --device cpu --json",
            "doctor",
        ] {
            let words = std::iter::once("dino-vmf").chain(line.split_whitespace());
            assert!(Cli::try_parse_from(words).is_ok(), "{line}");
        }
    }
}
