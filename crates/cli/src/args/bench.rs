//! The flags of the benchmarks.

use clap::Args;
use data::{Decoding, Orientation};
use model::Arch;
use ssl::recipe::{Centering, MethodName, Prototypes, ResidualStream};

use super::{DeviceArgs, SOURCE, above_zero, orientation};

/// Sizes of the views of a benchmark.
#[derive(Debug, Args)]
pub struct ViewSizeArgs {
    /// Side of a global view in pixels
    #[arg(long, value_name = "S", default_value_t = 224, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub global_size: u32,
    /// Side of a local view in pixels
    #[arg(long, value_name = "S", default_value_t = 96, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub local_size: u32,
}

/// `bench step`.
#[derive(Debug, Args)]
pub struct BenchStepArgs {
    /// Training method: dino, ibot or msn
    #[arg(long, value_name = "M", default_value_t = MethodName::Dino, value_parser = method)]
    pub method: MethodName,
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
    /// Sizes of the views.
    #[command(flatten)]
    pub views: ViewSizeArgs,
    /// Number of prototypes
    #[arg(long, value_name = "K", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(2..=1 << 24))]
    pub out_dim: u32,
    /// What the norms of the prototypes mean: none, l2 or vmf [default: as in training]
    #[arg(long, value_name = "P", value_parser = prototypes)]
    pub prototypes: Option<Prototypes>,
    /// Where the teacher is centred: logit or probability [default: as in training]
    #[arg(long, value_name = "C", value_parser = centering)]
    pub centering: Option<Centering>,
    /// Steps that are timed, after two that are not
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub steps: u32,
    /// Where to compute.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Parts in which the images of a step are taken one after another: less memory
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub accumulate: u32,
    /// Keep only the input of each block, and compute the block again in the backward pass: less memory, more time
    #[arg(long)]
    pub checkpoint_activations: bool,
    /// Element type of the residual stream on a GPU: bf16 or f32 [default: as in training]
    #[arg(long, value_name = "TYPE", value_parser = stream)]
    pub stream: Option<ResidualStream>,
    /// List the kernels of a step on a GPU with their times
    #[arg(long)]
    pub kernels: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Examples of `bench step`.
pub const STEP_EXAMPLES: &str = "\
Examples:
  dino-vmf bench step --arch vit_small --batch-size 8 --local-crops 8 --out-dim 65536
  dino-vmf bench step --patch-size 4 --batch-size 256 --global-size 32 --local-size 16 --local-crops 4
  dino-vmf bench step --method ibot --arch vit_small --batch-size 8 --local-crops 10 --out-dim 8192
  dino-vmf bench step --method ibot --prototypes l2 --centering logit
  dino-vmf bench step --steps 10 --threads 2 --json

The percentage (mfu in JSON) is the share of the device's matrix-product rate that a step reaches, counting the
operations that published figures count: of the data sheet's rate on an H100, H200 or A100, of a rate measured right
after on anything else.";

/// `bench data`.
#[derive(Debug, Args)]
pub struct BenchDataArgs {
    /// The images
    #[arg(long, value_name = "SRC", help = SOURCE)]
    pub data: String,
    /// Images of a batch [default: 64, or all where there are fewer]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch_size: Option<u32>,
    /// Local views of an image
    #[arg(long, value_name = "L", default_value_t = 8, value_parser = clap::value_parser!(u32).range(0..=256))]
    pub local_crops: u32,
    /// Sizes of the views.
    #[command(flatten)]
    pub views: ViewSizeArgs,
    /// Threads that load [default: all cores]
    #[arg(long, value_name = "W", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// Whether a JPEG much larger than all its views may be decoded smaller
    #[arg(long, value_name = "exact|fast", default_value = "exact", value_parser = decoding)]
    pub decoding: Decoding,
    /// Whether photographs are turned as their EXIF data says
    #[arg(long, value_name = "upright|as-stored", default_value = "upright", value_parser = orientation)]
    pub orientation: Orientation,
    /// Leave colours, blur and solarisation to the GPU, as training on one does
    #[arg(long)]
    pub for_gpu: bool,
    /// How long to measure, after a warm-up
    #[arg(long, value_name = "T", default_value_t = 10.0, value_parser = above_zero)]
    pub seconds: f64,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

fn method(name: &str) -> Result<MethodName, String> {
    one_of(name, MethodName::of_word, MethodName::WORDS)
}

fn prototypes(name: &str) -> Result<Prototypes, String> {
    one_of(name, Prototypes::of_word, Prototypes::WORDS)
}

fn centering(name: &str) -> Result<Centering, String> {
    one_of(name, Centering::of_word, Centering::WORDS)
}

fn stream(name: &str) -> Result<ResidualStream, String> {
    one_of(name, ResidualStream::of_word, ResidualStream::WORDS)
}

fn one_of<T>(word: &str, of_word: fn(&str) -> Option<T>, words: &[&str]) -> Result<T, String> {
    of_word(word).ok_or_else(|| format!("it is one of {}", words.join(", ")))
}

fn decoding(name: &str) -> Result<Decoding, String> {
    one_of(name, Decoding::of_name, &Decoding::NAMES)
}

/// Examples of `bench data`.
pub const DATA_EXAMPLES: &str = "\
Examples:
  dino-vmf bench data --data photos
  dino-vmf bench data --data photos --batch-size 32 --local-crops 10 --workers 4 --seconds 60 --json
  dino-vmf bench data --data cifar10 --global-size 32 --local-size 16 --local-crops 4

The views are DINO's: two global ones and the local ones. The loader runs as in training, with nothing that takes its
batches but the clock. After that every operation is timed by itself, on one thread and on a sample of the images.";

/// `bench knn`.
#[derive(Debug, Args)]
pub struct BenchKnnArgs {
    /// Features that vote
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..=1 << 26))]
    pub train_images: u32,
    /// Features that are classified
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1 << 26))]
    pub test_images: u32,
    /// Values of a feature
    #[arg(long, value_name = "D", default_value_t = 384, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub dim: u32,
    /// Neighbours that vote
    #[arg(long, value_name = "K", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub k: u32,
    /// Where to compute; a GPU in f32.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Examples of `bench knn`.
pub const KNN_EXAMPLES: &str = "\
Examples:
  dino-vmf bench knn
  dino-vmf bench knn --train-images 1281167 --test-images 50000 --k 200 --json

Features are random numbers. Measured is what `eval knn` does once it has them.";
