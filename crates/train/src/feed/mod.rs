//! Batches on their way to the device.
//!
//! For a GPU a thread takes batches from the loader and starts their copies while the step before still computes. A CPU
//! reads them where the loader put them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use data::{Batch, Loader, LoaderConfig, LoaderError, Source};
use tensor::ops::Pixels;
use tensor::{Device, UploadedPixels};

mod views;

use views::can_finish;
pub use views::upload;

/// Batches that are sent ahead of the one in use.
const AHEAD: usize = 1;

/// Batches whose pixels are on a GPU at a time: the one in use, those sent ahead, and the one on its way.
pub const UPLOADED_AT_ONCE: usize = AHEAD + 2;

/// A batch, with its pixels on the GPU where there is one.
pub struct Fed {
    /// What the loader made.
    pub batch: Batch,
    uploaded: Vec<UploadedPixels>,
}

impl Fed {
    /// A batch that the host reads where it is.
    pub fn on_host(batch: Batch) -> Self {
        Self { batch, uploaded: Vec::new() }
    }

    /// The groups of views as a network takes them.
    pub fn groups(&self) -> Vec<Pixels<'_>> {
        (0..self.batch.groups.len()).map(|i| self.first_of(i, usize::MAX)).collect()
    }

    /// The first images of a group, at most this many.
    pub fn first_of(&self, group: usize, count: usize) -> Pixels<'_> {
        views::pixels(&self.batch.groups[group], self.uploaded.get(group), count)
    }
}

/// Where batches come from.
pub enum Feed {
    /// The host reads them where the loader put them.
    Loader(Loader),
    /// A thread sends them to the GPU.
    Ahead(Ahead),
}

/// The thread that sends batches ahead, and what it has sent.
pub struct Ahead {
    /// None once the feed is being dropped: the thread ends when nobody takes its batches.
    channels: Option<(Receiver<Sent>, Sender<Batch>)>,
    thread: Option<JoinHandle<()>>,
    waited: Duration,
    advice: String,
}

/// A batch and what would make its successors come faster.
struct Sent {
    next: Result<Option<Fed>, LoaderError>,
    advice: String,
}

impl Feed {
    /// Batches of a source for networks on a device, from batch `position` of `epoch` to the end of the epoch before
    /// `end_epoch`. A GPU finishes the views that it can.
    pub fn start(
        source: Arc<dyn Source>,
        mut config: LoaderConfig,
        device: &Device,
        (epoch, position): (u64, usize),
        end_epoch: u64,
    ) -> Result<Self, LoaderError> {
        config.finish = !can_finish(device, &config);
        let loader = Loader::start(source, config, epoch, position, end_epoch)?;
        if !device.is_gpu() {
            return Ok(Self::Loader(loader));
        }
        let (batches_in, batches) = sync_channel(AHEAD);
        let (back, returned) = channel();
        let device = device.clone();
        let thread = std::thread::Builder::new()
            .name("upload".into())
            .spawn(move || send_ahead(loader, &device, &batches_in, &returned))
            .map_err(|_| LoaderError::Stopped)?;
        let channels = Some((batches, back));
        Ok(Self::Ahead(Ahead { channels, thread: Some(thread), waited: Duration::ZERO, advice: String::new() }))
    }

    /// The next batch; none after the last.
    pub fn next_batch(&mut self) -> Result<Option<Fed>, LoaderError> {
        match self {
            Self::Loader(loader) => Ok(loader.next()?.map(Fed::on_host)),
            Self::Ahead(ahead) => ahead.next(),
        }
    }

    /// Time spent waiting for batches so far.
    pub fn waited(&self) -> Duration {
        match self {
            Self::Loader(loader) => loader.waited(),
            Self::Ahead(ahead) => ahead.waited,
        }
    }

    /// What would make batches come faster.
    pub fn advice(&self) -> String {
        match self {
            Self::Loader(loader) => loader.advice(),
            Self::Ahead(ahead) => ahead.advice.clone(),
        }
    }

    /// Gives back a batch whose memory later ones may use.
    pub fn recycle(&mut self, fed: Fed) {
        match self {
            Self::Loader(loader) => loader.recycle(fed.batch),
            Self::Ahead(ahead) => {
                if let Some((_, back)) = &ahead.channels {
                    // A thread that has ended needs no memory.
                    _ = back.send(fed.batch);
                }
            }
        }
    }
}

impl Ahead {
    fn next(&mut self) -> Result<Option<Fed>, LoaderError> {
        let start = Instant::now();
        let (batches, _) = self.channels.as_ref().ok_or(LoaderError::Stopped)?;
        let sent = batches.recv().map_err(|_| LoaderError::Stopped)?;
        self.waited += start.elapsed();
        self.advice = sent.advice;
        sent.next
    }
}

impl Drop for Ahead {
    /// Waits for the thread: it holds the loader's threads and uses the device, and neither may outlive the training.
    fn drop(&mut self) {
        self.channels = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it has been reported as the end of the data.
            _ = thread.join();
        }
    }
}

fn send_ahead(mut loader: Loader, device: &Device, batches: &SyncSender<Sent>, returned: &Receiver<Batch>) {
    loop {
        returned.try_iter().for_each(|batch| loader.recycle(batch));
        let next = loader.next().map(|batch| {
            batch.map(|batch| {
                let uploaded = batch.groups.iter().filter_map(|group| upload(device, group)).collect();
                Fed { batch, uploaded }
            })
        });
        let is_last = !matches!(next, Ok(Some(_)));
        // The trainer may have stopped.
        if batches.send(Sent { next, advice: loader.advice() }).is_err() || is_last {
            return;
        }
    }
}
