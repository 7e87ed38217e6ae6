//! `export`: a network's weights in the form that other programs read.
//!
//! What is written is read back from where it was written and compared with the network it came from; only then it takes the
//! place that was asked for.

mod dino;
mod graph;
mod hugging_face;
mod mixture;
mod place;
mod timm;
mod verify;

use model::weights::{HuggingFaceModel, OutLayout};
use tensor::{CpuOptions, Device};

use crate::args::{ExportArgs, TargetArg};
use crate::description::{self, Description};
use crate::device::threads_of_environment;
use crate::error::CliError;
use crate::output;
use crate::output_file::{self, Input, Kind};
use crate::weights::{self, Weights};
use place::Folder;

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A head where none can go.
    #[error(
        "timm's and Hugging Face's networks have no place for a projection head; leave --heads out, or use --to dino"
    )]
    NoPlaceForHeads,
    /// A size where weights serve all.
    #[error(
        "--image-size applies to --to onnx alone: the other formats hold the learnt positions, and their programs interpolate \
         them"
    )]
    Size,
    /// The density was asked for and is not to be had.
    #[error("the outputs kappa and log_density cannot be given: {why}. Leave --heads out")]
    NoDensity {
        /// Why not.
        why: &'static str,
    },
    /// The head is not in the file.
    #[error("{path}: holds no projection head; leave --heads out, or give the run or the full checkpoint")]
    NoHead {
        /// The file.
        path: String,
    },
    /// A network that a target has no place for.
    #[error("{what}; --to {instead} has a place for it")]
    Unsupported {
        /// What it is.
        what: String,
        /// What to use instead.
        instead: &'static str,
    },
    /// A name that other programs would take for a pickle.
    #[error(
        "{path}: --to dino writes a safetensors file, which torch.load cannot read under that name: call it .safetensors, and load \
         it with safetensors.torch.load_file"
    )]
    NotAPickle {
        /// The file.
        path: String,
    },
    /// A name that belongs to another format.
    #[error("{path}: --to {to} writes {what}, and this name says something else: give it {name}")]
    Name {
        /// What was asked for.
        path: String,
        /// The target.
        to: &'static str,
        /// What it writes.
        what: &'static str,
        /// What it should be called.
        name: &'static str,
    },
    /// The folder that is to be written.
    #[error("{path}: {what}")]
    Folder {
        /// The folder.
        path: String,
        /// What is wrong with it.
        what: String,
    },
    /// The file says something else than the network.
    #[error("{path}: {what}: this is a fault of the program, and nothing was written; please report it")]
    Different {
        /// What was written.
        path: String,
        /// In what it differs.
        what: String,
    },
    /// The graph could not be built.
    #[error(transparent)]
    Graph(#[from] onnx::vit::BuildError),
    /// Nor written.
    #[error(transparent)]
    GraphFile(#[from] onnx::WriteError),
    /// A safetensors file could not be written.
    #[error(transparent)]
    Weights(#[from] files::safetensors::WriteError),
    /// The file system refused.
    #[error("{path}: cannot be written: {source}")]
    Io {
        /// The file.
        path: String,
        /// What it said.
        source: std::io::Error,
    },
}

/// What files of pickles are called.
const PICKLES: [&str; 5] = ["pth", "pt", "bin", "ckpt", "pkl"];

/// Writes the network.
pub fn run(args: &ExportArgs) -> Result<(), CliError> {
    if args.heads && matches!(args.to, TargetArg::Timm | TargetArg::Hf) {
        return Err(ExportError::NoPlaceForHeads.into());
    }
    if args.image_size.is_some() && args.to != TargetArg::Onnx {
        return Err(ExportError::Size.into());
    }
    check_name(args)?;
    let inputs = [Input::file("--weights", &args.weights)];
    match args.to {
        TargetArg::Dino => {
            let out = output_file::check(&args.out, Kind::Weights, args.force, &inputs)?;
            dino::write(args, &load(args)?, &out)
        }
        TargetArg::Onnx => {
            let out = output_file::check(&args.out, Kind::Onnx, args.force, &inputs)?;
            let (weights, device) = load_on(args)?;
            graph::write(args, &weights, &device, &out)
        }
        TargetArg::Timm => {
            let folder = Folder::check(&args.out, &timm::FILES, args.force, &inputs)?;
            let weights = load(args)?;
            let config = timm::config(&weights);
            into_folder(args, &weights, folder, OutLayout::Timm, vec![("config.json", config)], &timm::usage(&args.out))
        }
        TargetArg::Hf => {
            let folder = Folder::check(&args.out, &hugging_face::FILES, args.force, &inputs)?;
            let weights = load(args)?;
            let model = HuggingFaceModel::of(weights.loaded.vit.config());
            let mut configs = vec![("config.json", hugging_face::config(weights.loaded.vit.config(), model)?)];
            let processor = hugging_face::preprocessor(&weights.input, &weights.normalization);
            let usage = hugging_face::usage(&args.out, model, processor.is_some());
            match processor {
                Some(config) => configs.push(("preprocessor_config.json", config)),
                None => output::note(hugging_face::NO_PREPROCESSOR),
            }
            into_folder(args, &weights, folder, OutLayout::HuggingFace(model), configs, &usage)
        }
    }
}

/// Refuses a name by which people and programs would take the export for something else.
fn check_name(args: &ExportArgs) -> Result<(), ExportError> {
    let extension = args.out.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    let extension = extension.as_deref().unwrap_or_default();
    let is_pickle = PICKLES.contains(&extension);
    let path = || text::shown(&args.out).into_owned();
    let other = |to, what, name| Err(ExportError::Name { path: path(), to, what, name });
    match args.to {
        TargetArg::Dino if is_pickle => Err(ExportError::NotAPickle { path: path() }),
        TargetArg::Dino if extension == "onnx" => other("dino", "a safetensors file", "a name in .safetensors"),
        TargetArg::Onnx if is_pickle || extension == "safetensors" => other("onnx", "an ONNX file", "a name in .onnx"),
        TargetArg::Timm | TargetArg::Hf if is_pickle || ["onnx", "safetensors"].contains(&extension) => {
            let to = if args.to == TargetArg::Timm { "timm" } else { "hf" };
            other(to, "a folder", "the name of a folder")
        }
        _ => Ok(()),
    }
}

fn load(args: &ExportArgs) -> Result<Weights, CliError> {
    Ok(load_on(args)?.0)
}

/// The network, and where it is.
fn load_on(args: &ExportArgs) -> Result<(Weights, Device), CliError> {
    // One image is compared: not worth a GPU.
    let device = Device::cpu(CpuOptions { threads: threads_of_environment()?, ..Default::default() })?;
    let mut weights = weights::load(&args.weights, &args.network(), &device)?;
    weights.input = weights.input.with_size(args.image_size);
    Ok((weights, device))
}

/// What the files say of the network in their metadata.
fn said(weights: &Weights) -> Description {
    description::of_export(weights)
}

/// A folder with weights and configurations.
fn into_folder(
    args: &ExportArgs,
    weights: &Weights,
    folder: Folder,
    layout: OutLayout,
    configs: Vec<(&'static str, serde_json::Value)>,
    usage: &str,
) -> Result<(), CliError> {
    let place = folder.begin()?;
    for (name, config) in configs {
        place.write(name, &|out| {
            serde_json::to_writer_pretty(&mut *out, &config)?;
            out.write_all(b"\n")
        })?;
    }
    // Who wrote it: an export replaces nobody else's. And what no configuration has a place for, such as which part of an image
    // the network sees. How the other program computes is not for us to say.
    let said = said(weights).into_iter().filter(|(key, _)| !model::weights::HOW_IT_COMPUTES.contains(key));
    let file = place.path("model.safetensors");
    let written =
        weights.loaded.write_outgoing(layout, said, &mut |writer| files::replace(&file, |out| writer.write_to(out)));
    written.map_err(ExportError::from)?;
    verify::weights(&place.root(), weights)?;
    place.finish()?;
    output::result(&format!("{}: read back and equal bit for bit. In Python:\n{usage}", text::shown(&args.out)))
}
