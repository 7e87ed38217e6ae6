//! How much memory features take on a CPU, so that work which does not fit is refused before it begins.

use model::VitConfig;

use crate::pooling::{FeatureTokens, Pooling};
use crate::prepare::Preparation;
use crate::reading::{ReadOptions, fitting};

/// Values of a token that are held, in units of the embedding's dimension, as measured: the residual stream, its norms,
/// queries, keys and values, the hidden layer of the MLP. Buffers of each size are kept from block to block.
const HELD_OF_TOKEN: usize = 18;
/// Batches of prepared images at once: one is read, one waits, one is computed on.
const BATCHES: usize = 3;
/// Pixels of an image as it is read, resized and cropped, in units of the network's input. Photographs are larger.
const IMAGE_SIZES: usize = 8;

/// What becomes of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All are held in memory.
    All,
    /// They are handed on as they are computed.
    Batch,
}

/// About how many bytes it takes to compute features of `images` images, beside the weights. `threads` compute.
pub fn estimate_features(
    vit: &VitConfig,
    preparation: &Preparation,
    pooling: &Pooling,
    options: &ReadOptions,
    (images, kept): (usize, Kept),
    threads: usize,
) -> u64 {
    let (height, width) = preparation.size();
    let batch = fitting(options.batch_size, height * width * options.channels).min(images) as u64;
    let tokens = vit.tokens((height, width)) as u64;
    // Where all tokens are read, those of each layer are there, on the host once more, and what is made of them.
    let read = if pooling.tokens == FeatureTokens::Class { 0 } else { 2 * pooling.layers };
    let of_token = (HELD_OF_TOKEN + read) * vit.dim + vit.patch_values();
    // Attention weighs every pair of tokens. Each thread has room for one head of one image, rounded up by an eighth at most.
    let pairs = tokens.saturating_mul(tokens).saturating_mul(threads as u64) / 8 * 9;
    let values = (tokens * batch).saturating_mul(of_token as u64).saturating_add(pairs);
    let pixels = (height * width * options.channels) as u64;
    let prepared = pixels * (BATCHES as u64 * batch + (IMAGE_SIZES * options.workers.min(batch as usize)) as u64);
    let of_image = pooling.shape(vit, (height, width)).iter().map(|&side| side as u64).fold(1, u64::saturating_mul);
    let features = of_image.saturating_mul(if kept == Kept::All { images as u64 } else { batch });
    values.saturating_add(features).saturating_mul(size_of::<f32>() as u64).saturating_add(prepared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Arch, Layout, Vit};
    use tensor::ops::{PixelData, Pixels};
    use tensor::{CpuOptions, Device};

    #[test]
    fn the_estimate_is_near_what_a_batch_takes() {
        let mut ratios = Vec::new();
        // Small images in large batches, and few large ones, where attention counts most; and all tokens of some layers.
        for (arch, patch, side, batch, tokens, layers) in [
            (Arch::Tiny, 16, 224, 16, FeatureTokens::Class, 1),
            (Arch::Nano, 4, 32, 64, FeatureTokens::Class, 1),
            (Arch::Tiny, 8, 512, 2, FeatureTokens::Class, 1),
            (Arch::Nano, 8, 512, 1, FeatureTokens::Class, 1),
            (Arch::Tiny, 16, 224, 16, FeatureTokens::Patches, 1),
            (Arch::Tiny, 16, 224, 16, FeatureTokens::Both, 4),
        ] {
            let device = Device::cpu(CpuOptions { threads: Some(2), ..Default::default() }).unwrap();
            let config = VitConfig::new(arch, patch, (side, side), 3).unwrap();
            let mut layout = Layout::default();
            let vit = Vit::new(&mut layout, "", config.clone());
            let weights = layout.initial(&device, 0);
            let before = device.memory().live_bytes;
            let pixels = vec![7; batch * side * side * 3];
            let data = PixelData::Bytes { pixels: &pixels, mean: &[0.5; 3], deviation: &[0.5; 3] };
            let images = Pixels { count: batch, height: side, width: side, channels: 3, data };
            let pooling = Pooling { tokens, layers, norm: true };
            let read = vit.read(&weights, &device, &[images], &pooling.readout()).unwrap();
            let on_host: usize = read.iter().map(|tokens| tokens.to_f32().len() * size_of::<f32>()).sum();
            let of_image: usize = pooling.shape(&config, (side, side)).iter().product();
            let pooled = batch * of_image * size_of::<f32>();
            let taken = (device.memory().peak_bytes - before + on_host + pooled) as f64;
            let options = ReadOptions { batch_size: batch, ..Default::default() };
            let preparation = Preparation::Cover((side, side));
            let estimate = |images| estimate_features(&config, &preparation, &pooling, &options, images, 2);
            let prepared = (side * side * 3 * (3 * batch + 8 * options.workers.min(batch))) as f64;
            let ratio = (estimate((batch, Kept::Batch)) as f64 - prepared) / taken;
            println!("{arch} {side} {tokens:?}: {ratio:.2}");
            ratios.push(ratio);
            assert_eq!(
                estimate((1_000_000, Kept::Batch)),
                estimate((batch, Kept::All)),
                "a batch, whatever the number"
            );
            let more = estimate((1_000_000, Kept::All)) - estimate((batch, Kept::All));
            assert_eq!(more, ((1_000_000 - batch) * of_image * size_of::<f32>()) as u64);
        }
        assert!(ratios.iter().all(|ratio| (0.85..1.5).contains(ratio)), "of what a batch takes: {ratios:.2?}");
    }
}
