//! Operations on single values: Pillow's `ImageOps.invert` and `ImageOps.posterize`, and timm's `solarize_add`.

use crate::Image;
use simd::simd;

/// Turns every value upside down.
pub fn invert(image: &mut Image) {
    invert_all(&mut image.pixels);
}

/// Keeps the `bits` highest bits of every value; all from 8 on. None leave black, as Pillow did up to version 12: from 13
/// on it refuses.
pub fn posterize(image: &mut Image, bits: u32) {
    let mask = if bits >= 8 { 0xFF } else { !(0xFFu8 >> bits) };
    mask_all(&mut image.pixels, mask);
}

/// Adds to every value below 128; beyond 255 it stays there.
pub fn solarize_add(image: &mut Image, add: u8) {
    add_below(&mut image.pixels, add);
}

simd! {
    fn invert_all(values: &mut [u8]) {
        for v in values {
            *v = 255 - *v;
        }
    }
}

simd! {
    fn mask_all(values: &mut [u8], mask: u8) {
        for v in values {
            *v &= mask;
        }
    }
}

simd! {
    fn add_below(values: &mut [u8], add: u8) {
        for v in values {
            *v = if *v < 128 { v.saturating_add(add) } else { *v };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bits_leave_black_and_eight_leave_everything() {
        let values: Vec<u8> = (0..=255).collect();
        let with = |bits| {
            let mut image = Image::from_pixels(256, 1, 1, values.clone());
            posterize(&mut image, bits);
            image.pixels
        };
        assert_eq!(with(0), [0; 256]);
        assert_eq!((with(8), with(9)), (values.clone(), values.clone()));
        assert_eq!(with(1)[127..129], [0, 128]);
    }
}
