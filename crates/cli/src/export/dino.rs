//! One safetensors file in DINO's names, with the projection head and what else lies beside the backbone where it is asked for.

use std::io::{self, Write};
use std::path::Path;

use files::Replacement;
use files::safetensors::{Content, Dtype, TensorToWrite, Writer};
use model::weights::{OutLayout, WeightsFile};

use super::{ExportError, said, verify};
use crate::args::ExportArgs;
use crate::error::CliError;
use crate::output;
use crate::weights::Weights;

/// How the names of centres end.
const CENTER: &str = "center";
/// A tensor that only a head with batch normalisation has.
const OF_BATCH_NORM: &str = "head.mlp.1.weight";

/// A tensor of a head, or another one beside the backbone: MSN's prototypes, a mask token.
pub struct HeadTensor {
    /// Its name in the file.
    pub name: String,
    /// Its extents.
    pub shape: Vec<usize>,
    /// Its elements.
    pub values: Vec<f32>,
}

/// Writes the file, reads it back and compares.
pub fn write(args: &ExportArgs, weights: &Weights, out: &Path) -> Result<(), CliError> {
    let failed = |source| ExportError::Io { path: text::shown(out).into_owned(), source };
    let head = if args.heads { head(weights)? } else { Vec::new() };
    if head.iter().any(|tensor| tensor.name == OF_BATCH_NORM) {
        output::note(
            "this head has batch norm, which is computed from the images of a batch: there are no running means to write. PyTorch \
             takes it with load_state_dict(..., strict=False) and the module in train()",
        );
    }
    let mut file = Replacement::begin(out).map_err(failed)?;
    match args.heads {
        true => write_with_head(weights, &head, &mut file)?,
        false => {
            let written = weights.loaded.write_outgoing(OutLayout::Dino, said(weights), &mut |w| w.write_to(&mut file));
            written.map_err(ExportError::from)?;
        }
    }
    // On the disk before it is read back and gets its name: a power cut must not leave an empty file in its place.
    file.sync().map_err(failed)?;
    verify::weights(file.unfinished(), weights)?;
    verify::head(file.unfinished(), &head)?;
    let bytes = std::fs::metadata(file.unfinished()).map_err(failed)?.len();
    file.finish().map_err(failed)?;
    output::result(&format!("{}: {bytes} bytes, read back and equal bit for bit", text::shown(&args.out)))
}

/// What lies beside a network's backbone, under the names of DINO's checkpoints.
fn head(weights: &Weights) -> Result<Vec<HeadTensor>, CliError> {
    let mut file = WeightsFile::open(&weights.path)?;
    let beside = file.beside_backbone_as_trained(weights.loaded.report.role);
    if !beside.keys().any(|name| name.starts_with("head.")) {
        return Err(ExportError::NoHead { path: text::shown(&weights.path).into_owned() }.into());
    }
    let mut tensors = Vec::with_capacity(beside.len());
    for (name, tensor) in beside.into_iter().filter(|(_, tensor)| tensor.element.is_float()) {
        // Centres are the loss's, and no tensor of a teacher's `state_dict` in DINO either.
        if name.ends_with(CENTER) {
            continue;
        }
        let values = file.read(&tensor)?.into_f32();
        tensors.push(HeadTensor { name, shape: tensor.shape, values });
    }
    Ok(tensors)
}

/// `backbone.` before the names of the backbone, as in DINO's checkpoints.
fn write_with_head(weights: &Weights, head: &[HeadTensor], out: &mut dyn Write) -> Result<(), CliError> {
    let backbone: Vec<_> = weights.loaded.outgoing(OutLayout::Dino);
    let names: Vec<String> = backbone.iter().map(|tensor| format!("backbone.{}", tensor.name)).collect();
    let of = |name, shape, content| TensorToWrite { name, dtype: Dtype::F32, shape, content };
    let mut tensors = Vec::with_capacity(backbone.len() + head.len());
    for (tensor, name) in backbone.iter().zip(&names) {
        tensors.push(of(name, &tensor.shape, Content::stream(|out| write_values(out, &tensor.values()))));
    }
    for HeadTensor { name, shape, values } in head {
        tensors.push(of(name, shape, Content::stream(|out| write_values(out, values))));
    }
    let format = ("format", "pt".to_owned());
    let writer = Writer::new(tensors, [format].into_iter().chain(said(weights))).map_err(ExportError::from)?;
    Ok(writer.write_to(out).map_err(|source| ExportError::Weights(source.into()))?)
}

fn write_values(out: &mut dyn Write, values: &[f32]) -> io::Result<()> {
    values.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))
}
