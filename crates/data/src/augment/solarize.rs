//! Solarisation: bright values are turned upside down.

use crate::Image;
use simd::simd;

/// Replaces every channel value `v >= threshold` by `255 - v` (Pillow's `ImageOps.solarize`).
pub fn solarize(image: &mut Image, threshold: u8) {
    invert_from(&mut image.pixels, threshold);
}

simd! {
    fn invert_from(values: &mut [u8], threshold: u8) {
        for v in values {
            *v = if *v < threshold { *v } else { 255 - *v };
        }
    }
}
