//! Brightness, contrast, saturation and greyscale: Pillow's `ImageEnhance` and `convert("L")`.
//!
//! All three enhancements blend the image with a degenerate version of itself: black, its mean grey, its greyscale.

use crate::Image;

/// Luma of ITU-R 601-2 in 16-bit fixed point.
#[inline]
pub fn luma(r: u8, g: u8, b: u8) -> u8 {
    ((19595 * u32::from(r) + 38470 * u32::from(g) + 7471 * u32::from(b) + 32768) >> 16) as u8
}

/// `degenerate + factor * (value - degenerate)` in f32, truncated to a byte.
///
/// Pillow clamps only for factors outside [0, 1]; inside, the result cannot leave the range, so the saturating
/// conversion serves both.
#[inline]
pub fn blend(degenerate: u8, value: u8, factor: f32) -> u8 {
    let (d, x) = (f32::from(degenerate), f32::from(value));
    (d + factor * (x - d)) as u8
}

/// Scales brightness: 0 is black, 1 changes nothing.
pub fn brightness(image: &mut Image, factor: f64) {
    blend_with_constant(image, 0, factor);
}

/// Scales the distance to the mean luma of the image: 0 is flat grey, 1 changes nothing.
///
/// # Panics
/// When the image is not RGB.
pub fn contrast(image: &mut Image, factor: f64) {
    let pixels = rgb(image);
    let sum: u64 = pixels.iter().map(|&[r, g, b]| u64::from(luma(r, g, b))).sum();
    let mean = (sum as f64 / pixels.len() as f64 + 0.5) as u8;
    blend_with_constant(image, mean, factor);
}

/// Scales the distance of every pixel to its own grey: 0 is greyscale, 1 changes nothing.
///
/// # Panics
/// When the image is not RGB.
pub fn saturation(image: &mut Image, factor: f64) {
    let factor = factor as f32;
    for [r, g, b] in rgb_mut(image) {
        let grey = luma(*r, *g, *b);
        *r = blend(grey, *r, factor);
        *g = blend(grey, *g, factor);
        *b = blend(grey, *b, factor);
    }
}

/// Replaces every channel by the luma (torchvision's `to_grayscale` with three output channels).
///
/// # Panics
/// When the image is not RGB.
pub fn grayscale(image: &mut Image) {
    for pixel in rgb_mut(image) {
        *pixel = [luma(pixel[0], pixel[1], pixel[2]); 3];
    }
}

/// With a constant partner a blend is a function of the byte alone, so 256 blends serve the whole image.
fn blend_with_constant(image: &mut Image, degenerate: u8, factor: f64) {
    let table: [u8; 256] = std::array::from_fn(|v| blend(degenerate, v as u8, factor as f32));
    for v in &mut image.pixels {
        *v = table[usize::from(*v)];
    }
}

/// The pixels of an RGB image.
pub(crate) fn rgb(image: &Image) -> &[[u8; 3]] {
    assert_eq!(image.channels, 3, "colour operations work on RGB");
    image.pixels.as_chunks::<3>().0
}

/// The pixels of an RGB image, to change.
pub(crate) fn rgb_mut(image: &mut Image) -> &mut [[u8; 3]] {
    assert_eq!(image.channels, 3, "colour operations work on RGB");
    image.pixels.as_chunks_mut::<3>().0
}
