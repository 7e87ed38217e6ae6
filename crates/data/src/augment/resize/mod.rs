//! Pillow's separable resampling: a filter widened by the reduction factor, in 22-bit fixed point.
//!
//! One axis first, rounded to bytes, then the other; an axis that keeps its length is left alone. The filter never sees
//! pixels outside the cropped rectangle: at its edges the kernel is cut off and renormalised.

mod passes;
#[cfg(target_arch = "x86_64")]
mod rgb_avx2;
mod taps;

use super::crop::Rect;
use super::flip::flip_horizontal;
use crate::Image;
use passes::{Region, horizontal_plain, vertical};
use taps::{Axis, Taps};

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
    assert!(rect.fits(image.height, image.width), "{rect:?} lies outside {image:?}");
    resize_window(image, rect.into(), size, filter)
}

/// As [`resize_crop`], from a window that need not consist of whole pixels.
pub(crate) fn resize_window(image: &Image, window: Window, size: (usize, usize), filter: Filter) -> Image {
    let mut out = Image::black(1, 1, image.channels);
    Resizer::default().apply_window(image, &window, size, filter, false, &mut out);
    out
}

/// A part of an image that need not consist of whole pixels: what a rectangle becomes when the image is made smaller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Window {
    /// Upper edge.
    pub top: f64,
    /// Left edge.
    pub left: f64,
    /// From the upper edge to the lower.
    pub height: f64,
    /// From the left edge to the right.
    pub width: f64,
}

impl From<Rect> for Window {
    fn from(rect: Rect) -> Self {
        let [top, left, height, width] = [rect.top, rect.left, rect.height, rect.width].map(|v| v as f64);
        Self { top, left, height, width }
    }
}

impl Window {
    /// The whole pixels that it touches, within an image of this size.
    fn pixels(&self, height: usize, width: usize) -> Rect {
        let along = |start: f64, length: f64, side: usize| {
            let first = (start as usize).min(side - 1);
            let end = ((start + length).ceil() as usize).clamp(first + 1, side);
            (first, end - first)
        };
        let ((top, height), (left, width)) =
            (along(self.top, self.height, height), along(self.left, self.width, width));
        Rect { top, left, height, width }
    }
}

/// Resizes image after image in the same memory.
#[derive(Default)]
pub(crate) struct Resizer {
    columns: Taps,
    rows: Taps,
    /// The image after the first axis.
    between: Vec<u8>,
    #[cfg(target_arch = "x86_64")]
    rgb: rgb_avx2::RgbRows,
}

impl Resizer {
    /// Makes `out` a part of `image` at another size, mirrored after that or not. Its old content is lost.
    ///
    /// # Panics
    /// When the window does not begin inside the image, or a side is zero.
    pub(crate) fn apply_window(
        &mut self,
        image: &Image,
        window: &Window,
        (height, width): (usize, usize),
        filter: Filter,
        mirrored: bool,
        out: &mut Image,
    ) {
        assert!(height > 0 && width > 0, "an image has no side of zero: {height}x{width}");
        assert!(window.height > 0.0 && window.width > 0.0 && window.top >= 0.0 && window.left >= 0.0, "{window:?}");
        let rect = window.pixels(image.height, image.width);
        let channels = image.channels;
        out.reshape(width, height, channels);
        let stride = image.stride();
        let pixels = &image.pixels[rect.top * stride + rect.left * channels..];
        let region = Region { pixels, stride, width: rect.width, channels };
        let columns = Axis {
            input: rect.width,
            start: window.left - rect.left as f64,
            span: window.width,
            output: width,
            mirrored,
        };
        let rows = Axis {
            input: rect.height,
            start: window.top - rect.top as f64,
            span: window.height,
            output: height,
            mirrored: false,
        };
        let (wider, taller) = (!columns.is_identity(), !rows.is_identity());
        if wider {
            self.columns.fill(columns, filter);
        }
        if taller {
            self.rows.fill(rows, filter);
        }
        let whole = |pixels, width| Region { pixels, stride: width * channels, width, channels };
        match (wider, taller) {
            (false, false) => (0..height).for_each(|y| {
                out.pixels[y * width * channels..(y + 1) * width * channels].copy_from_slice(region.row(y));
            }),
            (false, true) => vertical(region, &self.rows, &mut out.pixels),
            (true, false) => self.horizontal(region, &mut out.pixels),
            (true, true) if rows_first(rect, (height, width)) => {
                let mut middle = std::mem::take(&mut self.between);
                middle.resize(rect.width * height * channels, 0);
                vertical(region, &self.rows, &mut middle);
                self.horizontal(whole(&middle, rect.width), &mut out.pixels);
                self.between = middle;
            }
            (true, true) => {
                let mut middle = std::mem::take(&mut self.between);
                middle.resize(width * rect.height * channels, 0);
                self.horizontal(region, &mut middle);
                vertical(whole(&middle, width), &self.rows, &mut out.pixels);
                self.between = middle;
            }
        }
        if mirrored && !wider {
            flip_horizontal(out);
        }
    }

    fn horizontal(&mut self, region: Region<'_>, out: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if self.rgb.horizontal(region, &self.columns, out) {
            return;
        }
        horizontal_plain(region, &self.columns, out);
    }
}

/// Pillow 13 reduces the number of rows first where it falls by more than twice as much as that of columns. Earlier
/// versions never do. The two orders round differently in a few bytes.
fn rows_first(rect: Rect, (height, width): (usize, usize)) -> bool {
    let fall = |from: usize, to: usize| from as i64 - to as i64;
    height < rect.height && fall(rect.height, height) > 2 * fall(rect.width, width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::augment::crop;

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
