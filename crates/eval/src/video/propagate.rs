//! Follows the objects of a sequence's first mask through its frames with nothing but a network's patch features: DINO's
//! protocol.
//!
//! The first frame and the 7 before the target are the context. Soft labels are carried from patch to patch
//! (`affinity`), kept as they are for the frames to come, and only for the output made into labels of pixels (`soft`).

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::sync_channel;
use std::thread;

use data::decode::Decoder;
use data::{DecodeLimits, Image};
use model::{Readout, Tokens};
use rayon::prelude::*;
use tensor::Device;
use tensor::ops::{PixelData, Pixels};

use super::affinity::{Field, Known, Patches, carry};
use super::davis::{Sequence, read_file};
use super::error::VideoError;
use super::frame::{resize_as_opencv, seen_size};
use super::soft::{Upsampled, one_hot};
use super::threads;
use crate::error::EvalError;
use crate::network::Network;
use crate::normalization::Normalization;

/// Frames that go through the network together. Those of a video are large: more would take memory and no less time.
const BATCH: usize = 4;

/// What DINO's script for videos divides channels by: the red one differs from that of ImageNet in the last digit.
const DEVIATION: [f32; 3] = [0.228, 0.224, 0.225];

/// The settings of the protocol; the defaults are DINO's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Propagation {
    /// Frames before the target that the context has beside the first frame.
    pub last_frames: usize,
    /// How far a patch may move, in patches along rows and columns; 0 for any distance.
    pub reach: usize,
    /// How many of the most similar patches of the context are averaged.
    pub top_k: usize,
}

impl Default for Propagation {
    fn default() -> Self {
        Self { last_frames: 7, reach: 12, top_k: 5 }
    }
}

impl Propagation {
    /// Validates the settings.
    pub fn check(&self) -> Result<(), EvalError> {
        let settings = [("last_frames", self.last_frames, 0, 1000), ("top_k", self.top_k, 1, 1000)];
        for (setting, value, least, most) in settings {
            if !(least..=most).contains(&value) {
                let expected = format!("{least} to {most}");
                return Err(EvalError::Setting { setting, value: value.to_string(), expected });
            }
        }
        Ok(())
    }
}

/// Frames as a network sees them, on their way to it.
struct Frames {
    count: usize,
    pixels: Vec<u8>,
}

/// A mask for every frame of a sequence, the first of which is its annotation. `each` is called when the mask of a frame is
/// made, with its number, and may end it. `host` compares patches; frames are read ahead.
pub fn propagate(
    network: Network<'_>,
    sequence: &Sequence,
    settings: &Propagation,
    host: &Device,
    each: &mut dyn FnMut(usize, &Image) -> ControlFlow<()>,
) -> Result<Vec<Image>, EvalError> {
    settings.check()?;
    let config = network.vit.config();
    let first = sequence.truth(0)?;
    let size = (first.height, first.width);
    let shape = || VideoError::Shape { path: sequence.annotation(0), size, patch: config.patch };
    let seen = seen_size(size, config.patch).ok_or_else(shape)?;
    let grid = (seen.0 / config.patch, seen.1 / config.patch);
    let (shares, labels) = one_hot(&first, grid);
    let field = Field { grid, reach: settings.reach, most: settings.top_k };
    let pool = threads(host)?;

    let mut masks = Vec::with_capacity(sequence.frames.len());
    let mut beginning = None;
    let mut before: VecDeque<Known<f32>> = VecDeque::new();
    let mut follow = |patches: Patches<f32>| -> Result<(), EvalError> {
        let Some(start) = &beginning else {
            beginning = Some(Known { patches, labels: shares.clone() });
            masks.push(first.clone());
            return go_on(each(0, &first));
        };
        let context: Vec<&Known<f32>> = std::iter::once(start).chain(&before).collect();
        let (carried, mask) = pool.install(|| {
            let carried = carry(field, &context, &patches, labels);
            let mask = Upsampled::new(&carried, grid, labels, config.patch).labels(size);
            (carried, mask)
        });
        if before.len() == settings.last_frames {
            before.pop_front();
        }
        if settings.last_frames > 0 {
            before.push_back(Known { patches, labels: carried });
        }
        let stop = each(masks.len(), &mask);
        masks.push(mask);
        go_on(stop)
    };
    let total = sequence.frames.len();
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel(1);
        let (pool, channels) = (&pool, config.channels);
        let read = move || {
            for start in (0..total).step_by(BATCH) {
                let range = start..total.min(start + BATCH);
                // Closed: the caller has stopped.
                if sender.send(read_frames(sequence, range, channels, size, seen, pool)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("frames".to_owned()).spawn_scoped(scope, read);
        thread.map_err(|error| EvalError::Thread { reason: error.to_string() })?;
        for frames in receiver {
            for patches in features(network, &frames?, seen, sequence)? {
                follow(patches)?;
            }
        }
        Ok(())
    })
    .map(|()| masks)
}

fn go_on(flow: ControlFlow<()>) -> Result<(), EvalError> {
    if flow.is_break() { Err(EvalError::Stopped) } else { Ok(()) }
}

/// Reads and prepares some frames, each on a thread of the pool.
fn read_frames(
    sequence: &Sequence,
    range: std::ops::Range<usize>,
    channels: usize,
    size: (usize, usize),
    seen: (usize, usize),
    pool: &rayon::ThreadPool,
) -> Result<Frames, VideoError> {
    let read = |frame: usize| -> Result<Image, VideoError> {
        let path = sequence.image(frame)?;
        let bytes = read_file(&path)?;
        let mut image = Image::black(1, 1, channels);
        let decoded = Decoder::new(DecodeLimits::default(), channels).decode(&bytes, &mut image);
        decoded.map_err(|source| VideoError::Frame { path: path.clone(), source })?;
        sequence.check_size(&path, &image, size)?;
        Ok(if size == seen { image } else { resize_as_opencv(&image, seen) })
    };
    let count = range.len();
    let images: Vec<_> = pool.install(|| range.into_par_iter().map(read).collect::<Vec<_>>());
    let mut pixels = Vec::new();
    for image in images {
        pixels.append(&mut image?.pixels);
    }
    Ok(Frames { count, pixels })
}

/// The features of the patches of each frame: after the last norm, without the class token and registers.
fn features(
    network: Network<'_>,
    frames: &Frames,
    (height, width): (usize, usize),
    sequence: &Sequence,
) -> Result<Vec<Patches<f32>>, EvalError> {
    let Network { vit, weights, device, normalization, .. } = network;
    let config = vit.config();
    let usual = Normalization::usual(config.channels);
    let mut normalization = normalization.cloned().unwrap_or_else(|| usual.clone());
    if config.channels == DEVIATION.len() && normalization == usual {
        normalization.deviation = DEVIATION.to_vec();
    }
    let data =
        PixelData::Bytes { pixels: &frames.pixels, mean: &normalization.mean, deviation: &normalization.deviation };
    let images = Pixels { count: frames.count, height, width, channels: config.channels, data };
    let readout = Readout { tokens: Tokens::All, layers: 1, norm: true };
    let read = vit.read(weights, device, &[images], &readout)?;
    let values = read.last().map(|tokens| tokens.to_f32()).unwrap_or_default();
    device.finish()?;
    if !values.iter().all(|value| value.is_finite()) {
        return Err(EvalError::NotFinite { name: sequence.name.clone() });
    }
    let (tokens, leading) = (config.tokens((height, width)), config.leading_tokens());
    let of_frame = |tokens: &[f32]| Patches::new(tokens[leading * config.dim..].to_vec(), config.dim);
    Ok(values.chunks_exact(tokens * config.dim).map(of_frame).collect())
}
