//! Batches: the finished one that the loader returns, and the pending one that workers fill.

use super::LoaderConfig;
use super::order::{Place, Shard};
use super::scratch::Scratch;
use crate::Image;
use crate::views::{Finish, ViewKind, ViewParams};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Views of one size for a whole batch.
#[derive(Clone, Debug, PartialEq)]
pub struct CropGroup {
    /// Rows of a view.
    pub height: usize,
    /// Columns of a view.
    pub width: usize,
    /// Bytes of a pixel.
    pub channels: usize,
    /// Views in the group: views per image times batch size.
    pub count: usize,
    /// All views, each height x width x channels, view-major: view `v` of sample `b` is number `v * batch + b`.
    pub pixels: Vec<u8>,
    /// The pixel operations that are left to do on each view, in the same order; empty if the loader has done them.
    pub finish: Vec<Finish>,
}

impl CropGroup {
    /// The bytes of view number `i`.
    pub fn view(&self, i: usize) -> &[u8] {
        let size = self.height * self.width * self.channels;
        &self.pixels[i * size..(i + 1) * size]
    }
}

/// A batch of views.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The epoch it belongs to.
    pub epoch: u64,
    /// Its number within the epoch.
    pub position: usize,
    /// Which image of the source each sample shows (the substitute, where one was needed).
    pub samples: Vec<u64>,
    /// The image whose turn it was: what every draw of this sample is keyed by. Differs from `samples` where an
    /// unreadable image was substituted.
    pub keys: Vec<u64>,
    /// The global views, then the local ones if there are any.
    pub groups: Vec<CropGroup>,
    /// Unreadable images, each reported only in the first batch that it was missing from.
    pub substituted: Vec<BadSample>,
    /// How many images were turned upright, each counted only in the first batch that shows it.
    pub turned: usize,
}

/// An unreadable image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSample {
    /// Its number in the source.
    pub index: u64,
    /// Its name in the source.
    pub name: String,
    /// Why it cannot be read.
    pub reason: String,
}

/// The sizes of a batch: its samples and the views of each.
#[derive(Clone, Debug)]
pub(super) struct BatchShape {
    pub batch_size: usize,
    /// Bytes of a pixel.
    channels: usize,
    /// Whether the loader does all pixel operations, see [`LoaderConfig::finish`].
    finished: bool,
    /// (height, width), views per image.
    groups: Vec<((usize, usize), usize)>,
}

impl BatchShape {
    pub(super) fn new(config: &LoaderConfig) -> Self {
        let LoaderConfig { batch_size, ref views, channels, finish: finished, .. } = *config;
        let mut groups = vec![(views.size(ViewKind::Global1), views.global_crops)];
        if views.local_crops > 0 {
            groups.push((views.size(ViewKind::Local), views.local_crops));
        }
        Self { batch_size, channels, finished, groups }
    }

    /// How many of `count` views are left for the caller to finish: all or none.
    fn unfinished(&self, count: usize) -> usize {
        if self.finished { 0 } else { count }
    }

    /// Allocates zeroed groups; none if there is not enough memory.
    pub(super) fn allocate(&self) -> Option<Vec<CropGroup>> {
        let group = |&((height, width), views): &((usize, usize), usize)| {
            let count = views.checked_mul(self.batch_size)?;
            let bytes = [height, width, self.channels].iter().try_fold(count, |n, &factor| n.checked_mul(factor))?;
            let mut pixels = Vec::new();
            pixels.try_reserve_exact(bytes).ok()?;
            pixels.resize(bytes, 0);
            let mut finish = Vec::new();
            finish.try_reserve_exact(self.unfinished(count)).ok()?;
            finish.resize(self.unfinished(count), Finish::default());
            Some(CropGroup { height, width, channels: self.channels, count, pixels, finish })
        };
        self.groups.iter().map(group).collect()
    }

    /// Whether these groups have this shape and can be reused.
    pub(super) fn fits(&self, groups: &[CropGroup]) -> bool {
        let alike = |(group, &((height, width), views)): (&CropGroup, &((usize, usize), usize))| {
            let count = views * self.batch_size;
            (group.height, group.width, group.channels, group.count) == (height, width, self.channels, count)
                && group.pixels.len() == count * height * width * self.channels
                && group.finish.len() == self.unfinished(count)
        };
        groups.len() == self.groups.len() && groups.iter().zip(&self.groups).all(alike)
    }
}

/// The outcome of one sample.
pub(super) struct Filled {
    /// The image shown; none if no readable one was found.
    pub sample: Option<u64>,
    /// Whether it was turned upright.
    pub turned: bool,
    /// Unreadable images that were skipped before it.
    pub bad: Vec<BadSample>,
}

/// A batch that workers are filling.
pub(super) struct Pending {
    pub place: Place,
    pub order: Arc<Vec<u32>>,
    shard: Shard,
    batch_size: usize,
    repeats: usize,
    done: AtomicUsize,
    content: Mutex<Content>,
}

/// The part of a pending batch that workers write to.
#[derive(Default)]
pub(super) struct Content {
    pub samples: Vec<u64>,
    pub groups: Vec<CropGroup>,
    /// Unreadable images with the sample they were to be, in no particular order.
    pub bad: Vec<(usize, Vec<BadSample>)>,
    /// Images that were turned upright, in no particular order.
    pub turned: Vec<u64>,
    /// Whether some sample found no readable image.
    pub unfilled: bool,
    /// The panic of a worker: the image's name and the message.
    pub panic: Option<(String, String)>,
}

impl Pending {
    pub(super) fn new(place: Place, order: Arc<Vec<u32>>, config: &LoaderConfig, groups: Vec<CropGroup>) -> Self {
        let LoaderConfig { shard, batch_size, ref views, .. } = *config;
        let samples = vec![0; batch_size];
        let content = Content { samples, groups, ..Content::default() };
        Self {
            place,
            order,
            shard,
            batch_size,
            repeats: views.repeats,
            done: AtomicUsize::new(0),
            content: Mutex::new(content),
        }
    }

    /// The index of sample `slot` in the epoch's order.
    pub(super) fn rank(&self, slot: usize) -> usize {
        self.turn(slot) / self.repeats
    }

    /// The first number of the views of sample `slot`, of which each repetition of an image has `count`.
    pub(super) fn first_view(&self, slot: usize, count: usize) -> usize {
        self.turn(slot) % self.repeats * count
    }

    /// Which of the epoch's samples comes at `slot`, repetitions counted.
    fn turn(&self, slot: usize) -> usize {
        self.shard.rank(self.place.position, self.batch_size, slot)
    }

    /// The image whose turn it is in sample `slot`, readable or not: see [`Batch::keys`].
    pub(super) fn key(&self, slot: usize) -> u64 {
        self.order[self.rank(slot)].into()
    }

    /// The keys of all samples.
    pub(super) fn keys(&self) -> Vec<u64> {
        (0..self.batch_size).map(|slot| self.key(slot)).collect()
    }

    pub(super) fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.done.load(Ordering::Acquire) == self.batch_size
    }

    /// Stores the outcome of a sample and its views. True if this completes the batch.
    pub(super) fn put(&self, slot: usize, outcome: Result<Filled, (String, String)>, scratch: &Scratch) -> bool {
        let mut content = self.content();
        match outcome {
            Err(panic) => content.panic = Some(panic),
            Ok(filled) => {
                if !filled.bad.is_empty() {
                    content.bad.push((slot, filled.bad));
                }
                match filled.sample {
                    None => content.unfilled = true,
                    Some(sample) => {
                        content.samples[slot] = sample;
                        if filled.turned {
                            content.turned.push(sample);
                        }
                        content.copy_views(slot, self.batch_size, scratch.views());
                    }
                }
            }
        }
        drop(content);
        self.done.fetch_add(1, Ordering::AcqRel) + 1 == self.batch_size
    }
}

impl Content {
    fn copy_views<'a>(
        &mut self,
        slot: usize,
        batch_size: usize,
        mut views: impl Iterator<Item = (&'a Image, &'a ViewParams)>,
    ) {
        for group in &mut self.groups {
            let size = group.height * group.width * group.channels;
            let places = group.pixels.chunks_exact_mut(size).skip(slot).step_by(batch_size);
            for (number, (place, (view, params))) in places.zip(&mut views).enumerate() {
                place.copy_from_slice(&view.pixels);
                // None where the views are finished.
                if let Some(left) = group.finish.get_mut(number * batch_size + slot) {
                    *left = params.finish;
                }
            }
        }
    }
}
