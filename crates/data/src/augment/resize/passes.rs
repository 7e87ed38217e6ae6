//! One axis at a time: rows made shorter or longer, then columns.
//!
//! Sums are exact in 32 bits, so kernels may add in any order and still agree to the last bit. The plain ones are what
//! the others are held to.

use super::taps::{BITS, HALF, Taps};
use simd::simd;

/// A rectangle of an image: rows of `width * channels` bytes, `stride` bytes apart.
#[derive(Clone, Copy)]
pub(super) struct Region<'a> {
    /// From the rectangle's first byte to the end of the image.
    pub pixels: &'a [u8],
    pub stride: usize,
    pub width: usize,
    pub channels: usize,
}

impl<'a> Region<'a> {
    /// From the first byte of row `y` to the end of the image.
    #[inline(always)]
    pub(super) fn rows_from(&self, y: usize) -> &'a [u8] {
        &self.pixels[y * self.stride..]
    }

    /// The bytes of row `y`.
    #[inline(always)]
    pub(super) fn row(&self, y: usize) -> &'a [u8] {
        &self.rows_from(y)[..self.width * self.channels]
    }
}

#[inline(always)]
pub(super) fn to_byte(sum: i32) -> u8 {
    (sum >> BITS).clamp(0, 255) as u8
}

/// Resamples every row, in plain words.
pub(super) fn horizontal_plain(region: Region<'_>, taps: &Taps, out: &mut [u8]) {
    let channels = region.channels;
    for (y, out) in out.chunks_exact_mut(taps.len() * channels).enumerate() {
        let row = region.row(y);
        for (out, (first, weights)) in out.chunks_exact_mut(channels).zip(taps.iter()) {
            for (c, out) in out.iter_mut().enumerate() {
                let column = row[first * channels + c..].iter().step_by(channels);
                *out = to_byte(column.zip(weights).fold(HALF, |sum, (&v, &w)| sum + w * i32::from(v)));
            }
        }
    }
}

/// Resamples every column, a stretch of a row at a time.
pub(super) fn vertical(region: Region<'_>, taps: &Taps, out: &mut [u8]) {
    let bytes = region.width * region.channels;
    for (out, (first, weights)) in out.chunks_exact_mut(bytes).zip(taps.iter()) {
        weigh_rows(region.rows_from(first), region.stride, weights, out);
    }
}

/// Bytes whose sums stay in registers.
const STRETCH: usize = 64;

simd! {
    /// The sum of rows that start `stride` bytes apart, each times its weight.
    fn weigh_rows(rows: &[u8], stride: usize, weights: &[i32], out: &mut [u8]) {
        let (whole, rest) = out.as_chunks_mut::<STRETCH>();
        let start_of_rest = whole.len() * STRETCH;
        for (x, out) in whole.iter_mut().enumerate() {
            let mut sums = [HALF; STRETCH];
            for (k, &w) in weights.iter().enumerate() {
                let start = k * stride + x * STRETCH;
                for (sum, &v) in sums.iter_mut().zip(&rows[start..start + STRETCH]) {
                    *sum += w * i32::from(v);
                }
            }
            *out = sums.map(to_byte);
        }
        let mut sums = [HALF; STRETCH];
        for (k, &w) in weights.iter().enumerate() {
            let start = k * stride + start_of_rest;
            for (sum, &v) in sums.iter_mut().zip(&rows[start..start + rest.len()]) {
                *sum += w * i32::from(v);
            }
        }
        for (out, sum) in rest.iter_mut().zip(sums) {
            *out = to_byte(sum);
        }
    }
}
