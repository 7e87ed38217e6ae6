//! The worker threads: they take samples from the queue, read images and make views.

use super::LoaderConfig;
use super::batch::{BadSample, BatchShape, CropGroup, Filled, Pending};
use super::order::Schedule;
use super::scratch::Scratch;
use super::timing::Timings;
use crate::decode::DecodeError;
use crate::source::{ReadError, Source};
use random::{Key, Purpose};
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The state that all threads of a loader share.
pub(super) struct Shared {
    pub source: Arc<dyn Source>,
    pub config: LoaderConfig,
    /// Time spent by the workers, by stage.
    pub timings: Timings,
    pub shape: BatchShape,
    /// Unreadable images that are tolerated.
    pub allowed_bad: usize,
    state: Mutex<State>,
    /// Signalled when there may be a sample to take.
    pub work: Condvar,
    /// Signalled when a batch is complete, or never will be.
    pub ready: Condvar,
    /// Images that failed to decode, so that they are not read again. Has no effect on the batches.
    known_bad: Mutex<HashMap<u32, BadSample>>,
}

/// The queue of batches, oldest first.
pub(super) struct State {
    pub pending: VecDeque<Arc<Pending>>,
    /// The next sample of the newest batch to be taken by a worker.
    next_slot: usize,
    schedule: Schedule,
    /// All batches have been handed out to workers.
    pub exhausted: bool,
    pub stop: bool,
    /// Allocating another batch failed.
    pub out_of_memory: bool,
    /// Recycled buffers.
    pub spare: Vec<Vec<CropGroup>>,
}

impl Shared {
    pub(super) fn new(source: Arc<dyn Source>, config: LoaderConfig, allowed_bad: usize, schedule: Schedule) -> Self {
        let shape = BatchShape::new(&config);
        let state = State {
            pending: VecDeque::new(),
            next_slot: shape.batch_size,
            schedule,
            exhausted: false,
            stop: false,
            out_of_memory: false,
            spare: Vec::new(),
        };
        Self {
            source,
            config,
            timings: Timings::default(),
            shape,
            allowed_bad,
            state: Mutex::new(state),
            work: Condvar::new(),
            ready: Condvar::new(),
            known_bad: Mutex::new(HashMap::new()),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells all threads to end after their current sample.
    pub(super) fn stop(&self) {
        self.state().stop = true;
        self.work.notify_all();
        self.ready.notify_all();
    }

    /// The main loop of a worker.
    pub(super) fn run(&self) {
        let mut scratch = Scratch::new(self.config.channels, self.config.views.count(), self.config.orientation);
        while let Some((pending, slot)) = self.take() {
            let filled = catch_unwind(AssertUnwindSafe(|| self.fill(&pending, slot, &mut scratch))).map_err(|panic| {
                let index = scratch.index;
                let name = catch_unwind(AssertUnwindSafe(|| self.source.name(index)));
                (name.unwrap_or_else(|_| format!("#{index}")), panic_message(&*panic))
            });
            if pending.put(slot, filled, &scratch) {
                // Locked once, so that the consumer cannot miss the signal between its check and its wait.
                drop(self.state());
                self.ready.notify_all();
            }
        }
    }

    /// The next sample to prepare; waits while the queue is full. None at the end.
    fn take(&self) -> Option<(Arc<Pending>, usize)> {
        let mut state = self.state();
        loop {
            if state.stop {
                return None;
            }
            if state.next_slot < self.shape.batch_size
                && let Some(newest) = state.pending.back().map(Arc::clone)
            {
                let slot = state.next_slot;
                state.next_slot += 1;
                return Some((newest, slot));
            }
            if state.exhausted {
                return None;
            }
            if state.pending.len() < self.config.prefetch {
                self.begin_batch(&mut state);
            } else {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn begin_batch(&self, state: &mut State) {
        let Some((place, order)) = state.schedule.advance() else {
            state.exhausted = true;
            self.work.notify_all();
            self.ready.notify_all();
            return;
        };
        let Some(groups) = state.spare.pop().or_else(|| self.shape.allocate()) else {
            state.out_of_memory = true;
            state.stop = true;
            self.work.notify_all();
            self.ready.notify_all();
            return;
        };
        state.pending.push_back(Arc::new(Pending::new(place, order, &self.config, groups)));
        state.next_slot = 0;
        self.work.notify_all();
    }

    /// Reads the image whose turn it is, or the next readable one of the epoch's order, and makes its views.
    ///
    /// The draws belong to the image whose turn it was: a substitute that also comes up itself in this epoch is seen in
    /// other views.
    fn fill(&self, pending: &Pending, slot: usize, scratch: &mut Scratch) -> Filled {
        let (order, rank) = (&pending.order, pending.rank(slot));
        let key = Key::new(self.config.seed, Purpose::View).epoch(pending.place.epoch).sample(pending.key(slot));
        let first_view = pending.first_view(slot, self.config.views.count());
        let mut bad = Vec::new();
        for step in 0..order.len() {
            let index = order[(rank + step) % order.len()];
            match self.try_read(index, key, first_view, scratch) {
                Ok(()) => {
                    scratch.make_views(self.config.finish);
                    self.timings.add(scratch.timing);
                    return Filled { sample: Some(index.into()), turned: scratch.turned(), bad };
                }
                Err(sample) => bad.push(sample),
            }
            if bad.len() > self.allowed_bad {
                break;
            }
        }
        Filled { sample: None, turned: false, bad }
    }

    /// Reads an image into `scratch` and draws the parameters of its views.
    fn try_read(&self, index: u32, key: Key, first_view: usize, scratch: &mut Scratch) -> Result<(), BadSample> {
        let known = || self.known_bad.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sample) = known().get(&index) {
            return Err(sample.clone());
        }
        let draw = |view, height, width| self.config.views.draw(first_view + view, height, width, key);
        let Err(error) = scratch.read(&*self.source, index as usize, self.config.decoding, &draw) else {
            return Ok(());
        };
        // I/O errors and lack of memory may be transient, and a resumed run would try again.
        let passing = match &error {
            ReadError::Io { .. } => true,
            ReadError::Decode { source, .. } => matches!(source, DecodeError::NoMemory { .. }),
            _ => false,
        };
        let (reason, lasting) = (error.reason(), !passing);
        let sample = BadSample { index: index.into(), name: self.source.name(index as usize), reason };
        if lasting {
            known().insert(index, sample.clone());
        }
        Err(sample)
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
