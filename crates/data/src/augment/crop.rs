//! Rectangles: where a random crop falls, and cutting one out.

use crate::Image;
use random::Stream;

/// A rectangle of whole pixels inside an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rect {
    /// First row.
    pub top: usize,
    /// First column.
    pub left: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl Rect {
    /// The whole image.
    pub fn whole(image: &Image) -> Self {
        Self { top: 0, left: 0, height: image.height, width: image.width }
    }

    /// True where the rectangle is not empty and lies inside an image of this size.
    pub fn fits(&self, height: usize, width: usize) -> bool {
        let within = |start: usize, length: usize, side: usize| {
            length > 0 && start.checked_add(length).is_some_and(|end| end <= side)
        };
        within(self.top, self.height, height) && within(self.left, self.width, width)
    }
}

/// Attempts before [`random_resized_crop`] gives up and takes the centre, as in torchvision.
const ATTEMPTS: usize = 10;

/// Draws the rectangle of torchvision's `RandomResizedCrop`: an area in `scale` (a share of the image's area) and an
/// aspect ratio (width to height) log-uniform in `ratio`, anywhere in the image.
///
/// Draw order: area, ratio, top, left. After ten rectangles that do not fit, the largest centred one of a legal ratio.
pub(crate) fn random_resized_crop(
    height: usize,
    width: usize,
    scale: (f64, f64),
    ratio: (f64, f64),
    stream: &mut Stream,
) -> Rect {
    let area = height as f64 * width as f64;
    for _ in 0..ATTEMPTS {
        let target = area * stream.uniform_in(scale.0, scale.1);
        let aspect = stream.uniform_in(ratio.0.ln(), ratio.1.ln()).exp();
        let w = (target * aspect).sqrt().round_ties_even() as usize;
        let h = (target / aspect).sqrt().round_ties_even() as usize;
        if (1..=width).contains(&w) && (1..=height).contains(&h) {
            let top = stream.below((height - h + 1) as u64) as usize;
            let left = stream.below((width - w + 1) as u64) as usize;
            return Rect { top, left, height: h, width: w };
        }
    }
    central_crop(height, width, ratio)
}

/// The centred rectangle that `RandomResizedCrop` falls back to: the whole image, cut down to the nearest legal ratio.
pub fn central_crop(height: usize, width: usize, ratio: (f64, f64)) -> Rect {
    let aspect = width as f64 / height as f64;
    let (h, w) = if aspect < ratio.0 {
        (((width as f64 / ratio.0).round_ties_even() as usize).clamp(1, height), width)
    } else if aspect > ratio.1 {
        (height, ((height as f64 * ratio.1).round_ties_even() as usize).clamp(1, width))
    } else {
        (height, width)
    };
    Rect { top: (height - h) / 2, left: (width - w) / 2, height: h, width: w }
}

/// Cuts `rect` out.
///
/// # Panics
/// When the rectangle does not lie inside the image.
pub fn crop(image: &Image, rect: Rect) -> Image {
    assert!(rect.fits(image.height, image.width), "{rect:?} lies outside {image:?}");
    let mut pixels = Vec::with_capacity(rect.height * rect.width * image.channels);
    for y in rect.top..rect.top + rect.height {
        pixels.extend_from_slice(&image.row(y)[rect.left * image.channels..(rect.left + rect.width) * image.channels]);
    }
    Image::from_pixels(rect.width, rect.height, image.channels, pixels)
}

/// torchvision's `CenterCrop` to `size` = (height, width): black borders where the image is smaller.
///
/// # Panics
/// When `size` has a zero.
pub fn center_crop(image: &Image, size: (usize, usize)) -> Image {
    let (height, width) = size;
    let mut out = Image::black(width, height, image.channels);
    let (source_y, target_y, rows) = center(image.height, height);
    let (source_x, target_x, columns) = center(image.width, width);
    let (stride, channels) = (out.stride(), image.channels);
    for y in 0..rows {
        let source = &image.row(source_y + y)[source_x * channels..(source_x + columns) * channels];
        let start = (target_y + y) * stride + target_x * channels;
        out.pixels[start..start + source.len()].copy_from_slice(source);
    }
    out
}

/// Along one side: where to start reading, where to start writing, and how much to copy.
fn center(have: usize, want: usize) -> (usize, usize, usize) {
    if have >= want {
        (((have - want) as f64 / 2.0).round_ties_even() as usize, 0, want)
    } else {
        (0, (want - have) / 2, have)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::{Key, Purpose};

    const RATIO: (f64, f64) = (3.0 / 4.0, 4.0 / 3.0);

    #[test]
    fn random_crops_fit_and_keep_area_and_ratio_in_their_ranges() {
        let mut stream = Key::new(1, Purpose::View).stream();
        for (height, width) in [(480, 640), (97, 33), (2, 3), (1, 1), (1, 500), (333, 1)] {
            for _ in 0..300 {
                let rect = random_resized_crop(height, width, (0.05, 0.4), RATIO, &mut stream);
                assert!(rect.fits(height, width), "{rect:?} in {height}x{width}");
            }
        }
        let mut shares = Vec::new();
        for _ in 0..2000 {
            let rect = random_resized_crop(1000, 1200, (0.05, 0.4), RATIO, &mut stream);
            let ratio = rect.width as f64 / rect.height as f64;
            assert!((0.74..1.34).contains(&ratio), "{ratio}");
            shares.push((rect.width * rect.height) as f64 / 1.2e6);
        }
        assert!(shares.iter().all(|s| (0.049..0.401).contains(s)));
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        assert!((mean - 0.225).abs() < 0.01, "area is uniform in its range: mean {mean}");
    }

    #[test]
    fn a_whole_image_scale_on_a_long_image_falls_back_to_the_centre() {
        let mut stream = Key::new(1, Purpose::View).stream();
        let rect = random_resized_crop(100, 1000, (1.0, 1.0), RATIO, &mut stream);
        assert_eq!(rect, Rect { top: 0, left: 433, height: 100, width: 133 });
        let rect = random_resized_crop(1000, 100, (1.0, 1.0), RATIO, &mut stream);
        assert_eq!(rect, Rect { top: 433, left: 0, height: 133, width: 100 });
    }

    #[test]
    fn a_rectangle_that_overflows_does_not_fit() {
        assert!(!Rect { top: usize::MAX, left: 0, height: 2, width: 1 }.fits(10, 10));
        assert!(!Rect { top: 0, left: 0, height: 0, width: 1 }.fits(10, 10));
    }
}
