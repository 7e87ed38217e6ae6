//! Batches of views, prepared ahead of time by threads.
//!
//! Order and content of every batch are a function of (seed, epoch, position): not of the number of workers, not of
//! where a run was interrupted, not of which thread was faster. Memory is bounded by `prefetch` batches and one image for
//! each worker.
//!
//! An unreadable image does not end the run: the next readable one in the epoch's order is substituted, and the batch
//! reports it. More than [`LoaderConfig::max_bad_share`] of them are an error.

mod batch;
mod order;
mod scratch;
mod timing;
mod worker;

pub use batch::{BadSample, Batch, CropGroup};
pub use order::{Shard, batches_per_epoch, epoch_order, repetition};
pub use scratch::Decoding;

use crate::decode::Orientation;
use crate::source::Source;
use crate::transform::MAX_CHANNELS;
use crate::views::{MultiCrop, ViewsError};
use batch::{Content, Pending};
use order::{Place, Schedule};
use std::collections::HashSet;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;
use worker::Shared;

/// Settings of a [`Loader`].
#[derive(Clone, Debug, PartialEq)]
pub struct LoaderConfig {
    /// Samples of a batch.
    pub batch_size: usize,
    /// Which part of every step's samples this loader prepares.
    pub shard: Shard,
    /// The run's seed: it decides the order of every epoch and every view.
    pub seed: u64,
    /// Threads that read and augment.
    pub workers: usize,
    /// Batches prepared ahead of the caller. Bounds the memory.
    pub prefetch: usize,
    /// The multi-crop settings.
    pub views: MultiCrop,
    /// Channels that images are converted to: 3 for colour, 1 for grey.
    pub channels: usize,
    /// Whether JPEGs may be decoded at a reduced size.
    pub decoding: Decoding,
    /// Whether photographs are turned upright.
    pub orientation: Orientation,
    /// Whether the loader does the pixel operations (colours, blur, solarisation). If not, batches carry their parameters:
    /// see [`CropGroup::finish`].
    pub finish: bool,
    /// Share of the source's images that may be unreadable; more are an error.
    pub max_bad_share: f64,
}

impl LoaderConfig {
    /// Bytes of the views of one sample.
    pub fn sample_bytes(&self) -> u64 {
        let of = |(height, width): (usize, usize), views: usize| {
            [height, width, self.channels, views].iter().fold(1u64, |bytes, &n| bytes.saturating_mul(n as u64))
        };
        let views = &self.views;
        of(views.global_size, views.global_crops).saturating_add(of(views.local_size, views.local_crops))
    }

    /// About how many bytes the loader takes at once: the batches prepared ahead and the one in use, and the views that
    /// workers make. Images as they are read come to that.
    pub fn memory(&self) -> u64 {
        let samples = (self.prefetch as u64 + 1).saturating_mul(self.batch_size as u64) + self.workers as u64;
        samples.saturating_mul(self.sample_bytes())
    }
}

impl Default for LoaderConfig {
    fn default() -> Self {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            batch_size: 64,
            shard: Shard::default(),
            seed: 0,
            workers,
            prefetch: 3,
            views: MultiCrop::default(),
            channels: 3,
            decoding: Decoding::Exact,
            orientation: Orientation::Upright,
            finish: true,
            max_bad_share: 0.05,
        }
    }
}

/// Why there is no (further) batch.
#[derive(Debug, Error)]
pub enum LoaderError {
    /// Fewer images than one batch.
    #[error(
        "a batch of {batch_size} does not fit into {images} images ({source_name}): use a batch of at most {images}"
    )]
    BatchTooLarge {
        /// Samples of a batch.
        batch_size: usize,
        /// Images there are.
        images: usize,
        /// The source's description.
        source_name: String,
    },
    /// A setting out of its range.
    #[error("loader setting {setting} = {value}: expected {expected}")]
    Setting {
        /// The field of [`LoaderConfig`], or a parameter of [`Loader::start`].
        setting: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A multi-crop setting out of its range.
    #[error("view setting {0}")]
    Views(#[from] ViewsError),
    /// More images than 32 bits can number.
    #[error("{images} images are more than one run can order ({})", u32::MAX)]
    TooManyImages {
        /// Images there are.
        images: usize,
    },
    /// Too large a share of the images cannot be read.
    #[error(
        "at least {count} of {images} images cannot be read, more than the allowed share of {allowed_share} (`max_bad_share`). The \
         first:{}\n\
         When they can be read again as they were, the same command goes on; otherwise begin a run on data without them",
        list(first)
    )]
    TooManyBad {
        /// Unreadable images so far.
        count: usize,
        /// Images there are.
        images: usize,
        /// [`LoaderConfig::max_bad_share`].
        allowed_share: f64,
        /// The first ten, in the order they came up.
        first: Vec<BadSample>,
    },
    /// Not one image can be read.
    #[error("none of the {images} images can be read. The first:{}", list(first))]
    NothingReadable {
        /// Images there are.
        images: usize,
        /// The first ten, in the order they came up.
        first: Vec<BadSample>,
    },
    /// A worker panicked: a defect of this program.
    #[error(
        "a data worker failed on {name}: {message}. This is a defect of the program; without this image it will go on"
    )]
    WorkerPanicked {
        /// The image it was reading.
        name: String,
        /// The panic's message.
        message: String,
    },
    /// A thread could not be started.
    #[error("data worker {worker} could not be started: {source}. Try fewer workers")]
    Thread {
        /// The number of the worker.
        worker: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// Allocating a batch failed.
    #[error(
        "there is no memory for another batch of {batch_size}. Try a smaller batch, less prefetch or smaller views"
    )]
    OutOfMemory {
        /// Samples of a batch.
        batch_size: usize,
    },
    /// [`Loader::next`] was called again after an error.
    #[error("the loader has stopped after an earlier error")]
    Stopped,
}

fn list(samples: &[BadSample]) -> String {
    samples.iter().map(|s| format!("\n  {}: {}", s.name, s.reason)).collect()
}

/// Unreadable images that an error lists.
const LISTED: usize = 10;

/// Loads the batches of a range of epochs.
pub struct Loader {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    batches_per_epoch: usize,
    /// Unreadable images that have been reported, in that order.
    named: Vec<BadSample>,
    named_indices: HashSet<u64>,
    /// Images that were turned upright and counted.
    turned: HashSet<u64>,
    waited: Duration,
    failed: bool,
}

impl Loader {
    /// Starts to load from batch `start_position` of `start_epoch` to the end of the epoch before `end_epoch`.
    pub fn start(
        source: Arc<dyn Source>,
        cfg: LoaderConfig,
        start_epoch: u64,
        start_position: usize,
        end_epoch: u64,
    ) -> Result<Loader, LoaderError> {
        let setting = |setting, value: String, expected| Err(LoaderError::Setting { setting, value, expected });
        let images = source.len();
        let len = u32::try_from(images).map_err(|_| LoaderError::TooManyImages { images })?;
        if cfg.batch_size == 0 {
            return setting("batch_size", "0".to_owned(), "at least 1");
        }
        if !(1..=MAX_WORKERS).contains(&cfg.workers) {
            return setting("workers", cfg.workers.to_string(), "1 to 1024");
        }
        if cfg.prefetch == 0 {
            return setting("prefetch", "0".to_owned(), "at least 1");
        }
        if !(0.0..=1.0).contains(&cfg.max_bad_share) {
            return setting("max_bad_share", cfg.max_bad_share.to_string(), "a share from 0 to 1");
        }
        if !(1..=MAX_CHANNELS).contains(&cfg.channels) {
            return setting("channels", cfg.channels.to_string(), "1 to 64");
        }
        cfg.views.check()?;
        if cfg.shard.of == 0 || cfg.shard.number >= cfg.shard.of {
            return setting("shard", format!("{:?}", cfg.shard), "a number below how many there are");
        }
        let together = cfg.batch_size.saturating_mul(cfg.shard.of);
        if together > images {
            let source_name = source.describe();
            return Err(LoaderError::BatchTooLarge { batch_size: together, images, source_name });
        }
        let batches_per_epoch = batches_per_epoch(images, together);
        if start_position > batches_per_epoch {
            return setting("start_position", start_position.to_string(), "at most the number of batches of an epoch");
        }
        let start = Place { epoch: start_epoch, position: start_position };
        let allowed_bad = allowed_bad(cfg.max_bad_share, images);
        let schedule = Schedule::new(cfg.seed, len, batches_per_epoch, start, end_epoch);
        let workers = cfg.workers;
        let shared = Arc::new(Shared::new(source, cfg, allowed_bad, schedule));
        let mut loader = Loader {
            shared,
            threads: Vec::with_capacity(workers),
            batches_per_epoch,
            named: Vec::new(),
            named_indices: HashSet::new(),
            turned: HashSet::new(),
            waited: Duration::ZERO,
            failed: false,
        };
        for worker in 0..workers {
            let shared = Arc::clone(&loader.shared);
            let thread = std::thread::Builder::new().name(format!("data-{worker}")).spawn(move || shared.run());
            // Dropping the loader ends the threads that did start.
            loader.threads.push(thread.map_err(|source| LoaderError::Thread { worker, source })?);
        }
        Ok(loader)
    }

    /// Whole batches in an epoch.
    pub fn batches_per_epoch(&self) -> usize {
        self.batches_per_epoch
    }

    /// The next batch; none after the last. Not an iterator, because an error must be able to end a run.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Batch>, LoaderError> {
        if self.failed {
            return Err(LoaderError::Stopped);
        }
        let result = self.wait().and_then(|pending| match pending {
            None => Ok(None),
            Some((pending, content)) => self.finish(&pending, content).map(Some),
        });
        if result.is_err() {
            self.failed = true;
            self.shared.stop();
        }
        result
    }

    /// Time that callers of [`Self::next`] have spent waiting for data.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Advice for a run that waits for data: the slowest stage, and what makes it faster.
    pub fn advice(&self) -> String {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.shared.timings.sum().advice(self.shared.config.decoding, self.threads.len(), cores)
    }

    /// Takes a batch back to reuse its buffers.
    pub fn recycle(&mut self, batch: Batch) {
        if self.shared.shape.fits(&batch.groups) {
            let mut state = self.shared.state();
            if state.spare.len() < self.shared.config.prefetch {
                state.spare.push(batch.groups);
            }
        }
    }

    /// Waits for the oldest batch to be complete and takes it out of the queue.
    fn wait(&mut self) -> Result<Option<(Arc<Pending>, Content)>, LoaderError> {
        let started = Instant::now();
        let mut state = self.shared.state();
        let pending = loop {
            match state.pending.front() {
                Some(oldest) if oldest.is_complete() => break state.pending.pop_front(),
                None if state.exhausted => break None,
                _ if state.out_of_memory => {
                    return Err(LoaderError::OutOfMemory { batch_size: self.shared.shape.batch_size });
                }
                _ => state = self.shared.ready.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(state);
        self.shared.work.notify_all();
        self.waited += started.elapsed();
        Ok(pending.map(|pending| {
            let empty = Content::default();
            let content = std::mem::replace(&mut *pending.content(), empty);
            (pending, content)
        }))
    }

    /// Reports new unreadable images, and fails if there are too many.
    fn finish(&mut self, pending: &Pending, mut content: Content) -> Result<Batch, LoaderError> {
        if let Some((name, message)) = content.panic {
            return Err(LoaderError::WorkerPanicked { name, message });
        }
        content.bad.sort_unstable_by_key(|(slot, _)| *slot);
        let mut substituted = Vec::new();
        for sample in std::mem::take(&mut content.bad).into_iter().flat_map(|(_, bad)| bad) {
            if self.named_indices.insert(sample.index) {
                self.named.push(sample.clone());
                substituted.push(sample);
            }
        }
        let images = self.shared.source.len();
        let first = || self.named.iter().take(LISTED).cloned().collect();
        if self.named.len() > self.shared.allowed_bad {
            let (count, allowed_share) = (self.named.len(), self.shared.config.max_bad_share);
            return Err(LoaderError::TooManyBad { count, images, allowed_share, first: first() });
        }
        if content.unfilled {
            return Err(LoaderError::NothingReadable { images, first: first() });
        }
        let (Place { epoch, position }, keys) = (pending.place, pending.keys());
        let Content { samples, groups, turned, .. } = content;
        let turned = turned.into_iter().filter(|&sample| self.turned.insert(sample)).count();
        Ok(Batch { epoch, position, samples, keys, groups, substituted, turned })
    }
}

/// Images that may be unreadable: a share of zero means none, any other at least one.
fn allowed_bad(share: f64, images: usize) -> usize {
    if share == 0.0 { 0 } else { ((share * images as f64) as usize).max(1) }
}

/// Upper bound on the threads of a loader.
const MAX_WORKERS: usize = 1024;

impl Drop for Loader {
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            // Workers catch their own panics, so this is never an error.
            _ = thread.join();
        }
    }
}
