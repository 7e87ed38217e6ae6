//! An export read back: the same network, the same bits, the same features.

use std::path::Path;

use model::weights::{LoadOptions, WeightsFile};
use tensor::ops::{PixelData, Pixels};

use super::ExportError;
use super::dino::HeadTensor;
use crate::error::CliError;
use crate::output;
use crate::weights::Weights;

/// How far features may be from each other where LayerNorms add another number to the variance.
const EPSILON_TOLERANCE: f32 = 1e-3;

/// An error unless the weights at `path` are those of this network.
pub fn weights(path: &Path, original: &Weights) -> Result<(), CliError> {
    let shown = text::shown(path).into_owned();
    let different = |what: String| CliError::from(ExportError::Different { path: shown.clone(), what });
    let loaded = &original.loaded;
    let config = loaded.vit.config();
    let device = loaded.weights.iter().next().map(|tensor| tensor.device().clone());
    let Some(device) = device else { return Err(different("the network has no weights".to_owned())) };
    // The place that a file has says nothing of these where it is bare.
    let options = LoadOptions {
        heads: Some(config.heads),
        image: Some(config.image),
        interpolation: Some(config.extras.interpolation),
        ..Default::default()
    };
    let mut file = WeightsFile::open(path)?;
    let (of_program, _) = file.vit_config(&LoadOptions { interpolation: None, ..options })?;
    if of_program.extras.interpolation != config.extras.interpolation {
        let (height, width) = config.image;
        output::note(&format!(
            "its features are those of this network for images of {height}x{width}; for other sizes that program interpolates \
             positions in its own way, and features differ by up to a per cent (docs/weights.md)"
        ));
    }
    let read = file.load_vit(&options, &device)?;
    for (spec, tensor) in loaded.layout.specs().iter().zip(loaded.weights.iter()) {
        let there = read.layout.find(&spec.name).map(|id| read.weights[id].to_f32());
        let here = tensor.to_f32();
        if !there.is_some_and(|there| is_same(&there, &here)) {
            return Err(different(format!("what was read back as {} is not what was written", spec.name)));
        }
    }
    let pixels = pixels(config.image, config.channels);
    let images = || {
        let (height, width) = config.image;
        [Pixels { count: 1, height, width, channels: config.channels, data: PixelData::Values(&pixels) }]
    };
    let here = loaded.vit.features(&loaded.weights, &device, &images())?.to_f32();
    let there = read.vit.features(&read.weights, &device, &images())?.to_f32();
    device.finish()?;
    let distance = largest_difference(&here, &there);
    let (ours, theirs) = (config.extras.norm_epsilon, read.vit.config().extras.norm_epsilon);
    if ours != theirs && distance >= EPSILON_TOLERANCE {
        let what = format!(
            "its LayerNorms add {ours:e} to the variance, those of the program that this is for {theirs:e}, and the features of an \
             image differ by {distance:.0e}"
        );
        return Err(ExportError::Unsupported { what, instead: "hf" }.into());
    }
    if ours != theirs {
        output::note(&format!(
            "the program that this is for adds {theirs:e} to the variances that it normalises by, where this network has \
             {ours:e}, and its file has no place for that: features differ by {distance:.0e}"
        ));
        return Ok(());
    }
    match distance {
        0.0 => Ok(()),
        _ => Err(different(format!("the features of an image differ by {distance:e}"))),
    }
}

/// An error unless the file has just these beside its backbone, bit for bit, where a program that reads it looks for them.
pub fn head(path: &Path, original: &[HeadTensor]) -> Result<(), CliError> {
    let different =
        |what: String| CliError::from(ExportError::Different { path: text::shown(path).into_owned(), what });
    let mut file = WeightsFile::open(path)?;
    let found = file.beside_backbone(None);
    if found.len() != original.len() {
        return Err(different(format!("its head has {} tensors, and {} were written", found.len(), original.len())));
    }
    for (name, tensor) in found {
        let written = original.iter().find(|written| written.name == name && written.shape == tensor.shape);
        let there = file.read(&tensor)?.into_f32();
        if !written.is_some_and(|written| is_same(&there, &written.values)) {
            return Err(different(format!("what was read back as {name} is not what was written")));
        }
    }
    Ok(())
}

fn is_same(there: &[f32], here: &[f32]) -> bool {
    there.len() == here.len() && there.iter().zip(here).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// The values of an image: fixed, of the size that normalised pixels have, and without structure.
pub fn pixels((height, width): (usize, usize), channels: usize) -> Vec<f64> {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        f64::from(state) / f64::from(u32::MAX) * 4.0 - 2.0
    };
    (0..channels * height * width).map(|_| f64::from(next() as f32)).collect()
}

/// The largest difference of two vectors, relative to the largest element of the first.
pub fn largest_difference(here: &[f32], there: &[f32]) -> f32 {
    if here.len() != there.len() {
        return f32::INFINITY;
    }
    let scale = here.iter().fold(f32::MIN_POSITIVE, |most, x| most.max(x.abs()));
    let differences = here.iter().zip(there).map(|(a, b)| (a - b).abs());
    // A difference that is no number is the largest.
    differences.fold(0.0, |most: f32, d| if d.is_nan() { f32::INFINITY } else { most.max(d) }) / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_that_is_not_what_was_written_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let tensor = |name: &str, values: &[f32]| HeadTensor {
            name: format!("head.{name}"),
            shape: vec![values.len()],
            values: values.to_vec(),
        };
        let written = [tensor("mlp.0.bias", &[1.0, -0.0]), tensor("mlp.2.bias", &[3.0])];
        let bytes: Vec<Vec<u8>> =
            written.iter().map(|held| held.values.iter().flat_map(|value| value.to_le_bytes()).collect()).collect();
        let views = written.iter().zip(&bytes).map(|(held, bytes)| {
            (
                held.name.as_str(),
                safetensors::tensor::TensorView::new(safetensors::Dtype::F32, held.shape.clone(), bytes).unwrap(),
            )
        });
        std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
        head(&path, &written).unwrap();
        for other in [
            vec![tensor("mlp.0.bias", &[1.0, 0.0]), tensor("mlp.2.bias", &[3.0])],
            vec![tensor("mlp.0.bias", &[1.0, -0.0]), tensor("mlp.4.bias", &[3.0])],
            vec![tensor("mlp.0.bias", &[1.0, -0.0])],
        ] {
            assert!(head(&path, &other).is_err());
        }
    }
}
