//! Pillow's separable resampling: a filter widened by the reduction factor, in 22-bit fixed point.
//!
//! One axis first, rounded to bytes, then the other; an axis that keeps its length is left alone. The filter never sees
//! pixels outside the cropped rectangle: at its edges the kernel is cut off and renormalised.

use super::crop::{Rect, crop};
use crate::Image;

/// A resampling kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Triangle.
    Bilinear,
    /// Keys with a = -0.5, as in Pillow (PyTorch has -0.75).
    Bicubic,
    /// Windowed sinc with three lobes.
    Lanczos,
}

impl Filter {
    /// Where the kernel ends, in pixels of the coarser of the two grids.
    fn support(self) -> f64 {
        match self {
            Filter::Bilinear => 1.0,
            Filter::Bicubic => 2.0,
            Filter::Lanczos => 3.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        let d = x.abs();
        match self {
            Filter::Bilinear if d < 1.0 => 1.0 - d,
            Filter::Bicubic if d < 1.0 => (1.5 * d - 2.5) * d * d + 1.0,
            Filter::Bicubic if d < 2.0 => (((d - 5.0) * d + 8.0) * d - 4.0) * -0.5,
            Filter::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            _ => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * std::f64::consts::PI;
    x.sin() / x
}

/// Resizes to `size` = (height, width), without regard to the aspect ratio.
///
/// # Panics
/// When `size` has a zero.
pub fn resize(image: &Image, size: (usize, usize), filter: Filter) -> Image {
    resize_crop(image, Rect::whole(image), size, filter)
}

/// Cuts `rect` out and resizes it to `size` = (height, width).
///
/// # Panics
/// When the rectangle does not lie inside the image, or `size` has a zero.
pub fn resize_crop(image: &Image, rect: Rect, size: (usize, usize), filter: Filter) -> Image {
    let box_ = (rect.height as f64, rect.width as f64);
    resize_box(image, rect, box_, size, filter)
}

/// As [`resize_crop`], from the part of `rect` that spans `box_` = (height, width), not necessarily whole pixels, from
/// its top left corner: after an integer reduction the last row and column may stand for less than a full pixel.
pub(crate) fn resize_box(image: &Image, rect: Rect, box_: (f64, f64), size: (usize, usize), filter: Filter) -> Image {
    assert!(rect.fits(image.height, image.width), "{rect:?} lies outside {image:?}");
    let (height, width) = size;
    assert!(height > 0 && width > 0, "an image has no side of zero: {height}x{width}");
    let unchanged = |from: usize, span: f64, to: usize| from == to && span == from as f64;
    let columns = || Taps::new(rect.width, box_.1, width, filter);
    let rows = || Taps::new(rect.height, box_.0, height, filter);
    match (unchanged(rect.width, box_.1, width), unchanged(rect.height, box_.0, height)) {
        (true, true) => crop(image, rect),
        (true, false) => vertical(image, rect, &rows()),
        (false, true) => horizontal(image, rect, &columns()),
        (false, false) if rows_first(rect, size) => {
            let image = vertical(image, rect, &rows());
            horizontal(&image, Rect::whole(&image), &columns())
        }
        (false, false) => {
            let image = horizontal(image, rect, &columns());
            vertical(&image, Rect::whole(&image), &rows())
        }
    }
}

/// Pillow 13 reduces the number of rows first where it falls by more than twice as much as that of columns. Earlier
/// versions never do. The two orders round differently in a few bytes.
fn rows_first(rect: Rect, (height, width): (usize, usize)) -> bool {
    let fall = |from: usize, to: usize| from as i64 - to as i64;
    height < rect.height && fall(rect.height, height) > 2 * fall(rect.width, width)
}

/// Fractional bits of a weight.
const BITS: u32 = 22;
/// One half, so that the final shift rounds.
const HALF: i32 = 1 << (BITS - 1);

/// For every output position of one axis: the first input position and the weights from there on.
struct Taps {
    ranges: Vec<(usize, usize)>,
    weights: Vec<i32>,
    stride: usize,
}

impl Taps {
    /// The taps from `input` positions, of which the first `span` are covered, to `output` positions.
    fn new(input: usize, span: f64, output: usize, filter: Filter) -> Self {
        let scale = span / output as f64;
        let widening = scale.max(1.0);
        let support = filter.support() * widening;
        let stride = support.ceil() as usize * 2 + 1;
        let mut ranges = Vec::with_capacity(output);
        let mut weights = vec![0; output * stride];
        let mut exact = Vec::with_capacity(stride);
        for (o, quantised) in weights.chunks_exact_mut(stride).enumerate() {
            let center = (o as f64 + 0.5) * scale;
            // `as usize` truncates and turns negatives into 0, the two things wanted of the lower end.
            let low = (center - support + 0.5) as usize;
            let high = ((center + support + 0.5) as usize).min(input);
            exact.clear();
            exact.extend((low..high).map(|x| filter.weight((x as f64 - center + 0.5) * (1.0 / widening))));
            let sum: f64 = exact.iter().sum();
            for (quantised, w) in quantised.iter_mut().zip(&exact) {
                let w = if sum == 0.0 { *w } else { w / sum };
                // Half away from zero: the addend carries the sign and the conversion truncates.
                *quantised = (w * f64::from(1u32 << BITS) + 0.5f64.copysign(w)) as i32;
            }
            ranges.push((low, high - low));
        }
        Self { ranges, weights, stride }
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &[i32])> {
        let weights = self.weights.chunks_exact(self.stride);
        self.ranges.iter().zip(weights).map(|(&(first, count), weights)| (first, &weights[..count]))
    }
}

#[inline]
fn to_byte(sum: i32) -> u8 {
    (sum >> BITS).clamp(0, 255) as u8
}

/// Resamples every row of `rect`.
fn horizontal(image: &Image, rect: Rect, taps: &Taps) -> Image {
    let (channels, width) = (image.channels, taps.ranges.len());
    let mut out = Image::black(width, rect.height, channels);
    for (y, out) in out.pixels.chunks_exact_mut(width * channels).enumerate() {
        let row = &image.row(rect.top + y)[rect.left * channels..(rect.left + rect.width) * channels];
        if channels == 3 {
            horizontal_rgb(row, out, taps);
        } else {
            horizontal_any(row, out, taps, channels);
        }
    }
    out
}

fn horizontal_rgb(row: &[u8], out: &mut [u8], taps: &Taps) {
    let (row, out) = (row.as_chunks::<3>().0, out.as_chunks_mut::<3>().0);
    for (out, (first, weights)) in out.iter_mut().zip(taps.iter()) {
        let mut sums = [HALF; 3];
        for (&[r, g, b], &w) in row[first..first + weights.len()].iter().zip(weights) {
            sums[0] += w * i32::from(r);
            sums[1] += w * i32::from(g);
            sums[2] += w * i32::from(b);
        }
        *out = sums.map(to_byte);
    }
}

fn horizontal_any(row: &[u8], out: &mut [u8], taps: &Taps, channels: usize) {
    for (out, (first, weights)) in out.chunks_exact_mut(channels).zip(taps.iter()) {
        for (c, out) in out.iter_mut().enumerate() {
            let column = row[first * channels + c..].iter().step_by(channels);
            *out = to_byte(column.zip(weights).fold(HALF, |sum, (&v, &w)| sum + w * i32::from(v)));
        }
    }
}

/// Resamples every column of `rect`, a whole row at a time.
fn vertical(image: &Image, rect: Rect, taps: &Taps) -> Image {
    let channels = image.channels;
    let columns = rect.left * channels..(rect.left + rect.width) * channels;
    let mut out = Image::black(rect.width, taps.ranges.len(), channels);
    let mut sums = vec![0i32; columns.len()];
    for (out, (first, weights)) in out.pixels.chunks_exact_mut(columns.len()).zip(taps.iter()) {
        sums.fill(HALF);
        let rows = image.pixels[(rect.top + first) * image.stride()..].chunks_exact(image.stride());
        for (row, &w) in rows.zip(weights) {
            for (sum, &v) in sums.iter_mut().zip(&row[columns.clone()]) {
                *sum += w * i32::from(v);
            }
        }
        for (out, &sum) in out.iter_mut().zip(&sums) {
            *out = to_byte(sum);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_channel_count_does_not_matter_to_the_arithmetic() {
        let rgb = Image::from_pixels(23, 17, 3, (0..23 * 17 * 3).map(|i| (i * i * 37 % 251) as u8).collect());
        for size in [(5, 40), (31, 7), (17, 9), (64, 23)] {
            for filter in [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
                let whole = resize(&rgb, size, filter);
                for c in 0..3 {
                    let plane = |image: &Image| image.pixels.iter().skip(c).step_by(3).copied().collect::<Vec<u8>>();
                    let one = Image::from_pixels(23, 17, 1, plane(&rgb));
                    assert_eq!(resize(&one, size, filter).pixels, plane(&whole));
                }
            }
        }
    }

    #[test]
    fn a_crop_is_resized_as_if_it_had_been_cut_out_first() {
        let image = Image::from_pixels(40, 30, 3, (0..3600).map(|i| (i * 7 % 256) as u8).collect());
        let rect = Rect { top: 3, left: 5, height: 20, width: 31 };
        for size in [(20, 31), (20, 9), (7, 31), (50, 12)] {
            let direct = resize_crop(&image, rect, size, Filter::Bicubic);
            assert_eq!(direct, resize(&crop(&image, rect), size, Filter::Bicubic));
        }
    }
}
