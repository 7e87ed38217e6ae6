//! Prepared images of a source in batches: threads read and prepare the next batch while the caller computes on this one.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::thread;

use data::transform::MAX_CHANNELS;
use data::{BadSample, DecodeLimits, Image, Orientation, Reader, Source};

use crate::error::EvalError;
use crate::prepare::Preparation;

/// Unusable images that an error names.
const LISTED: usize = 10;

/// How images are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Images of a batch.
    pub batch_size: usize,
    /// Threads that read and prepare.
    pub workers: usize,
    /// Channels that images are converted to. Features of a network take the network's own number.
    pub channels: usize,
    /// Whether photographs are turned upright.
    pub orientation: Orientation,
}

impl Default for ReadOptions {
    fn default() -> Self {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        Self { batch_size: 64, workers, channels: 3, orientation: Orientation::Upright }
    }
}

impl ReadOptions {
    pub(crate) fn check(&self) -> Result<(), EvalError> {
        let settings = [
            ("batch_size", self.batch_size, 65_536),
            ("workers", self.workers, 1024),
            ("channels", self.channels, MAX_CHANNELS),
        ];
        for (setting, value, most) in settings {
            if !(1..=most).contains(&value) {
                return Err(EvalError::Setting { setting, value: value.to_string(), expected: format!("1 to {most}") });
            }
        }
        Ok(())
    }
}

/// How far a pass over a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadProgress {
    /// Images read so far, or skipped.
    pub done: usize,
    /// Images there are.
    pub total: usize,
    /// Images among `done` that could not be used.
    pub skipped: usize,
}

/// The usable images of a range of a source, resized and cropped.
pub(crate) struct PreparedBatch {
    /// Their numbers in the source, ascending.
    pub(crate) indices: Vec<usize>,
    /// Their bytes, each height x width x channels.
    pub(crate) pixels: Vec<u8>,
    bad: Vec<BadSample>,
    turned: usize,
    end: usize,
}

/// Bytes of prepared images in a batch, at most: three batches are in memory at once, and 64 images of 8192 pixels a side
/// would be 12 GiB. At 224 pixels it is 1,783 images.
const BATCH_BYTES: usize = 1 << 28;

/// Images of a batch where an image has so many bytes: no more than asked for, and no more than memory is set aside for.
pub(crate) fn fitting(batch_size: usize, image_bytes: usize) -> usize {
    batch_size.min((BATCH_BYTES / image_bytes.max(1)).max(1))
}

/// What is to be said of a pass over a source.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass {
    /// Images that could not be used, in the order of the source.
    pub skipped: Vec<BadSample>,
    /// Images that were turned upright.
    pub turned: usize,
}

/// Hands the images of a source to `consume` as a network sees them, in order: their numbers and their pixels, batch by batch.
/// An image that cannot be used is left out. `consume` may end the pass.
pub fn prepared_images(
    source: &dyn Source,
    preparation: &Preparation,
    options: &ReadOptions,
    mut consume: impl FnMut(&[usize], &[u8]) -> ControlFlow<()>,
) -> Result<Pass, EvalError> {
    for_each_batch(source, preparation, options, &mut |_| ControlFlow::Continue(()), |batch| {
        match consume(&batch.indices, &batch.pixels) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(EvalError::Stopped),
        }
    })
}

/// Hands all images of a source to `consume`, in order.
pub(crate) fn for_each_batch(
    source: &dyn Source,
    preparation: &Preparation,
    options: &ReadOptions,
    progress: &mut dyn FnMut(ReadProgress) -> ControlFlow<()>,
    mut consume: impl FnMut(PreparedBatch) -> Result<(), EvalError>,
) -> Result<Pass, EvalError> {
    preparation.check()?;
    options.check()?;
    let (height, width) = preparation.size();
    let options =
        &ReadOptions { batch_size: fitting(options.batch_size, height * width * options.channels), ..*options };
    let total = source.len();
    let (mut bad, mut turned) = (Vec::new(), 0);
    thread::scope(|scope| {
        // One batch waits, one is being read, one is being consumed: the bound on memory.
        let (sender, receiver) = sync_channel(1);
        let read = move || {
            for start in (0..total).step_by(options.batch_size) {
                let range = start..total.min(start + options.batch_size);
                // Closed: the caller has stopped.
                if sender.send(read_batch(source, preparation, range, options)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("read".to_owned()).spawn_scoped(scope, read);
        thread.map_err(|error| EvalError::Thread { reason: error.to_string() })?;
        for mut batch in receiver {
            bad.append(&mut batch.bad);
            turned += batch.turned;
            let done = batch.end;
            if !batch.indices.is_empty() {
                consume(batch)?;
            }
            if progress(ReadProgress { done, total, skipped: bad.len() }).is_break() {
                return Err(EvalError::Stopped);
            }
        }
        Ok(())
    })?;
    if bad.len() == total {
        bad.truncate(LISTED);
        return Err(EvalError::NothingReadable { images: total, source_name: source.describe(), first: bad });
    }
    Ok(Pass { skipped: bad, turned })
}

/// Reads and prepares a range of images with several threads.
fn read_batch(
    source: &dyn Source,
    preparation: &Preparation,
    range: Range<usize>,
    options: &ReadOptions,
) -> PreparedBatch {
    let (height, width) = preparation.size();
    let size = height * width * options.channels;
    let mut pixels = vec![0; range.len() * size];
    let mut problems: Vec<Option<String>> = vec![None; range.len()];
    let turned = AtomicUsize::new(0);
    let slots = Mutex::new(range.clone().zip(pixels.chunks_mut(size)).zip(&mut problems));
    let work = || {
        let mut reader = Reader::new(DecodeLimits::default(), options.channels).oriented(options.orientation);
        let mut image = Image::black(1, 1, options.channels);
        // Taken in a statement of its own, so that the lock is free while the image is read.
        let next = || slots.lock().unwrap_or_else(PoisonError::into_inner).next();
        while let Some(((index, slot), problem)) = next() {
            *problem = fill(source, preparation, index, &mut reader, &mut image, slot).err();
            turned.fetch_add(usize::from(problem.is_none() && reader.turned()), Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        for _ in 1..options.workers.min(range.len()) {
            // A thread that the system refuses is one fewer to share the work.
            _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let (indices, turned) = (Vec::with_capacity(range.len()), turned.into_inner());
    let mut batch = PreparedBatch { indices, pixels, bad: Vec::new(), turned, end: range.end };
    for (slot, (index, problem)) in range.zip(problems).enumerate() {
        match problem {
            Some(reason) => batch.bad.push(BadSample { index: index as u64, name: source.name(index), reason }),
            None => {
                // Usable images close up.
                batch.pixels.copy_within(slot * size..(slot + 1) * size, batch.indices.len() * size);
                batch.indices.push(index);
            }
        }
    }
    batch.pixels.truncate(batch.indices.len() * size);
    batch
}

/// Reads and prepares one image into its place; the reason where it cannot be used.
fn fill(
    source: &dyn Source,
    preparation: &Preparation,
    index: usize,
    reader: &mut Reader,
    image: &mut Image,
    slot: &mut [u8],
) -> Result<(), String> {
    reader.read(source, index, image).map_err(|error| error.reason())?;
    slot.copy_from_slice(&preparation.apply(image)?.pixels);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_large_images_are_smaller_than_asked_for() {
        assert_eq!([64, 4096].map(|batch| fitting(batch, 224 * 224 * 3)), [64, 1783]);
        assert_eq!([fitting(64, 8192 * 8192 * 3), fitting(64, usize::MAX), fitting(64, 0)], [1, 1, 64]);
        let source = data::open("synthetic:train=5,size=16", data::Split::Train, 0).unwrap();
        let (mut sizes, options) =
            (Vec::new(), ReadOptions { batch_size: 64, workers: 2, channels: 3, ..Default::default() });
        let preparation = Preparation::Stretch((6000, 8000));
        let mut progress = |_: ReadProgress| ControlFlow::Continue(());
        for_each_batch(&*source, &preparation, &options, &mut progress, |batch| {
            sizes.push(batch.indices.len());
            Ok(())
        })
        .unwrap();
        assert_eq!(sizes, [1, 1, 1, 1, 1], "144 MB an image");
    }
}
