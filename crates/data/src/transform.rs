//! The preprocessing of evaluation protocols, without randomness.

use crate::Image;
use crate::augment::resize::{Window, resize_window};
use crate::augment::{Filter, center_crop, reduce, resize};

/// Channel means that models trained on ImageNet expect to be subtracted.
pub const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
/// Standard deviations of the channels that models trained on ImageNet expect to be divided by.
pub const IMAGENET_STD: [f32; 3] = [0.229, 0.224, 0.225];

/// Means and standard deviations that normalise each channel: those of ImageNet for colour, their averages for a single
/// channel, and 1/2 and 1/4 for any other number of channels.
///
/// # Panics
/// For no channels or more than [`MAX_CHANNELS`].
pub fn normalization(channels: usize) -> (&'static [f32], &'static [f32]) {
    match channels {
        1 => (&[0.449], &[0.226]),
        3 => (&IMAGENET_MEAN, &IMAGENET_STD),
        n => (&[0.5; MAX_CHANNELS][..n], &[0.25; MAX_CHANNELS][..n]),
    }
}

/// Upper bound on the channels of an image.
pub const MAX_CHANNELS: usize = 64;

/// torchvision's `Resize(resize_short)` then `CenterCrop(crop)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvalTransform {
    /// Length the shorter side is resized to.
    pub resize_short: usize,
    /// (height, width) cut out of the middle; where the image is smaller it gets black borders.
    pub crop: (usize, usize),
    /// How it is resized.
    pub filter: Filter,
}

impl Default for EvalTransform {
    /// Resize 256 bicubic, centre 224: DINO's kNN and linear evaluation.
    fn default() -> Self {
        Self { resize_short: 256, crop: (224, 224), filter: Filter::Bicubic }
    }
}

impl EvalTransform {
    /// Applies the transform.
    ///
    /// # Panics
    /// When one of its sizes is zero.
    pub fn apply(&self, image: &Image) -> Image {
        center_crop(&resize_short_side(image, self.resize_short, self.filter), self.crop)
    }
}

/// Resizes so that the shorter side is `size` and the longer keeps the aspect, truncated (torchvision's `Resize(int)`).
///
/// # Panics
/// When `size` is zero.
fn resize_short_side(image: &Image, size: usize, filter: Filter) -> Image {
    let long = |long: usize, short: usize| (size as u128 * long as u128 / short as u128) as usize;
    let target = if image.width <= image.height {
        (long(image.height, image.width), size)
    } else {
        (size, long(image.width, image.height))
    };
    resize(image, target, filter)
}

/// Pillow's `thumbnail` with Lanczos: the largest image of the same aspect within `size` = (height, width). Never
/// enlarges. As Pillow does, a strong reduction averages whole blocks first.
///
/// # Panics
/// When `size` has a zero.
pub fn thumbnail(image: &Image, size: (usize, usize)) -> Image {
    assert!(size.0 > 0 && size.1 > 0, "an image has no side of zero: {size:?}");
    let Some((height, width)) = thumbnail_size((image.height, image.width), size) else { return image.clone() };
    // The reduction leaves at least twice the final resolution for Lanczos to work with.
    let factor = |have: usize, want: usize| ((have as f64 / want as f64 / 2.0) as usize).max(1);
    let (fy, fx) = (factor(image.height, height), factor(image.width, width));
    if (height, width) == (image.height, image.width) {
        return image.clone();
    }
    if fy == 1 && fx == 1 {
        return resize(image, (height, width), Filter::Lanczos);
    }
    let reduced = reduce(image, (fy, fx));
    // Pillow hands the span on in f32.
    let span = |side: usize, factor: usize| f64::from((side as f64 / factor as f64) as f32);
    let window = Window { top: 0.0, left: 0.0, height: span(image.height, fy), width: span(image.width, fx) };
    resize_window(&reduced, window, (height, width), Filter::Lanczos)
}

/// The size that fits; none where the image already does.
fn thumbnail_size((have_h, have_w): (usize, usize), (height, width): (usize, usize)) -> Option<(usize, usize)> {
    if width >= have_w && height >= have_h {
        return None;
    }
    let aspect = have_w as f64 / have_h as f64;
    // Of the two whole numbers around `side`, the one that changes the aspect less; the smaller on a tie.
    let closest = |side: f64, error: &dyn Fn(f64) -> f64| {
        let best = if error(side.ceil()) < error(side.floor()) { side.ceil() } else { side.floor() };
        (best as usize).max(1)
    };
    Some(if width as f64 / height as f64 >= aspect {
        (height, closest(height as f64 * aspect, &|n| (aspect - n / height as f64).abs()))
    } else {
        let error = |n: f64| if n == 0.0 { 0.0 } else { (aspect - width as f64 / n).abs() };
        (closest(width as f64 / aspect, &error), width)
    })
}

/// `ToTensor` and `Normalize` with the ImageNet statistics: `(v / 255 - mean) / std` in f32, channels outermost.
///
/// # Panics
/// When the image is not RGB.
pub fn normalize_chw(image: &Image) -> Vec<f32> {
    let pixels = crate::augment::color::rgb(image);
    let mut out = Vec::with_capacity(pixels.len() * 3);
    for c in 0..3 {
        // 256 divisions instead of one for every pixel.
        let table: [f32; 256] = std::array::from_fn(|v| (v as f32 / 255.0 - IMAGENET_MEAN[c]) / IMAGENET_STD[c]);
        out.extend(pixels.iter().map(|p| table[usize::from(p[c])]));
    }
    out
}
