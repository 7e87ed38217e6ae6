//! Features of images of any size and shape.
//!
//! Every image keeps its aspect, so no two need be of one size. All tokens of several images lie in one matrix, which needs no
//! equal sizes either; images are put together up to a number of tokens, which bounds the memory.

use std::ops::{ControlFlow, Range};
use std::sync::mpsc::sync_channel;
use std::thread;

use data::{DecodeLimits, Image, Orientation, Reader, Source};
use model::VitConfig;
use rayon::prelude::*;
use tensor::ops::{PixelData, Pixels};

use super::error::RetrievalError;
use super::images::{Part, prepared};
use super::scales::{Planes, scaled};
use crate::error::EvalError;
use crate::features::Features;
use crate::network::Network;
use crate::normalization::Normalization;
use crate::reading::ReadProgress;
use crate::spread::spread;

/// The scales of the protocol: 1, 1/sqrt 2 and 1/2.
const SCALES: [f64; 3] = [1.0, std::f64::consts::FRAC_1_SQRT_2, 0.5];
/// Tokens that go through the network at once, unless one image has more: at 384 columns half a GiB.
const TOKENS: usize = 16_384;
/// Images that are read, and handed to a device, at once.
pub const READ: usize = 16;

/// What a network sees of the images of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchOptions {
    /// The most pixels of a side. Larger images are reduced, smaller ones stay.
    pub side: usize,
    /// Whether features at three scales are averaged.
    pub is_multi_scale: bool,
    /// Whether photographs are turned upright.
    pub orientation: Orientation,
    /// Threads that read.
    pub workers: usize,
}

/// Features of a benchmark's images.
#[derive(Debug)]
pub struct Described {
    /// One for each image, in their order.
    pub features: Features,
    /// Images that were turned upright.
    pub turned: usize,
}

/// Features of all images of a source, each seen as a whole or in the given `parts`, one for each image.
///
/// The feature is the class token after the last norm. At several scales it is the mean of theirs, of unit length.
/// An image that cannot be used is an error: a score without it would not be the benchmark's. `progress` is called after
/// every few images and may end the pass.
///
/// # Panics
/// When there are parts, but not one for each image.
pub fn describe_images(
    network: Network<'_>,
    source: &dyn Source,
    parts: Option<&[Option<Part>]>,
    options: &SearchOptions,
    progress: &mut dyn FnMut(ReadProgress) -> ControlFlow<()>,
) -> Result<Described, EvalError> {
    check(options)?;
    assert!(parts.is_none_or(|parts| parts.len() == source.len()), "a part for each image");
    let config = network.vit.config();
    let normalization = network.normalization_or_usual();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.workers).build();
    let pool = pool.map_err(|error| EvalError::Thread { reason: error.to_string() })?;
    let total = source.len();
    let mut features = Features { dim: config.dim, ..Default::default() };
    let mut turned = 0;
    let compute = |number, piece: &Vec<Seen>| compute(network.on(number), source, piece);
    let take = |piece: Vec<Seen>, rows: Vec<Vec<f32>>| {
        turned += piece.iter().filter(|image| image.is_turned).count();
        features.values.extend(rows.into_iter().flatten());
        features.indices.extend(piece.iter().map(|image| image.index));
        features.labels.resize(features.indices.len(), None);
        Ok(())
    };
    let feed = |hand: &mut dyn FnMut(Vec<Seen>) -> Result<(), EvalError>| {
        thread::scope(|scope| {
            // One piece waits, one is being read, one is being computed on: the bound on memory, for one device.
            let (sender, receiver) = sync_channel(1);
            let read = move || {
                for start in (0..total).step_by(READ) {
                    let range = start..total.min(start + READ);
                    let piece = pool.install(|| read_piece(source, range, parts, options, config, &normalization));
                    let is_last = piece.is_err();
                    // Closed: the caller has stopped.
                    if sender.send(piece).is_err() || is_last {
                        return;
                    }
                }
            };
            let reader = thread::Builder::new().name("read".to_owned()).spawn_scoped(scope, read);
            reader.map_err(|error| EvalError::Thread { reason: error.to_string() })?;
            let mut done = 0;
            for piece in receiver {
                let piece = piece?;
                done += piece.len();
                hand(piece)?;
                if progress(ReadProgress { done, total, skipped: 0 }).is_break() {
                    return Err(EvalError::Stopped);
                }
            }
            Ok(())
        })
    };
    spread(network.devices(), compute, take, feed)?;
    Ok(Described { features, turned })
}

fn check(options: &SearchOptions) -> Result<(), EvalError> {
    for (setting, value, most) in [("image size", options.side, 8192), ("workers", options.workers, 1024)] {
        if !(1..=most).contains(&value) {
            return Err(EvalError::Setting { setting, value: value.to_string(), expected: format!("1 to {most}") });
        }
    }
    Ok(())
}

/// An image at all scales.
struct Seen {
    index: usize,
    image: Image,
    smaller: Vec<Planes>,
    mean: Vec<f32>,
    deviation: Vec<f32>,
    tokens: usize,
    is_turned: bool,
}

impl Seen {
    /// What goes into the network.
    fn pixels(&self) -> impl Iterator<Item = Pixels<'_>> {
        let Image { height, width, channels, .. } = self.image;
        let data = PixelData::Bytes { pixels: &self.image.pixels, mean: &self.mean, deviation: &self.deviation };
        let whole = Pixels { count: 1, height, width, channels, data };
        std::iter::once(whole).chain(self.smaller.iter().map(move |planes| Pixels {
            count: 1,
            height: planes.height,
            width: planes.width,
            channels,
            data: PixelData::Values(&planes.values),
        }))
    }
}

/// Reads and prepares some images, several at once.
fn read_piece(
    source: &dyn Source,
    range: Range<usize>,
    parts: Option<&[Option<Part>]>,
    options: &SearchOptions,
    config: &VitConfig,
    normalization: &Normalization,
) -> Result<Vec<Seen>, EvalError> {
    let channels = config.channels;
    let reader = || Reader::new(DecodeLimits::default(), channels).oriented(options.orientation);
    let read = |reader: &mut Reader, index: usize| {
        let mut image = Image::black(1, 1, channels);
        reader.read(source, index, &mut image).map_err(|error| error.reason())?;
        let part = parts.and_then(|parts| parts[index]);
        if part.is_some() && reader.turned() {
            return Err("it is turned upright, and the ground truth's part is of the image as stored".to_owned());
        }
        let image = prepared(&image, part, options.side)?;
        let scales = if options.is_multi_scale { &SCALES[1..] } else { &[] };
        let smaller: Option<Vec<Planes>> = scales.iter().map(|&scale| scaled(&image, scale, normalization)).collect();
        let least = smaller.iter().flatten().map(|planes| planes.height.min(planes.width)).min();
        let least = least.unwrap_or(image.height.min(image.width));
        let Some(smaller) = smaller.filter(|_| least >= config.patch) else {
            let Image { width, height, .. } = image;
            return Err(format!("at {width} x {height} pixels it has no whole patch at every scale"));
        };
        let tokens = config.tokens((image.height, image.width))
            + smaller.iter().map(|planes| config.tokens((planes.height, planes.width))).sum::<usize>();
        let (mean, deviation) = (normalization.mean.clone(), normalization.deviation.clone());
        Ok(Seen { index, image, smaller, mean, deviation, tokens, is_turned: reader.turned() })
    };
    let named = |reader: &mut Reader, index: usize| {
        read(reader, index)
            .map_err(|reason| EvalError::from(RetrievalError::Image { name: source.name(index), reason }))
    };
    range.into_par_iter().map_init(reader, named).collect()
}

/// The feature of each image, as many at once as there is room for.
fn compute(network: Network<'_>, source: &dyn Source, images: &[Seen]) -> Result<Vec<Vec<f32>>, EvalError> {
    let (mut rest, mut features) = (images, Vec::with_capacity(images.len()));
    while !rest.is_empty() {
        let mut tokens = 0;
        let fits = |image: &&Seen| {
            tokens += image.tokens;
            tokens <= TOKENS
        };
        let (now, later) = rest.split_at(rest.iter().take_while(fits).count().max(1));
        let pixels: Vec<Pixels<'_>> = now.iter().flat_map(Seen::pixels).collect();
        let values = network.vit.features(network.weights, network.device, &pixels)?.to_f32();
        network.device.finish()?;
        let mut rows = values.chunks_exact(network.vit.config().dim);
        for image in now {
            let rows: Vec<&[f32]> = rows.by_ref().take(1 + image.smaller.len()).collect();
            let feature = together(&rows);
            if !feature.iter().all(|x| x.is_finite()) {
                return Err(EvalError::NotFinite { name: source.name(image.index) });
            }
            features.push(feature);
        }
        rest = later;
    }
    Ok(features)
}

/// The mean of the features at all scales, of unit length; a single one as it is.
fn together(rows: &[&[f32]]) -> Vec<f32> {
    let [first, rest @ ..] = rows else { return Vec::new() };
    if rest.is_empty() {
        return first.to_vec();
    }
    let mean = |column: usize| rows.iter().map(|row| f64::from(row[column])).sum::<f64>() / rows.len() as f64;
    let mean: Vec<f64> = (0..first.len()).map(mean).collect();
    let norm = mean.iter().map(|x| x * x).sum::<f64>().sqrt();
    mean.iter().map(|x| (x / norm) as f32).collect()
}
