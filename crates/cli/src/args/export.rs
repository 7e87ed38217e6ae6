//! The flags of `export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use model::weights::NetworkRole;
use tensor::ops::Interpolation;

use super::network::{NetworkArgs, network_role, position_rule};

/// `export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The network: the folder of a run (its newest checkpoint is taken), a checkpoint, a .pth or .safetensors file of DINO,
    /// DINOv2, iBOT, MSN, timm or Hugging Face, or a folder of the last two
    #[arg(long, value_name = "W")]
    pub weights: PathBuf,
    /// For whom: dino (one safetensors file), timm or hf (a folder with weights and configuration), onnx (one file)
    #[arg(long, value_name = "dino|timm|hf|onnx", hide_possible_values = true)]
    pub to: TargetArg,
    /// What to write: a .safetensors file for dino, an .onnx file, or a new folder for timm and hf
    #[arg(long, value_name = "F")]
    pub out: PathBuf,
    /// Write the projection head too: for dino under the names of its checkpoints, `backbone.` and `head.`; for onnx as the
    /// outputs `kappa` and `log_density`, which are there without the flag where they can be
    #[arg(long)]
    pub heads: bool,
    /// Which network of a training: the teacher, or the student [default: the teacher, or the only one]
    #[arg(long, value_name = "teacher|student", value_parser = network_role)]
    pub which: Option<NetworkRole>,
    /// Size of an ONNX file's images in pixels: a side, or HEIGHTxWIDTH [default: what the network was trained with]
    #[arg(long, visible_alias = "size", value_name = "N|HxW", value_parser = super::pixels)]
    pub image_size: Option<(usize, usize)>,
    /// Attention heads of the network, for a file that does not say and is of none of the usual sizes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub attention_heads: Option<u32>,
    /// Size of the images that the network was trained with, for a file that does not say: which grid its positions are
    /// of, where that is no square [default: what the file says, or a square]
    #[arg(long, value_name = "N|HxW", value_parser = super::pixels)]
    pub trained_size: Option<(usize, usize)>,
    /// How positions are interpolated for images of another size [default: as in the program that the file comes from]
    #[arg(long, value_name = "dino|plain|antialiased", value_parser = position_rule)]
    pub positions: Option<Interpolation>,
    /// Replace what an earlier export wrote there. Anything else, and the input, is never replaced
    #[arg(long)]
    pub force: bool,
}

impl ExportArgs {
    /// What is asked for of the network.
    pub fn network(&self) -> NetworkArgs {
        let Self { image_size, attention_heads, trained_size, which, positions, .. } = *self;
        NetworkArgs { image_size, heads: attention_heads, trained_size, which, positions }
    }
}

/// For whom weights are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TargetArg {
    /// DINO's names.
    Dino,
    /// timm.
    Timm,
    /// Hugging Face's transformers.
    Hf,
    /// ONNX.
    Onnx,
}

/// Examples of `export`.
pub const EXAMPLES: &str = "\
Examples:
  dino-vmf export --weights runs/photos --to timm --out photos-timm
      timm.create_model(\"local-dir:photos-timm\", pretrained=True)
  dino-vmf export --weights runs/photos --to hf --out photos-hf
      ViTModel.from_pretrained(\"photos-hf\", add_pooling_layer=False); AutoImageProcessor.from_pretrained(\"photos-hf\")
  dino-vmf export --weights runs/photos --to onnx --out photos.onnx --image-size 224
      onnxruntime.InferenceSession(\"photos.onnx\").run([\"class\", \"patches\"], {\"pixels\": x})
  dino-vmf export --weights runs/photos --to dino --heads --out photos.safetensors

Every export is read back and compared with the network it came from, on an image, before it is called done: weights bit
for bit, an ONNX file by running it. Weights are written in f32. The teacher is written, or --which student.

An ONNX file (opset 17) takes `pixels` [batch, channels, height, width] of one size, normalised with the mean and std in
its metadata, and gives `class` [batch, width] and `patches` [batch, patches, width] after the last norm. Of a DINO
or iBOT run with von Mises-Fisher prototypes whose head has no batch norm, it also gives `log_density` [batch], the logarithm
of the mixture's density at the image, and `kappa` [batch], the concentration of the component that is most responsible for it.
--image-size says for which size positions are interpolated.";
