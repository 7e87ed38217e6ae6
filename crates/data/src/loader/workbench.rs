//! From an image in its source to its views, in memory that serves every image.

use super::effort::Effort;
use crate::source::{ReadError, Reader, Source};
use crate::views::{ViewMaker, ViewParams, reduction};
use crate::{DecodeLimits, Image};
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

/// What a worker keeps from image to image, so that it takes no memory once it has seen a large one.
pub(super) struct Workbench {
    reader: Reader,
    image: Image,
    /// (height, width) of the image in its file.
    full: (usize, usize),
    params: Vec<ViewParams>,
    maker: ViewMaker,
    /// The views of the last image.
    pub views: Vec<Image>,
    /// What that image has cost.
    pub effort: Effort,
}

impl Workbench {
    pub(super) fn new(channels: usize, views: usize) -> Self {
        let blank = Image::black(1, 1, channels);
        Self {
            reader: Reader::new(DecodeLimits::default(), channels),
            full: (1, 1),
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
        let read = self.read_and_draw(source, index, decoding, draw);
        let fetch = self.reader.fetching();
        self.effort = Effort { fetch, decode: start.elapsed().saturating_sub(fetch), views: Duration::ZERO };
        read
    }

    fn read_and_draw(
        &mut self,
        source: &dyn Source,
        index: usize,
        decoding: Decoding,
        draw: &dyn Fn(usize, usize, usize) -> ViewParams,
    ) -> Result<(), ReadError> {
        let Self { reader, image, full, params, views, .. } = self;
        let mut prepare = |height: usize, width: usize| {
            *full = (height, width);
            params.clear();
            params.extend((0..views.len()).map(|view| draw(view, height, width)));
            reduction(params)
        };
        if decoding == Decoding::Fast {
            let mut known = false;
            let mut reduce = |height, width| {
                known = true;
                prepare(height, width)
            };
            reader.read_reduced(source, index, &mut reduce, image)?;
            if known {
                return Ok(());
            }
        } else {
            reader.read(source, index, image)?;
        }
        _ = prepare(image.height, image.width);
        Ok(())
    }

    /// Makes all views of the image that was read.
    pub(super) fn make_views(&mut self) {
        let start = Instant::now();
        let Self { image, full, params, maker, views, effort, .. } = self;
        for (params, view) in params.iter().zip(views) {
            if *full == (image.height, image.width) {
                maker.make(image, params, view);
            } else {
                maker.make_reduced(image, *full, params, view);
            }
        }
        effort.views = start.elapsed();
    }
}
