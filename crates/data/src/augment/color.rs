//! Brightness, contrast, saturation and greyscale: Pillow's `ImageEnhance` and `convert("L")`.
//!
//! All three enhancements blend the image with a degenerate version of itself: black, its mean grey, its greyscale.

use crate::Image;
use simd::simd;

/// Luma of ITU-R 601-2 in 16-bit fixed point.
#[inline(always)]
pub fn luma(r: u8, g: u8, b: u8) -> u8 {
    ((19595 * u32::from(r) + 38470 * u32::from(g) + 7471 * u32::from(b) + 32768) >> 16) as u8
}

/// `degenerate + factor * (value - degenerate)` in f32, truncated to a byte.
///
/// Pillow clamps only for factors outside [0, 1]; inside, the result cannot leave the range, so clamping serves both.
#[inline(always)]
pub fn blend(degenerate: u8, value: u8, factor: f32) -> u8 {
    let (d, x) = (f32::from(degenerate), f32::from(value));
    truncate(d + factor * (x - d))
}

/// A number as a byte: truncated, and the nearest end of the range where it lies outside. What is not a number is 0.
#[inline(always)]
#[allow(clippy::manual_clamp)] // `clamp` would keep what is not a number; of that and zero, `max` takes zero.
pub(super) fn truncate(x: f32) -> u8 {
    let x = x.max(0.0).min(255.0);
    // SAFETY: the line above has left a finite number within the range of i32. The plain `as` does the same clamping once
    // more, in a way that the compiler cannot turn into vectors: seven times slower.
    unsafe { x.to_int_unchecked::<i32>() as u8 }
}

/// Scales brightness: 0 is black, 1 changes nothing.
pub fn brightness(image: &mut Image, factor: f64) {
    blend_with_constant(&mut image.pixels, 0, factor as f32);
}

/// Scales the distance to the mean luma of the image: 0 is flat grey, 1 changes nothing. The mean of an image that is
/// not RGB is that of all its bytes.
pub fn contrast(image: &mut Image, factor: f64) {
    let (sum, count) = match image.channels {
        3 => (luma_sum(rgb(image)), image.pixels.len() / 3),
        _ => (image.pixels.iter().map(|&v| u64::from(v)).sum(), image.pixels.len()),
    };
    let mean = (sum as f64 / count as f64 + 0.5) as u8;
    blend_with_constant(&mut image.pixels, mean, factor as f32);
}

/// Scales the distance of every pixel to its own grey: 0 is greyscale, 1 changes nothing.
///
/// # Panics
/// When the image is not RGB.
pub fn saturation(image: &mut Image, factor: f64) {
    blend_with_gray(rgb_mut(image), factor as f32);
}

/// Replaces every channel by the luma (torchvision's `to_grayscale` with three output channels).
///
/// # Panics
/// When the image is not RGB.
pub fn grayscale(image: &mut Image) {
    to_gray(rgb_mut(image));
}

simd! {
    fn blend_with_constant(values: &mut [u8], degenerate: u8, factor: f32) {
        for v in values {
            *v = blend(degenerate, *v, factor);
        }
    }
}

simd! {
    fn blend_with_gray(pixels: &mut [[u8; 3]], factor: f32) {
        for block in pixels.chunks_mut(Planes::SIZE) {
            let mut planes = Planes::of(block);
            let Planes { r, g, b } = &mut planes;
            for ((r, g), b) in r.iter_mut().zip(g).zip(b) {
                let gray = luma(*r, *g, *b);
                [*r, *g, *b] = [*r, *g, *b].map(|v| blend(gray, v, factor));
            }
            planes.put(block);
        }
    }
}

simd! {
    fn to_gray(pixels: &mut [[u8; 3]]) {
        for block in pixels.chunks_mut(Planes::SIZE) {
            let mut planes = Planes::of(block);
            let Planes { r, g, b } = &mut planes;
            for ((r, g), b) in r.iter_mut().zip(g).zip(b) {
                [*r, *g, *b] = [luma(*r, *g, *b); 3];
            }
            planes.put(block);
        }
    }
}

simd! {
    fn luma_sum(pixels: &[[u8; 3]]) -> u64 {
        let mut sum = 0;
        for block in pixels.chunks(Planes::SIZE) {
            // What a short last block leaves of the planes is black and adds nothing.
            let Planes { r, g, b } = Planes::of(block);
            let lumas = r.iter().zip(&g).zip(&b).map(|((&r, &g), &b)| u32::from(luma(r, g, b)));
            sum += u64::from(lumas.sum::<u32>());
        }
        sum
    }
}

/// Some pixels, one channel after the other: the layout in which the compiler finds vectors.
pub(super) struct Planes {
    pub r: [u8; Planes::SIZE],
    pub g: [u8; Planes::SIZE],
    pub b: [u8; Planes::SIZE],
}

impl Planes {
    /// Pixels of a block.
    pub(super) const SIZE: usize = 64;

    /// The planes of up to [`Self::SIZE`] pixels; the rest is black.
    #[inline(always)]
    pub(super) fn of(pixels: &[[u8; 3]]) -> Self {
        let mut planes = Self { r: [0; Self::SIZE], g: [0; Self::SIZE], b: [0; Self::SIZE] };
        if let Ok(whole) = <&[[u8; 3]; Self::SIZE]>::try_from(pixels) {
            planes.fill(whole);
        } else {
            planes.fill(pixels);
        }
        planes
    }

    #[inline(always)]
    fn fill(&mut self, pixels: &[[u8; 3]]) {
        for (((r, g), b), pixel) in self.r.iter_mut().zip(&mut self.g).zip(&mut self.b).zip(pixels) {
            [*r, *g, *b] = *pixel;
        }
    }

    /// Puts them back.
    #[inline(always)]
    pub(super) fn put(&self, pixels: &mut [[u8; 3]]) {
        if let Ok(whole) = <&mut [[u8; 3]; Self::SIZE]>::try_from(&mut *pixels) {
            self.spill(whole);
        } else {
            self.spill(pixels);
        }
    }

    #[inline(always)]
    fn spill(&self, pixels: &mut [[u8; 3]]) {
        for (((&r, &g), &b), pixel) in self.r.iter().zip(&self.g).zip(&self.b).zip(pixels) {
            *pixel = [r, g, b];
        }
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
