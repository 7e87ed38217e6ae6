//! Pillow's `GaussianBlur`: three passes of an extended box filter along rows, then three along columns.
//!
//! A box of fractional radius `r` weighs the `2R + 1` inner pixels (`R` = floor r) equally and the two just outside with
//! the rest, in 24-bit fixed point. Every pass rounds to bytes, and pixels beyond an edge repeat it.

use crate::Image;
use simd::simd;

/// Box passes along each axis.
const PASSES: usize = 3;

/// Blurs with standard deviation `sigma` in pixels. Zero changes nothing.
pub fn gaussian_blur(image: &mut Image, sigma: f64) {
    Blur::default().apply(image, sigma);
}

/// Blurs image after image in the same memory.
#[derive(Default)]
pub struct Blur {
    /// A row with its edges repeated.
    padded: Vec<u8>,
    /// The image after an odd number of passes.
    other: Vec<u8>,
    /// Sums of a line, for wide boxes.
    sums: Vec<u32>,
}

impl Blur {
    /// As [`gaussian_blur`].
    pub fn apply(&mut self, image: &mut Image, sigma: f64) {
        let Some(kernel) = BoxKernel::of_gaussian(sigma as f32) else { return };
        blur_rows(image, &kernel, &mut self.padded, &mut self.sums);
        blur_columns(image, &kernel, &mut self.other, &mut self.sums);
    }
}

/// One extended box, in units of 2^-24: the weights of all its pixels add up to one, or a little less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxKernel {
    /// How far the inner pixels reach.
    pub radius: usize,
    /// Weight of each of them.
    pub inner: u32,
    /// Weight of the two pixels just outside.
    pub outer: u32,
}

impl BoxKernel {
    /// The box whose three-fold application has the variance of a Gaussian; none for a deviation of zero or less.
    pub fn of_gaussian(sigma: f32) -> Option<Self> {
        let radius = box_radius(sigma);
        if radius.is_nan() || radius <= 0.0 {
            return None;
        }
        let whole = radius as usize;
        let inner = ((1u32 << 24) as f32 / (radius * 2.0 + 1.0)) as u32;
        let outer = ((1u32 << 24) - (2 * whole as u32 + 1) * inner) / 2;
        Some(Self { radius: whole, inner, outer })
    }

    #[inline(always)]
    fn weigh(&self, inner: u32, outer: u32) -> u8 {
        ((self.inner * inner + self.outer * outer + (1 << 23)) >> 24) as u8
    }
}

/// The fractional box radius for `PASSES` passes. f32 variables and f64 constants mix as they do in Pillow.
fn box_radius(sigma: f32) -> f32 {
    let variance = sigma * sigma / PASSES as f32;
    let length = (12.0 * f64::from(variance) + 1.0).sqrt() as f32;
    let whole = ((f64::from(length) - 1.0) / 2.0).floor() as f32;
    let fraction = (2.0 * whole + 1.0) * (whole * (whole + 1.0) - 3.0 * variance)
        / (6.0 * (variance - (whole + 1.0) * (whole + 1.0)));
    whole + fraction
}

/// All passes over one row before the next: the row stays in the nearest cache.
fn blur_rows(image: &mut Image, kernel: &BoxKernel, padded: &mut Vec<u8>, sums: &mut Vec<u32>) {
    let (stride, channels) = (image.stride(), image.channels);
    let reach = (kernel.radius + 1) * channels;
    padded.resize(stride + 2 * reach, 0);
    for row in image.pixels.chunks_exact_mut(stride) {
        for _ in 0..PASSES {
            padded[reach..reach + stride].copy_from_slice(row);
            for side in padded[..reach].chunks_exact_mut(channels) {
                side.copy_from_slice(&row[..channels]);
            }
            for side in padded[reach + stride..].chunks_exact_mut(channels) {
                side.copy_from_slice(&row[stride - channels..]);
            }
            blur_line(row, kernel, sums, |steps| &padded[steps * channels..steps * channels + stride]);
        }
    }
}

/// Whole rows are the unit: `out[y]` gathers the rows around `y`, clamped to the image.
fn blur_columns(image: &mut Image, kernel: &BoxKernel, other: &mut Vec<u8>, sums: &mut Vec<u32>) {
    let (stride, height) = (image.stride(), image.height);
    other.resize(image.pixels.len(), 0);
    for _ in 0..PASSES {
        for (y, out) in other.chunks_exact_mut(stride).enumerate() {
            blur_line(out, kernel, sums, |steps| {
                let y = (y + steps).saturating_sub(kernel.radius + 1).min(height - 1);
                &image.pixels[y * stride..(y + 1) * stride]
            });
        }
        std::mem::swap(&mut image.pixels, other);
    }
}

/// One line of one pass. `shifted(i)` is the input line moved by `i - radius - 1` pixels, for `i` up to `2 radius + 2`.
///
/// The first two radii are all that deviations up to 2 need (sigma <= 2 gives r <= 1.375).
fn blur_line<'a>(out: &mut [u8], kernel: &BoxKernel, sums: &mut Vec<u32>, shifted: impl Fn(usize) -> &'a [u8]) {
    match kernel.radius {
        0 => blur_3(out, kernel, [shifted(0), shifted(1), shifted(2)]),
        1 => blur_5(out, kernel, [shifted(0), shifted(1), shifted(2), shifted(3), shifted(4)]),
        radius => {
            sums.clear();
            sums.resize(out.len(), 0);
            (1..2 * radius + 2).for_each(|i| add_line(sums, shifted(i)));
            weigh_line(out, kernel, sums, [shifted(0), shifted(2 * radius + 2)]);
        }
    }
}

simd! {
    fn blur_3(out: &mut [u8], kernel: &BoxKernel, lines: [&[u8]; 3]) {
        let [a, b, c] = lines.map(|line| &line[..out.len()]);
        for (i, out) in out.iter_mut().enumerate() {
            *out = kernel.weigh(u32::from(b[i]), u32::from(a[i]) + u32::from(c[i]));
        }
    }
}

simd! {
    fn blur_5(out: &mut [u8], kernel: &BoxKernel, lines: [&[u8]; 5]) {
        let [a, b, c, d, e] = lines.map(|line| &line[..out.len()]);
        for (i, out) in out.iter_mut().enumerate() {
            let inner = u32::from(b[i]) + u32::from(c[i]) + u32::from(d[i]);
            *out = kernel.weigh(inner, u32::from(a[i]) + u32::from(e[i]));
        }
    }
}

simd! {
    fn add_line(sums: &mut [u32], line: &[u8]) {
        for (sum, &v) in sums.iter_mut().zip(line) {
            *sum += u32::from(v);
        }
    }
}

simd! {
    fn weigh_line(out: &mut [u8], kernel: &BoxKernel, sums: &[u32], ends: [&[u8]; 2]) {
        let [a, b] = ends;
        for (((out, &sum), &a), &b) in out.iter_mut().zip(sums).zip(a).zip(b) {
            *out = kernel.weigh(sum, u32::from(a) + u32::from(b));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn box_radii_are_those_of_pillow() {
        let known = [
            (0.1, 0.001_672_24),
            (0.3, 0.015_463_92),
            (0.77, 0.123_156_5),
            (1.0, 0.25),
            (1.5, 1.038_461_6),
            (2.0, 1.375),
        ];
        for (sigma, radius) in known {
            assert!((box_radius(sigma) - radius).abs() < 1e-6, "sigma {sigma}: {}", box_radius(sigma));
        }
    }

    #[test]
    fn a_deviation_of_zero_or_nan_changes_nothing() {
        let before = Image::from_pixels(2, 1, 3, vec![0, 9, 255, 40, 3, 7]);
        for sigma in [0.0, f64::NAN] {
            let mut image = before.clone();
            gaussian_blur(&mut image, sigma);
            assert_eq!(image, before);
        }
    }

    #[test]
    fn a_flat_image_stays_flat() {
        for sigma in [0.1, 0.9, 1.7, 2.0, 5.5, 30.0] {
            let mut image = Image::from_pixels(7, 5, 3, vec![201; 105]);
            gaussian_blur(&mut image, sigma);
            assert!(image.pixels.iter().all(|&v| v == 201), "sigma {sigma}");
        }
    }
}
