//! The flags of `eval finetune`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use data::Orientation;

use crate::args::network::NetworkArgs;
use crate::args::{DeviceArgs, SOURCE, orientation};

/// `eval finetune`.
#[derive(Debug, Args)]
pub struct FinetuneArgs {
    /// The network to begin with: the folder of a run, a checkpoint, a .pth or .safetensors file of DINO, DINOv2, iBOT, MSN,
    /// timm or Hugging Face, or a folder of the last two
    #[arg(long, value_name = "W")]
    pub weights: PathBuf,
    /// The labelled images, with held-out ones among them
    #[arg(long, value_name = "SRC", help = SOURCE)]
    pub data: String,
    /// Whose recipe: BEiT's (fewer epochs, learning rates that fall from layer to layer) or DeiT's (many epochs at a low
    /// learning rate, for small sets)
    #[arg(long, value_enum, default_value_t = RecipeArg::Beit)]
    pub recipe: RecipeArg,
    /// Folder of the run. The same command again continues it
    #[arg(long, value_name = "RUN")]
    pub out: PathBuf,
    /// Passes over the training images [default: 100 or 200 for beit, by the network's size; 1000 for deit]
    #[arg(long, value_name = "N")]
    pub epochs: Option<String>,
    /// Images of a step [default: the recipe's, or fewer for few images]
    #[arg(long, value_name = "N")]
    pub batch_size: Option<String>,
    /// Highest learning rate [default: the recipe's, in proportion to the batch]
    #[arg(long, value_name = "X")]
    pub lr: Option<String>,
    /// Seed of all draws [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<String>,
    /// Sets any setting; may be repeated. All of them are printed, with their values and why, before the run
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
    /// What the weights file may not say of its network.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Whether photographs are turned as their EXIF data says [default: as in training; upright for other files]
    #[arg(long, value_name = "upright|as-stored", value_parser = orientation)]
    pub orientation: Option<Orientation>,
    /// Where to compute.
    #[command(flatten)]
    pub machine: DeviceArgs,
}

/// A recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RecipeArg {
    /// BEiT's, as iBOT uses it on ImageNet.
    Beit,
    /// DeiT's, as iBOT uses it on small sets.
    Deit,
}

/// Examples of `eval finetune`.
pub const EXAMPLES: &str = "\
Examples:
  dino-vmf eval finetune --weights runs/photos --data photos --out runs/photos-tuned
  dino-vmf eval finetune --weights dino_vitbase16_pretrain.pth --data imagenet --lr 8e-4 --out runs/vitb-ft
      ImageNet as in the papers: best of --lr 8e-4, 9e-4, 1e-3 and 2e-3, each a run of its own
  dino-vmf eval finetune --weights runs/photos --data flowers --recipe deit --epochs 200 --out runs/flowers
  dino-vmf eval finetune --weights runs/photos --data cifar10 --epochs 20 --set magnitude=5 --set least_crop=0.3 \\
      --out runs/cifar-ft --json

A linear layer on the class token is trained together with the whole network: two operations of RandAugment on every
image, random erasing, mixup or cutmix, smoothed labels, drop path. After each epoch the held-out images (val/ or test/
beside train/) are classified; the best top-1 is the result, as in the papers, and the last one stands beside it.

Ctrl-C saves and stops; the same command goes on, to the same bits. RUN/backbone.safetensors is the fine-tuned network
after its last step, classifier included, in timm's names. Settings, for --set: epochs, batch_size, lr, min_lr,
warmup_epochs, warmup_lr, weight_decay, layer_decay, drop_path, head_scale, smoothing, mixup, cutmix, mixed_together,
erase, magnitude (of RandAugment), repeats, least_crop, images_at_once, seed.";
