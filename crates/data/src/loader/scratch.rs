//! From an image in its source to its views, in memory that serves every image.

use super::effort::Effort;
use crate::source::{ReadError, Reader, Source};
use crate::views::{ViewMaker, ViewParams, reduction};
use crate::{DecodeLimits, Image, decode::Reduction};
use std::time::{Duration, Instant};

/// How faithfully images are decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decoding {
    /// Every pixel: views equal those of Pillow and torchvision byte for byte.
    #[default]
    Exact,
    /// A JPEG whose views are all much smaller than it is, is decoded smaller: see [`reduction`].
    Fast,
}

impl Decoding {
    /// Their names on the command line and in recipes, in the order of the variants.
    pub const NAMES: [&'static str; 2] = ["exact", "fast"];

    /// The name on the command line and in recipes.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The one of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        [Decoding::Exact, Decoding::Fast].into_iter().find(|decoding| decoding.name() == name)
    }
}

/// What a worker keeps from image to image, so that making views takes no memory once it has seen a large one.
pub(super) struct Workbench {
    reader: Reader,
    /// Which image is in hand.
    pub index: usize,
    image: Image,
    /// What the sides of the image in its file were divided by.
    divisor: usize,
    params: Vec<ViewParams>,
    maker: ViewMaker,
    /// The views of the last image.
    views: Vec<Image>,
    /// What that image has cost.
    pub effort: Effort,
}

impl Workbench {
    pub(super) fn new(channels: usize, views: usize) -> Self {
        let blank = Image::black(1, 1, channels);
        Self {
            reader: Reader::new(DecodeLimits::default(), channels),
            index: 0,
            divisor: 1,
            params: Vec::with_capacity(views),
            maker: ViewMaker::default(),
            views: vec![blank.clone(); views],
            image: blank,
            effort: Effort::default(),
        }
    }

    /// Reads an image, no larger than its views need where `decoding` allows that. `draw` says what view number `i` of an
    /// image of some height and width is.
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
        // Only JPEG tells its size before it is decoded.
        if done.is_ok() && params.is_empty() {
            params.extend((0..views.len()).map(|view| draw(view, image.height, image.width)));
        }
        let fetch = self.reader.fetching();
        self.effort = Effort { fetch, decode: start.elapsed().saturating_sub(fetch), views: Duration::ZERO };
        self.divisor = done?.divisor();
        Ok(())
    }

    /// Makes all views of the image that was read, or cuts them out only.
    pub(super) fn make_views(&mut self, finish: bool) {
        let start = Instant::now();
        let Self { image, divisor, params, maker, views, effort, .. } = self;
        for (params, view) in params.iter().zip(views) {
            maker.cut(image, *divisor, params, view);
            if finish {
                maker.finish(&params.finish, view);
            }
        }
        effort.views = start.elapsed();
    }

    /// The views of the last image and what they are.
    pub(super) fn views(&self) -> impl Iterator<Item = (&Image, &ViewParams)> {
        self.views.iter().zip(&self.params)
    }
}
