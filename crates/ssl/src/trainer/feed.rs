//! Batches on their way to the device.
//!
//! For a GPU a thread takes batches from the loader and starts their copies while the step before still computes. A CPU
//! reads them where the loader put them.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use data::{Batch, Loader, LoaderError};
use tensor::ops::Pixels;
use tensor::{Device, UploadedPixels};

use super::setup::{pixels, upload};

/// Batches that are sent ahead of the one in use.
pub(crate) const AHEAD: usize = 1;

/// A batch, with its pixels on the GPU where there is one.
pub(super) struct Fed {
    pub batch: Batch,
    uploaded: Vec<UploadedPixels>,
}

impl Fed {
    /// The groups of views as the network takes them.
    pub(super) fn views(&self) -> Vec<Pixels<'_>> {
        (0..self.batch.groups.len()).map(|i| self.first(i, usize::MAX)).collect()
    }

    /// The first global views, at most this many.
    pub(super) fn globals(&self, count: usize) -> Pixels<'_> {
        self.first(0, count)
    }

    fn first(&self, group: usize, count: usize) -> Pixels<'_> {
        pixels(&self.batch.groups[group], self.uploaded.get(group), count)
    }
}

/// Where batches come from.
pub(super) enum Feed {
    Loader(Loader),
    Ahead { batches: Receiver<Sent>, back: Sender<Batch>, waited: Duration, advice: String },
}

/// A batch and what would make its successors come faster.
pub(super) struct Sent {
    next: Result<Option<Fed>, LoaderError>,
    advice: String,
}

impl Feed {
    pub(super) fn new(loader: Loader, device: &Device) -> Result<Self, LoaderError> {
        if !device.is_gpu() {
            return Ok(Self::Loader(loader));
        }
        let (batches_in, batches) = sync_channel(AHEAD);
        let (back, returned) = channel();
        let device = device.clone();
        std::thread::Builder::new()
            .name("upload".into())
            .spawn(move || send_ahead(loader, &device, &batches_in, &returned))
            .map_err(|_| LoaderError::Stopped)?;
        Ok(Self::Ahead { batches, back, waited: Duration::ZERO, advice: String::new() })
    }

    /// The next batch; none after the last.
    pub(super) fn next(&mut self) -> Result<Option<Fed>, LoaderError> {
        match self {
            Self::Loader(loader) => Ok(loader.next()?.map(|batch| Fed { batch, uploaded: Vec::new() })),
            Self::Ahead { batches, waited, advice, .. } => {
                let start = Instant::now();
                let sent = batches.recv().map_err(|_| LoaderError::Stopped)?;
                *waited += start.elapsed();
                *advice = sent.advice;
                sent.next
            }
        }
    }

    /// Time spent waiting for batches so far.
    pub(super) fn waited(&self) -> Duration {
        match self {
            Self::Loader(loader) => loader.waited(),
            Self::Ahead { waited, .. } => *waited,
        }
    }

    /// What would make batches come faster.
    pub(super) fn advice(&self) -> String {
        match self {
            Self::Loader(loader) => loader.advice(),
            Self::Ahead { advice, .. } => advice.clone(),
        }
    }

    /// Gives back a batch whose memory later ones may use.
    pub(super) fn recycle(&mut self, fed: Fed) {
        match self {
            Self::Loader(loader) => loader.recycle(fed.batch),
            // A thread that has ended needs no memory.
            Self::Ahead { back, .. } => _ = back.send(fed.batch),
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
