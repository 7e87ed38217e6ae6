//! The feature that tells copies: the class token beside a generalised mean of the patch tokens.

use std::ops::ControlFlow;

use data::Source;
use model::{Readout, Tokens};
use rayon::prelude::*;
use tensor::ops::{PixelData, Pixels};

use crate::error::EvalError;
use crate::features::{Extraction, Features};
use crate::network::Network;
use crate::normalization::Normalization;
use crate::prepare::Preparation;
use crate::reading::{Pass, PreparedBatch, ReadOptions, ReadProgress, for_each_batch};
use crate::spread::spread;

/// The exponent of the generalised mean.
const POWER: i32 = 4;
/// Tokens are no smaller than this before they are raised to it.
const LEAST: f32 = 1e-6;
/// Tokens that go through the network at once, unless one image has more.
const TOKENS: usize = 16_384;

/// [class token ; GeM of the patch tokens] of all images, after the last norm, each image stretched to `size` (height, width).
/// GeM is (mean over patches of max(x, 1e-6)^4)^(1/4).
///
/// An image that cannot be used is skipped and reported. `progress` is called after each batch and may end the pass.
pub fn describe(
    network: Network<'_>,
    source: &dyn Source,
    size: (usize, usize),
    options: &ReadOptions,
    progress: &mut dyn FnMut(ReadProgress) -> ControlFlow<()>,
) -> Result<Extraction, EvalError> {
    let config = network.vit.config();
    let (channels, (height, width), dim) = (config.channels, size, config.dim);
    let options = &ReadOptions { channels, ..*options };
    let Normalization { mean, deviation } = network.normalization_or_usual();
    let readout = Readout { tokens: Tokens::All, ..Readout::default() };
    let (of_image, leading) = (config.tokens(size), 1 + config.extras.registers);
    let at_once = (TOKENS / of_image.max(1)).max(1);
    let mut features = Features { dim: 2 * dim, ..Default::default() };
    let preparation = Preparation::Stretch(size);
    let compute = |number, batch: &PreparedBatch| {
        let Network { vit, weights, device, .. } = network.on(number);
        let data = PixelData::Bytes { pixels: &batch.pixels, mean: &mean, deviation: &deviation };
        let images = Pixels { count: batch.indices.len(), height, width, channels, data };
        let mut rows: Vec<Vec<f32>> = Vec::with_capacity(batch.indices.len());
        for (part, indices) in batch.indices.chunks(at_once).enumerate() {
            let images = images.slice(part * at_once..part * at_once + indices.len());
            let mut read = vit.read(weights, device, &[images], &readout)?;
            let tokens = read.swap_remove(0).to_f32();
            device.finish()?;
            let described = |tokens: &[f32]| {
                let mut feature = tokens[..dim].to_vec();
                feature.extend(generalized_mean(&tokens[leading * dim..], dim));
                feature
            };
            device.run(|| rows.par_extend(tokens.par_chunks_exact(of_image * dim).map(described)));
        }
        Ok(rows)
    };
    let take = |batch: PreparedBatch, rows: Vec<Vec<f32>>| {
        for (row, &index) in rows.iter().zip(&batch.indices) {
            if !row.iter().all(|x| x.is_finite()) {
                return Err(EvalError::NotFinite { name: source.name(index) });
            }
            features.values.extend_from_slice(row);
            features.indices.push(index);
            features.labels.push(source.label(index));
        }
        Ok(())
    };
    let feed = |hand: &mut dyn FnMut(PreparedBatch) -> Result<(), EvalError>| {
        for_each_batch(source, &preparation, options, progress, hand)
    };
    let Pass { skipped, turned } = spread(network.devices(), compute, take, feed)?;
    Ok(Extraction { features, skipped, turned })
}

/// GeM over the rows of a matrix with `dim` columns.
fn generalized_mean(rows: &[f32], dim: usize) -> impl Iterator<Item = f32> {
    let mut sums = vec![0f64; dim];
    for row in rows.chunks_exact(dim) {
        for (sum, &x) in sums.iter_mut().zip(row) {
            *sum += f64::from(x.max(LEAST)).powi(POWER);
        }
    }
    let count = (rows.len() / dim) as f64;
    sums.into_iter().map(move |sum| (sum / count).powf(1.0 / f64::from(POWER)) as f32)
}
