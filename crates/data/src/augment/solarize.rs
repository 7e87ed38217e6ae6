//! Solarisation: bright values are turned upside down.

use crate::Image;

/// Replaces every channel value `v >= threshold` by `255 - v` (Pillow's `ImageOps.solarize`).
pub fn solarize(image: &mut Image, threshold: u8) {
    for v in &mut image.pixels {
        *v = if *v < threshold { *v } else { 255 - *v };
    }
}
