//! Pillow's `GaussianBlur`: three passes of an extended box filter along rows, then three along columns.
//!
//! A box of fractional radius `r` weighs the `2R + 1` inner pixels (`R` = floor r) equally and the two just outside with
//! the rest, in 24-bit fixed point. Every pass rounds to bytes, and pixels beyond an edge repeat it.

use crate::Image;

/// Box passes along each axis.
const PASSES: usize = 3;

/// Blurs with standard deviation `sigma` in pixels. Zero changes nothing.
pub fn gaussian_blur(image: &mut Image, sigma: f64) {
    let Some(kernel) = BoxKernel::of_gaussian(sigma as f32) else { return };
    blur_rows(image, &kernel);
    blur_columns(image, &kernel);
}

/// One extended box: `inner` weighs the pixels within `radius`, `outer` the two at `radius + 1`; their sum is 2^24.
struct BoxKernel {
    radius: usize,
    inner: u32,
    outer: u32,
}

impl BoxKernel {
    /// The box whose three-fold application has the variance of a Gaussian; none for a deviation of zero or less.
    fn of_gaussian(sigma: f32) -> Option<Self> {
        let radius = box_radius(sigma);
        if radius.is_nan() || radius <= 0.0 {
            return None;
        }
        let whole = radius as usize;
        let inner = ((1u32 << 24) as f32 / (radius * 2.0 + 1.0)) as u32;
        let outer = ((1u32 << 24) - (2 * whole as u32 + 1) * inner) / 2;
        Some(Self { radius: whole, inner, outer })
    }

    #[inline]
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
fn blur_rows(image: &mut Image, kernel: &BoxKernel) {
    let (stride, channels) = (image.stride(), image.channels);
    let reach = (kernel.radius + 1) * channels;
    // The row with its edge pixels repeated on both sides.
    let mut padded = vec![0u8; stride + 2 * reach];
    for row in image.pixels.chunks_exact_mut(stride) {
        for _ in 0..PASSES {
            padded[reach..reach + stride].copy_from_slice(row);
            for side in padded[..reach].chunks_exact_mut(channels) {
                side.copy_from_slice(&row[..channels]);
            }
            for side in padded[reach + stride..].chunks_exact_mut(channels) {
                side.copy_from_slice(&row[stride - channels..]);
            }
            let shifted = |steps: usize| &padded[steps * channels..steps * channels + stride];
            blur_line(row, kernel, shifted);
        }
    }
}

/// Whole rows are the unit: `out[y]` gathers the rows around `y`, clamped to the image.
fn blur_columns(image: &mut Image, kernel: &BoxKernel) {
    let (stride, height) = (image.stride(), image.height);
    let mut blurred = vec![0u8; image.pixels.len()];
    for _ in 0..PASSES {
        for (y, out) in blurred.chunks_exact_mut(stride).enumerate() {
            let shifted = |steps: usize| {
                let y = (y + steps).saturating_sub(kernel.radius + 1).min(height - 1);
                &image.pixels[y * stride..(y + 1) * stride]
            };
            blur_line(out, kernel, shifted);
        }
        std::mem::swap(&mut image.pixels, &mut blurred);
    }
}

/// One line of one pass. `shifted(i)` is the input line moved by `i - radius - 1` pixels, for `i` up to `2 radius + 2`.
///
/// The first two radii are what deviations up to 2 need (sigma <= 2 gives r <= 1.375), and as fixed sums they vectorise.
fn blur_line<'a>(out: &mut [u8], kernel: &BoxKernel, shifted: impl Fn(usize) -> &'a [u8]) {
    let wide = |v: u8| u32::from(v);
    let (first, last) = (shifted(0), shifted(2 * kernel.radius + 2));
    match kernel.radius {
        0 => {
            for (((out, &a), &b), &c) in out.iter_mut().zip(first).zip(shifted(1)).zip(last) {
                *out = kernel.weigh(wide(b), wide(a) + wide(c));
            }
        }
        1 => {
            let inner = shifted(1).iter().zip(shifted(2)).zip(shifted(3));
            for (((out, &a), ((&b, &c), &d)), &e) in out.iter_mut().zip(first).zip(inner).zip(last) {
                *out = kernel.weigh(wide(b) + wide(c) + wide(d), wide(a) + wide(e));
            }
        }
        radius => {
            let inner: Vec<&[u8]> = (1..=2 * radius + 1).map(&shifted).collect();
            for (i, out) in out.iter_mut().enumerate() {
                let sum = inner.iter().map(|line| wide(line[i])).sum();
                *out = kernel.weigh(sum, wide(first[i]) + wide(last[i]));
            }
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
