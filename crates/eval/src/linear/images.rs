//! A probe on images: the network sees another random view of each in every epoch.

use std::ops::ControlFlow;
use std::sync::Arc;

use data::augment::Filter;
use data::views::{MultiCrop, PerKind, apply};
use data::{BadSample, DecodeLimits, Image, Orientation, ReadError, Reader, Source, Stored};
use random::{Key, Purpose};

use super::stored::order;
use super::{Heads, LinearOptions, LinearProgress, LinearResult, Watch, epoch, result, tell};
use crate::error::EvalError;
use crate::features::{Features, extract};
use crate::labelled::Labelled;
use crate::neighbors::Place;
use crate::network::Network;
use crate::prepare::Preparation;
use crate::reading::ReadOptions;
use crate::subset::Subset;

/// Images whose features are computed before classifiers are trained on them, in batches: the bound on memory.
const CHUNK: usize = 8192;
/// Share of an image that a view shows, at least: that of torchvision's `RandomResizedCrop`.
const SMALLEST_SHARE: f64 = 0.08;

/// The training images of a probe, and how the network sees them.
#[derive(Clone)]
pub struct ProbeImages<'a> {
    /// The frozen network.
    pub network: Network<'a>,
    /// The labelled images.
    pub source: Arc<dyn Source>,
    /// Height and width of a view.
    pub size: (usize, usize),
    /// How they are read.
    pub read: ReadOptions,
}

/// As [`super::probe`], with training features computed anew in every epoch from random views: a crop of 8 to 100 % of the
/// area (bilinear), mirrored every other time. Test features are given, of the usual view of an image, once and for all.
///
/// Returns the images that could not be read, too.
///
/// # Panics
/// When the values, indices and labels of the test features are not equally many rows.
pub fn probe_images<'a>(
    train: &ProbeImages<'_>,
    test: &Features,
    options: &LinearOptions,
    place: impl Into<Place<'a>>,
    watch: Watch<'_>,
) -> Result<(LinearResult, Vec<BadSample>), EvalError> {
    options.check()?;
    let test = Labelled::new(test, "test")?;
    let images = train.source.len();
    let labels: Vec<u32> = (0..images).filter_map(|index| train.source.label(index)).collect();
    let unlabelled = images - labels.len();
    if unlabelled > 0 {
        return Err(EvalError::NoLabels { which: "training", unlabelled, images });
    }
    let classes = labels.iter().map(|&label| label as usize + 1).max().unwrap_or(1).max(test.classes());
    let width = test.features().dim;
    let mut heads = Heads::new(place.into(), (width, classes, options.rates.len()), options.momentum, options.seed)?;
    let (mut epochs, mut skipped) = (Vec::with_capacity(options.epochs), Vec::new());
    for number in 0..options.epochs {
        let (rates, mut losses) = (options.rates_in(number), vec![0.0; options.rates.len()]);
        let (mut done, mut trained) = (0, 0);
        // Whole batches, so that where a chunk ends makes no difference.
        let chunk = (CHUNK / options.batch_size).max(1) * options.batch_size;
        for indices in order(options.seed, number, images).chunks(chunk) {
            let views = Views::new(train, indices, options.seed, number);
            let last = epochs.last();
            let preparation = Preparation::Stretch(train.size);
            let extraction = extract(train.network, &views, &preparation, &train.read, &mut |progress| {
                let (epoch, epochs, total) = (number + 1, options.epochs, images);
                match tell(watch, LinearProgress { epoch, epochs, images: done + progress.done, total, last }) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            })?;
            let features = extraction.features;
            if features.dim != width {
                return Err(EvalError::Width { train: features.dim, test: width });
            }
            let labels: Vec<u32> = features.labels.iter().flatten().copied().collect();
            let batches = features.values.chunks(options.batch_size * width).zip(labels.chunks(options.batch_size));
            for (features, labels) in batches {
                let sums = heads.step(features, labels, &rates)?;
                losses.iter_mut().zip(sums).for_each(|(loss, sum)| *loss += sum);
                trained += labels.len();
            }
            // They are the same in every epoch.
            if number == 0 {
                skipped.extend(extraction.skipped);
            }
            done += indices.len();
        }
        let right = heads.judge(&test.features().values, test.labels())?;
        epochs.push(epoch(number + 1, &losses, trained, &right, test.len()));
    }
    Ok((result(epochs, options)?, skipped))
}

/// Random views of some images of a source, in a given order, as a source of their own.
pub(super) struct Views {
    images: Subset,
    recipe: MultiCrop,
    key: Key,
    orientation: Orientation,
    channels: usize,
}

impl Views {
    pub(super) fn new(train: &ProbeImages<'_>, indices: &[usize], seed: u64, epoch: usize) -> Self {
        let never = PerKind { global1: 0.0, global2: 0.0, local: 0.0 };
        // The first view of the multi-crop recipe with nothing but the crop and the mirror left of it.
        let recipe = MultiCrop {
            global_size: train.size,
            global_scale: (SMALLEST_SHARE, 1.0),
            filter: Filter::Bilinear,
            jitter_probability: 0.0,
            grayscale_probability: 0.0,
            blur_probability: never,
            solarize_probability: never,
            ..MultiCrop::dino()
        };
        Self {
            images: Subset::of(train.source.clone(), indices.to_vec()),
            recipe,
            key: Key::new(seed, Purpose::View).epoch(epoch as u64),
            orientation: train.read.orientation,
            channels: train.network.vit.config().channels,
        }
    }
}

impl Source for Views {
    fn len(&self) -> usize {
        self.images.len()
    }

    fn fetch(&self, index: usize, limits: &DecodeLimits, bytes: &mut Vec<u8>) -> Result<Stored, ReadError> {
        let index = self.images.place(index)?;
        let mut image = Image::black(1, 1, self.channels);
        let mut reader = Reader::new(*limits, self.channels).oriented(self.orientation);
        reader.read(self.images.whole(), index, &mut image)?;
        let params = self.recipe.draw(0, image.height, image.width, self.key.sample(index as u64));
        let view = apply(&image, &params);
        bytes.clear();
        bytes.extend_from_slice(&view.pixels);
        Ok(Stored::Pixels { height: view.height, width: view.width, channels: view.channels })
    }

    fn label(&self, index: usize) -> Option<u32> {
        self.images.label(index)
    }

    fn class_names(&self) -> &[String] {
        self.images.class_names()
    }

    fn name(&self, index: usize) -> String {
        self.images.name(index)
    }

    fn describe(&self) -> String {
        self.images.describe()
    }

    fn fingerprint(&self) -> u64 {
        self.images.fingerprint()
    }
}
