//! Pillow's `ImageEnhance.Sharpness`: away from a smoothed version of the image, or towards it.

use super::color::{blend, truncate};
use crate::Image;

/// Weights of the smoothing kernel: its centre and its eight neighbours, over their sum of 13.
const CENTRE: f32 = 5.0 / 13.0;
const AROUND: f32 = 1.0 / 13.0;

/// Scales the distance of every pixel to its smoothed neighbourhood: 0 is smooth, 1 changes nothing, 2 is sharp. Pixels at
/// the border have no whole neighbourhood and stay.
pub fn sharpness(image: &mut Image, factor: f64) {
    let (stride, channels, factor) = (image.stride(), image.channels, factor as f32);
    if image.width < 3 || image.height < 3 {
        return;
    }
    let source = image.pixels.clone();
    let rows = source.windows(3 * stride).step_by(stride).zip(image.pixels.chunks_exact_mut(stride).skip(1));
    for (three, out) in rows {
        let (above, rest) = three.split_at(stride);
        let (here, below) = rest.split_at(stride);
        smooth_row([above, here, below], channels, factor, out);
    }
}

/// The inner pixels of a row, from it and its neighbours.
fn smooth_row([above, here, below]: [&[u8]; 3], channels: usize, factor: f32, out: &mut [u8]) {
    for i in channels..out.len() - channels {
        let three = |row: &[u8], centre: f32| {
            let at = |i: usize| f32::from(row[i]);
            at(i - channels) * AROUND + at(i) * centre + at(i + channels) * AROUND
        };
        // In Pillow's order: f32 sums depend on it.
        let smooth = 0.5 + three(below, AROUND) + three(here, CENTRE) + three(above, AROUND);
        out[i] = blend(truncate(smooth), here[i], factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_and_images_without_an_inside_stay() {
        let pixels: Vec<u8> = (0..4 * 3).map(|i| (i * 37 % 251) as u8).collect();
        let mut thin = Image::from_pixels(2, 6, 1, pixels.clone());
        sharpness(&mut thin, 0.0);
        assert_eq!(thin.pixels, pixels);
        let mut image = Image::from_pixels(4, 3, 1, pixels.clone());
        sharpness(&mut image, 0.0);
        let changed: Vec<usize> = (0..12).filter(|&i| image.pixels[i] != pixels[i]).collect();
        assert!(!changed.is_empty() && changed.iter().all(|i| [5, 6].contains(i)), "{changed:?}");
    }
}
