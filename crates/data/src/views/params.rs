//! The augmentation of one view: its parameters as plain data, and their application.

use super::JitterStrength;
use crate::Image;
use crate::augment::rand_augment::Operations;
use crate::augment::{self, Blur, Filter, Rect, Resizer, Window};
use crate::decode::Reduction;
use crate::source::RGB;
use random::Stream;

/// The parameters of one view, in the order in which they are applied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ViewParams {
    /// The part of the image that is shown.
    pub crop: Rect,
    /// (height, width) it is resized to.
    pub size: (usize, usize),
    /// How it is resized.
    pub filter: Filter,
    /// Whether it is mirrored.
    pub flip: bool,
    /// Operations of RandAugment.
    pub operations: Operations,
    /// The pixel operations after that.
    pub finish: Finish,
}

/// The pixel operations on a view that has been cropped and resized, in the order of the fields. The default is none.
///
/// They need the view alone, so that a GPU can do them: a quarter of the loader's work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Finish {
    /// Colour jitter.
    pub jitter: Option<Jitter>,
    /// Whether it becomes greyscale.
    pub grayscale: bool,
    /// Standard deviation of the blur in pixels.
    pub blur_sigma: Option<f64>,
    /// Channel values from here on are inverted.
    pub solarize_threshold: Option<u8>,
}

/// One colour jitter: four adjustments and the order they are made in.
#[derive(Clone, Copy, Debug, PartialEq)]
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

    /// Makes the four adjustments, or the two that do not need colours where the image is not RGB.
    pub fn apply(&self, image: &mut Image) {
        for step in self.order {
            match step {
                Adjustment::Brightness => augment::brightness(image, self.brightness),
                Adjustment::Contrast => augment::contrast(image, self.contrast),
                Adjustment::Saturation | Adjustment::Hue if image.channels != RGB => {}
                Adjustment::Saturation => augment::saturation(image, self.saturation),
                Adjustment::Hue => augment::hue(image, self.hue),
            }
        }
    }
}

/// Makes a view.
///
/// # Panics
/// When the crop does not lie inside the image.
pub fn apply(image: &Image, params: &ViewParams) -> Image {
    let mut view = Image::black(1, 1, image.channels);
    ViewMaker::default().make(image, params, &mut view);
    view
}

/// The strongest reduction at which an image may be decoded for these views: every crop keeps at least twice the pixels of
/// its view along both sides, so that resampling still averages.
pub fn reduction(views: &[ViewParams]) -> Reduction {
    const SPARE: usize = 2;
    let allows = |view: &ViewParams, reduction: Reduction| {
        let enough = |have: usize, want: usize| have >= SPARE * want * reduction.divisor();
        enough(view.crop.height, view.size.0) && enough(view.crop.width, view.size.1)
    };
    let all_allow = |reduction: &Reduction| views.iter().all(|view| allows(view, *reduction));
    Reduction::ALL.into_iter().find(all_allow).unwrap_or(Reduction::None)
}

/// Makes views with reused buffers. One for each thread.
#[derive(Default)]
pub struct ViewMaker {
    resizer: Resizer,
    blur: Blur,
}

impl ViewMaker {
    /// Makes a view of `image` in `view`, which is overwritten. Operations on colours alone (saturation, hue, greyscale) are
    /// skipped for images that are not RGB.
    ///
    /// # Panics
    /// When the crop does not lie inside the image.
    pub fn make(&mut self, image: &Image, params: &ViewParams, view: &mut Image) {
        assert!(params.crop.fits(image.height, image.width), "{:?} lies outside {image:?}", params.crop);
        self.make_reduced(image, 1, params, view);
    }

    /// As [`Self::make`], of an image that was decoded with its sides divided by `divisor`. The crop refers to the image in
    /// its file, of which each pixel here stands for a square of that many.
    pub fn make_reduced(&mut self, image: &Image, divisor: usize, params: &ViewParams, view: &mut Image) {
        self.cut(image, divisor, params, view);
        self.finish(&params.finish, view);
    }

    /// The first half of [`Self::make_reduced`]: crop, resize, flip, and the operations of RandAugment, of which some need
    /// more than the pixels of one place.
    pub fn cut(&mut self, image: &Image, divisor: usize, params: &ViewParams, view: &mut Image) {
        let Window { top, left, height, width } = params.crop.into();
        let [top, left, height, width] = [top, left, height, width].map(|side| side / divisor as f64);
        let window = Window { top, left, height, width };
        self.resizer.apply_window(image, &window, params.size, params.filter, params.flip, view);
        params.operations.into_iter().flatten().for_each(|operation| operation.apply(view));
    }

    /// The second half: the pixel operations.
    pub fn finish(&mut self, finish: &Finish, view: &mut Image) {
        if let Some(jitter) = &finish.jitter {
            jitter.apply(view);
        }
        if finish.grayscale && view.channels == RGB {
            augment::grayscale(view);
        }
        if let Some(sigma) = finish.blur_sigma {
            self.blur.apply(view, sigma);
        }
        if let Some(threshold) = finish.solarize_threshold {
            augment::solarize(view, threshold);
        }
    }
}
