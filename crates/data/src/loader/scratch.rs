//! One worker's buffers, and the way of an image through them: fetch, decode, crop, finish.

use super::timing::Timing;
use crate::source::{ReadError, Reader, Source};
use crate::views::{ViewMaker, ViewParams, reduction};
use crate::{DecodeLimits, Image, Orientation, decode::Reduction};
use std::time::{Duration, Instant};

/// Whether JPEGs may be decoded at a reduced size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decoding {
    /// At full size: views equal those of Pillow and torchvision byte for byte.
    #[default]
    Exact,
    /// At a reduced size, if all views are much smaller than the image: see [`reduction`].
    Fast,
}

impl Decoding {
    /// Their names on the command line and in recipes, in the order of the variants.
    pub const NAMES: [&'static str; 2] = ["exact", "fast"];

    /// The name on the command line and in recipes.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The variant of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        [Decoding::Exact, Decoding::Fast].into_iter().find(|decoding| decoding.name() == name)
    }
}

/// A worker's buffers, reused from image to image: views are made without allocation once a large image has been seen.
pub(super) struct Scratch {
    reader: Reader,
    /// The current image's index in the source.
    pub index: usize,
    image: Image,
    /// The factor by which decoding has reduced the sides of the image.
    divisor: usize,
    params: Vec<ViewParams>,
    maker: ViewMaker,
    /// The views of the current image.
    views: Vec<Image>,
    /// The time that the current image took.
    pub timing: Timing,
}

impl Scratch {
    pub(super) fn new(channels: usize, views: usize, orientation: Orientation) -> Self {
        let blank = Image::black(1, 1, channels);
        Self {
            reader: Reader::new(DecodeLimits::default(), channels).oriented(orientation),
            index: 0,
            divisor: 1,
            params: Vec::with_capacity(views),
            maker: ViewMaker::default(),
            views: vec![blank.clone(); views],
            image: blank,
            timing: Timing::default(),
        }
    }

    /// Reads an image, at a reduced size if `decoding` allows it. `draw(i, height, width)` gives the parameters of view `i` of
    /// an image of this size.
    pub(super) fn read(
        &mut self,
        source: &dyn Source,
        index: usize,
        decoding: Decoding,
        draw: &dyn Fn(usize, usize, usize) -> ViewParams,
    ) -> Result<(), ReadError> {
        let start = Instant::now();
        self.index = index;
        let Self { reader, image, params, views, .. } = self;
        params.clear();
        let mut prepare = |height: usize, width: usize| {
            params.extend((0..views.len()).map(|view| draw(view, height, width)));
            if decoding == Decoding::Fast { reduction(params) } else { Reduction::None }
        };
        let done = reader.read_reduced(source, index, &mut prepare, image);
        // Only JPEG calls `prepare`, which draws the parameters before decoding.
        if done.is_ok() && params.is_empty() {
            params.extend((0..views.len()).map(|view| draw(view, image.height, image.width)));
        }
        let fetch = self.reader.fetch_time();
        self.timing = Timing { fetch, decode: start.elapsed().saturating_sub(fetch), views: Duration::ZERO };
        self.divisor = done?.divisor();
        Ok(())
    }

    /// Whether the image that was read was turned upright.
    pub(super) fn turned(&self) -> bool {
        self.reader.turned()
    }

    /// Makes all views of the image that was read; without `finish`, crops and resizes only.
    pub(super) fn make_views(&mut self, finish: bool) {
        let start = Instant::now();
        let Self { image, divisor, params, maker, views, timing, .. } = self;
        for (params, view) in params.iter().zip(views) {
            maker.cut(image, *divisor, params, view);
            if finish {
                maker.finish(&params.finish, view);
            }
        }
        timing.views = start.elapsed();
    }

    /// The views of the current image with their parameters.
    pub(super) fn views(&self) -> impl Iterator<Item = (&Image, &ViewParams)> {
        self.views.iter().zip(&self.params)
    }
}
