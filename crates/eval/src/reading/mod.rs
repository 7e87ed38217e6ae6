//! Prepared images of a source in batches: threads read and prepare the next images while the caller computes on these.

mod ahead;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use data::transform::MAX_CHANNELS;
use data::{BadSample, DecodeLimits, Image, Orientation, Reader, Source};

use ahead::{Ahead, CloseAtEnd};

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
#[derive(Default)]
pub(crate) struct PreparedBatch {
    /// Their numbers in the source, ascending.
    pub(crate) indices: Vec<usize>,
    /// Their bytes, each height x width x channels.
    pub(crate) pixels: Vec<u8>,
}

/// Batches whose images are read before who takes them is done with the first of them: one that is being computed on, one that
/// waits, and one whose images are being read, so that no thread waits for the slowest image of a batch.
const BATCHES_AHEAD: usize = 3;

/// Bytes of prepared images in a batch, at most: three batches are in memory at once, and one of them twice; 64 images of 8192 pixels a
/// side would be 12 GiB. At 224 pixels it is 1,783 images.
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
    let ahead = Ahead::new(total, BATCHES_AHEAD * options.batch_size);
    thread::scope(|scope| {
        // However this ends, no thread goes on waiting.
        let _close = CloseAtEnd { ahead: &ahead, of_panic: false };
        let (sender, receiver) = channel();
        for thread in 0..options.workers.min(total) {
            let sender = sender.clone();
            let work = || read_images(source, preparation, options, &ahead, sender);
            match thread::Builder::new().name("read".to_owned()).spawn_scoped(scope, work) {
                Ok(_) => {}
                Err(error) if thread == 0 => return Err(EvalError::Thread { reason: error.to_string() }),
                // A thread that the system refuses is one fewer to share the work.
                Err(_) => break,
            }
        }
        drop(sender);
        let mut early = BTreeMap::new();
        for start in (0..total).step_by(options.batch_size) {
            let range = start..total.min(start + options.batch_size);
            let mut batch = PreparedBatch::default();
            for index in range.clone() {
                let Some(image) = in_order(index, &receiver, &mut early) else {
                    return Err(EvalError::Thread { reason: "a thread that reads images has ended".to_owned() });
                };
                match image.pixels {
                    Ok(pixels) => {
                        batch.pixels.reserve_exact((range.end - index) * pixels.len());
                        batch.pixels.extend_from_slice(&pixels);
                        batch.indices.push(index);
                    }
                    Err(reason) => bad.push(BadSample { index: index as u64, name: source.name(index), reason }),
                }
                turned += usize::from(image.turned);
            }
            if !batch.indices.is_empty() {
                consume(batch)?;
            }
            ahead.allow(range.len());
            let progressed = ReadProgress { done: range.end, total, skipped: bad.len() };
            if progress(progressed).is_break() {
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

/// An image that has been read.
struct ReadImage {
    index: usize,
    /// Its bytes as a network sees it; the reason where it cannot be used.
    pixels: Result<Vec<u8>, String>,
    turned: bool,
}

/// Reads and prepares images as long as there are any and somebody takes them.
fn read_images(
    source: &dyn Source,
    preparation: &Preparation,
    options: &ReadOptions,
    ahead: &Ahead,
    sender: Sender<ReadImage>,
) {
    let _close = CloseAtEnd { ahead, of_panic: true };
    let mut reader = Reader::new(DecodeLimits::default(), options.channels).oriented(options.orientation);
    let mut image = Image::black(1, 1, options.channels);
    while let Some(index) = ahead.claim() {
        let read = reader.read(source, index, &mut image).map_err(|error| error.reason());
        let pixels = read.and_then(|()| preparation.apply(&image)).map(|prepared| prepared.pixels);
        let turned = pixels.is_ok() && reader.turned();
        if sender.send(ReadImage { index, pixels, turned }).is_err() {
            return;
        }
    }
}

/// The image of this number, which may have come before or be still to come; none where nobody sends it any more.
fn in_order(index: usize, receiver: &Receiver<ReadImage>, early: &mut BTreeMap<usize, ReadImage>) -> Option<ReadImage> {
    while !early.contains_key(&index) {
        let image = receiver.recv().ok()?;
        early.insert(image.index, image);
    }
    early.remove(&index)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use data::{ReadError, Stored};

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

    /// Counts what is read of a source, and takes longest for every seventh image.
    struct Uneven {
        inner: std::sync::Arc<dyn Source>,
        fetched: AtomicUsize,
        /// The image whose reader panics.
        broken: Option<usize>,
    }

    impl Source for Uneven {
        fn len(&self) -> usize {
            self.inner.len()
        }

        fn fetch(&self, index: usize, limits: &DecodeLimits, bytes: &mut Vec<u8>) -> Result<Stored, ReadError> {
            self.fetched.fetch_add(1, Ordering::Relaxed);
            assert_ne!(self.broken, Some(index), "a defect of a source");
            if index.is_multiple_of(7) {
                thread::sleep(std::time::Duration::from_millis(3));
            }
            self.inner.fetch(index, limits, bytes)
        }

        fn label(&self, index: usize) -> Option<u32> {
            self.inner.label(index)
        }

        fn class_names(&self) -> &[String] {
            self.inner.class_names()
        }

        fn name(&self, index: usize) -> String {
            self.inner.name(index)
        }

        fn describe(&self) -> String {
            self.inner.describe()
        }

        fn fingerprint(&self) -> u64 {
            self.inner.fingerprint()
        }
    }

    fn uneven(images: usize) -> Uneven {
        let inner = data::open(&format!("synthetic:train={images},size=16"), data::Split::Train, 0).unwrap();
        Uneven { inner, fetched: AtomicUsize::new(0), broken: None }
    }

    const OPTIONS: ReadOptions =
        ReadOptions { batch_size: 8, workers: 5, channels: 3, orientation: Orientation::Upright };

    #[test]
    fn images_come_in_order_whatever_each_of_them_takes() {
        let (source, preparation) = (uneven(61), Preparation::Stretch((8, 8)));
        let mut all = Vec::new();
        prepared_images(&source, &preparation, &OPTIONS, |indices, pixels| {
            for (&index, pixels) in indices.iter().zip(pixels.chunks(8 * 8 * 3)) {
                assert_eq!(pixels, preparation.apply(&source.inner.read(index).unwrap()).unwrap().pixels, "{index}");
            }
            all.extend_from_slice(indices);
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(all, (0..61).collect::<Vec<_>>());
    }

    #[test]
    fn nobody_reads_far_ahead_nor_waits_when_it_ends_early() {
        let source = uneven(400);
        let done = prepared_images(&source, &Preparation::Stretch((8, 8)), &OPTIONS, |_, _| ControlFlow::Break(()));
        assert!(matches!(done, Err(EvalError::Stopped)));
        let fetched = source.fetched.into_inner();
        assert!((8..=BATCHES_AHEAD * 8).contains(&fetched), "{fetched} images for one batch of 8");
    }

    #[test]
    fn a_reader_that_panics_ends_the_others() {
        for broken in [0, 13, 399] {
            let source = Uneven { broken: Some(broken), ..uneven(400) };
            let read =
                || prepared_images(&source, &Preparation::Stretch((8, 8)), &OPTIONS, |_, _| ControlFlow::Continue(()));
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).is_err());
        }
    }
}
