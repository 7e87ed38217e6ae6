//! An ONNX file of a network, run once before it is called done.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use files::Replacement;
use model::{Readout, Tokens, VitConfig};
use onnx::Value;
use onnx::vit::{Tensors, VitGraph};
use tensor::Device;
use tensor::ops::{Grid, PixelData, Pixels};

use super::mixture::{self, Density};
use super::verify::{largest_difference, pixels};
use super::{ExportError, said};
use crate::args::ExportArgs;
use crate::error::CliError;
use crate::output;
use crate::weights::Weights;

/// How far an ONNX file's outputs may be from ours, relative to their largest element: two orders of sums in f32.
const TOLERANCE: f32 = 1e-4;

/// The tensors of a network for images of one size, and of its head.
struct Held<'a> {
    weights: &'a Weights,
    positions: Vec<f32>,
    density: Option<Density>,
}

impl Tensors for Held<'_> {
    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        if name == "pos_embed" {
            let dim = self.weights.loaded.vit.config().dim;
            return Some(vec![1, self.positions.len() / dim, dim]);
        }
        if let Some(shape) = self.density.as_ref().and_then(|density| density.shape(name)) {
            return Some(shape);
        }
        let id = self.weights.loaded.layout.find(name)?;
        Some(self.weights.loaded.layout.specs()[id.0].shape.clone())
    }

    fn values(&self, name: &str) -> io::Result<Cow<'_, [f32]>> {
        if name == "pos_embed" {
            return Ok(Cow::Borrowed(&self.positions));
        }
        if let Some(values) = self.density.as_ref().and_then(|density| density.values(name)) {
            return Ok(Cow::Owned(values));
        }
        let id = self.weights.loaded.layout.find(name).ok_or_else(|| io::Error::other(format!("no tensor {name}")))?;
        Ok(Cow::Owned(self.weights.loaded.weights[id].to_f32()))
    }
}

/// Writes the file, reads it back, runs it and compares.
pub fn write(args: &ExportArgs, weights: &Weights, device: &Device, out: &Path) -> Result<(), CliError> {
    let config = weights.loaded.vit.config();
    let image = weights.input.size;
    let density = match mixture::of(weights, device)? {
        Ok(density) => Some(density),
        Err(why) if args.heads => {
            return Err(ExportError::NoDensity { why }.into());
        }
        Err(why) => {
            output::note(&format!("without the outputs kappa and log_density: {why}"));
            None
        }
    };
    let held = Held { weights, positions: positions(weights, image), density };
    let VitConfig { dim, depth, heads, mlp_dim, patch, channels, extras, .. } = *config;
    let graph = VitGraph {
        dim,
        depth,
        heads,
        mlp_dim,
        patch,
        channels,
        image,
        registers: extras.registers,
        layer_scale: extras.layer_scale,
        epsilon: extras.norm_epsilon as f32,
    };
    let head = held.density.as_ref().map(|density| &density.head);
    let mut model = graph.build(&held, head).map_err(ExportError::from)?;
    model.producer_name = "dino-vmf".to_owned();
    model.producer_version = env!("CARGO_PKG_VERSION").to_owned();
    model.metadata = said(weights).into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let writer = onnx::Writer::new(&model).map_err(ExportError::from)?;
    let failed = |source| ExportError::Io { path: text::shown(out).into_owned(), source };
    let mut file = Replacement::begin(out).map_err(failed)?;
    writer.write_to(&mut file).map_err(failed)?;
    // On the disk before it is read back and gets its name: a power cut must not leave an empty file in its place.
    file.sync().map_err(failed)?;
    let distance = compare(file.unfinished(), weights, device, held.density.as_ref(), image)?;
    file.finish().map_err(failed)?;
    let outputs: Vec<&str> = model.graph.outputs.iter().map(|output| output.name.as_str()).collect();
    output::result(&format!(
        "{}: {} bytes, for images of {}x{}, outputs {}; run on an image, it differs from this program by {distance:.0e}",
        text::shown(&args.out),
        writer.file_size(),
        image.0,
        image.1,
        outputs.join(", ")
    ))
}

/// The positions for images of this size: a graph has one.
fn positions(weights: &Weights, (height, width): (usize, usize)) -> Vec<f32> {
    let config = weights.loaded.vit.config();
    let learnt = weights.loaded.layout.find("pos_embed").map(|id| weights.loaded.weights[id].to_f32());
    let learnt = learnt.unwrap_or_default();
    let grid = Grid::new((height / config.patch, width / config.patch), config.grid(), config.extras.interpolation);
    let mut out = learnt[..config.dim].to_vec();
    for patch in 0..grid.patches() {
        let mut row = vec![0.0f32; config.dim];
        for (source, weight) in grid.taps(patch) {
            let from = &learnt[(1 + source) * config.dim..(2 + source) * config.dim];
            // As the engine mixes them.
            row.iter_mut().zip(from).for_each(|(sum, value)| *sum = (weight as f32).mul_add(*value, *sum));
        }
        out.extend(row);
    }
    out
}

/// The largest relative difference between the file's outputs and ours; an error where it is one.
fn compare(
    path: &Path,
    weights: &Weights,
    device: &Device,
    density: Option<&Density>,
    (height, width): (usize, usize),
) -> Result<f32, CliError> {
    let shown = text::shown(path).into_owned();
    let different = |what: String| CliError::from(ExportError::Different { path: shown.clone(), what });
    let config = weights.loaded.vit.config();
    let bytes = std::fs::read(path).map_err(|source| ExportError::Io { path: shown.clone(), source })?;
    let model = onnx::read(&bytes).map_err(|error| different(error.to_string()))?;
    let values = pixels((height, width), config.channels);
    let input = Value::f32(&[1, config.channels, height, width], values.iter().map(|x| *x as f32).collect());
    let input = input.map_err(|error| different(error.to_string()))?;
    let outputs = onnx::run(&model, BTreeMap::from([("pixels".to_owned(), input)]));
    let outputs = outputs.map_err(|error| different(error.to_string()))?;

    let images = [Pixels { count: 1, height, width, channels: config.channels, data: PixelData::Values(&values) }];
    let readout = Readout { tokens: Tokens::All, ..Readout::default() };
    let tokens = weights.loaded.vit.read(&weights.loaded.weights, device, &images, &readout)?.swap_remove(0).to_f32();
    device.finish()?;
    let (class, patches) = (&tokens[..config.dim], &tokens[config.leading_tokens() * config.dim..]);
    let mut most = 0.0f32;
    for (name, ours) in [("class", class), ("patches", patches)] {
        let theirs = outputs.get(name).and_then(Value::as_f32).unwrap_or(&[]);
        let distance = largest_difference(ours, theirs);
        if distance > TOLERANCE {
            return Err(different(format!("its output `{name}` differs by {distance:e}")));
        }
        most = most.max(distance);
    }
    if let Some(density) = density {
        let ours = density.at(class, device).map_err(|error| different(error.to_string()))?;
        let theirs = |name| outputs.get(name).and_then(Value::as_f32).unwrap_or(&[]);
        let (&[log_density], &[kappa]) = (theirs("log_density"), theirs("kappa")) else {
            return Err(different("it does not give one `kappa` and one `log_density` for an image".to_owned()));
        };
        let distance = ours.difference(log_density.into(), kappa.into(), TOLERANCE.into()).map_err(different)?;
        most = most.max(distance as f32);
    }
    Ok(most)
}
