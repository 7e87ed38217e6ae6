//! What happens to one view, as plain data, and making it happen.

use super::JitterStrength;
use crate::Image;
use crate::augment::{self, Filter, Rect};
use random::Stream;

/// Everything that happens to one view, in the order of the fields.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewParams {
    /// The part of the image that is shown.
    pub crop: Rect,
    /// (height, width) it is resized to.
    pub size: (usize, usize),
    /// How it is resized.
    pub filter: Filter,
    /// Mirrored?
    pub flip: bool,
    /// Colour jitter.
    pub jitter: Option<Jitter>,
    /// Colours lost?
    pub grayscale: bool,
    /// Standard deviation of the blur in pixels.
    pub blur_sigma: Option<f64>,
    /// Channel values from here on are inverted.
    pub solarize_threshold: Option<u8>,
}

/// One colour jitter: four adjustments and the order they are made in.
#[derive(Clone, Debug, PartialEq)]
pub struct Jitter {
    /// A permutation of the four.
    pub order: [Adjustment; 4],
    /// Factor of brightness.
    pub brightness: f64,
    /// Factor of contrast.
    pub contrast: f64,
    /// Factor of saturation.
    pub saturation: f64,
    /// Turn of hue, as a share of the circle.
    pub hue: f64,
}

/// A step of colour jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adjustment {
    /// See [`augment::brightness()`].
    Brightness,
    /// See [`augment::contrast()`].
    Contrast,
    /// See [`augment::saturation()`].
    Saturation,
    /// See [`augment::hue()`].
    Hue,
}

impl Jitter {
    /// The order first, then all four values.
    pub(super) fn draw(strength: &JitterStrength, stream: &mut Stream) -> Self {
        let mut order = [Adjustment::Brightness, Adjustment::Contrast, Adjustment::Saturation, Adjustment::Hue];
        stream.shuffle(&mut order);
        let mut factor = |x: f64| stream.uniform_in((1.0 - x).max(0.0), 1.0 + x);
        let (brightness, contrast) = (factor(strength.brightness), factor(strength.contrast));
        let saturation = factor(strength.saturation);
        let hue = stream.uniform_in(-strength.hue, strength.hue);
        Self { order, brightness, contrast, saturation, hue }
    }

    /// Makes the four adjustments.
    ///
    /// # Panics
    /// When the image is not RGB.
    pub fn apply(&self, image: &mut Image) {
        for step in self.order {
            match step {
                Adjustment::Brightness => augment::brightness(image, self.brightness),
                Adjustment::Contrast => augment::contrast(image, self.contrast),
                Adjustment::Saturation => augment::saturation(image, self.saturation),
                Adjustment::Hue => augment::hue(image, self.hue),
            }
        }
    }
}

/// Makes a view.
///
/// # Panics
/// When the crop does not lie inside the image, or a colour operation meets an image that is not RGB.
pub fn apply(image: &Image, params: &ViewParams) -> Image {
    let mut view = augment::resize_crop(image, params.crop, params.size, params.filter);
    if params.flip {
        augment::flip_horizontal(&mut view);
    }
    if let Some(jitter) = &params.jitter {
        jitter.apply(&mut view);
    }
    if params.grayscale {
        augment::grayscale(&mut view);
    }
    if let Some(sigma) = params.blur_sigma {
        augment::gaussian_blur(&mut view, sigma);
    }
    if let Some(threshold) = params.solarize_threshold {
        augment::solarize(&mut view, threshold);
    }
    view
}
