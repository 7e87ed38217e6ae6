//! How much memory features take on a CPU, so that work which does not fit is refused before it begins.

use model::VitConfig;

use crate::prepare::Preparation;
use crate::reading::{ReadOptions, fitting};

/// Values of a token that are held, in units of the embedding's dimension, as measured: the residual stream, its norms,
/// queries, keys and values, the hidden layer of the MLP. Buffers of each size are kept from block to block.
const HELD_OF_TOKEN: usize = 18;
/// Batches of prepared images at once: one is read, one waits, one is computed on.
const BATCHES: usize = 3;
/// Pixels of an image as it is read, resized and cropped, in units of the network's input. Photographs are larger.
const IMAGE_SIZES: usize = 8;

/// About how many bytes it takes to compute features of `images` images, beside the weights. `threads` compute.
pub fn estimate_features(
    vit: &VitConfig,
    preparation: &Preparation,
    options: &ReadOptions,
    images: usize,
    threads: usize,
) -> u64 {
    let (height, width) = preparation.size();
    let batch = fitting(options.batch_size, height * width * options.channels).min(images) as u64;
    let tokens = vit.tokens((height, width)) as u64;
    let of_token = HELD_OF_TOKEN * vit.dim + vit.patch_values();
    // Attention weighs every pair of tokens. Each thread has room for one head of one image, rounded up by an eighth at most.
    let pairs = tokens.saturating_mul(tokens).saturating_mul(threads as u64) / 8 * 9;
    let values = (tokens * batch).saturating_mul(of_token as u64).saturating_add(pairs);
    let pixels = (height * width * options.channels) as u64;
    let read = pixels * (BATCHES as u64 * batch + (IMAGE_SIZES * options.workers.min(batch as usize)) as u64);
    let features = (images * vit.dim) as u64;
    values.saturating_add(features).saturating_mul(size_of::<f32>() as u64).saturating_add(read)
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
        // Small images in large batches, and few large ones, where attention counts most.
        for (arch, patch, side, batch) in
            [(Arch::Tiny, 16, 224, 16), (Arch::Nano, 4, 32, 64), (Arch::Tiny, 8, 512, 2), (Arch::Nano, 8, 512, 1)]
        {
            let device = Device::cpu(CpuOptions { threads: Some(2), ..Default::default() }).unwrap();
            let config = VitConfig::new(arch, patch, (side, side), 3).unwrap();
            let mut layout = Layout::default();
            let vit = Vit::new(&mut layout, "", config.clone());
            let weights = layout.initial(&device, 0);
            let before = device.memory().live_bytes;
            let pixels = vec![7; batch * side * side * 3];
            let data = PixelData::Bytes { pixels: &pixels, mean: &[0.5; 3], deviation: &[0.5; 3] };
            let images = Pixels { count: batch, height: side, width: side, channels: 3, data };
            vit.features(&weights, &device, &[images]).unwrap();
            let taken = (device.memory().peak_bytes - before) as f64;
            let options = ReadOptions { batch_size: batch, ..Default::default() };
            let estimate = estimate_features(&config, &Preparation::Cover((side, side)), &options, batch, 2) as f64;
            let read = (side * side * 3 * (3 * batch + 8 * options.workers.min(batch))) as f64;
            let ratio = (estimate - read) / taken;
            println!("{arch} {side}: {ratio:.2}");
            ratios.push(ratio);
        }
        assert!(ratios.iter().all(|ratio| (0.85..1.5).contains(ratio)), "of what a batch takes: {ratios:.2?}");
    }
}
