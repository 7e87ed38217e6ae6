//! How fast a run goes, and how much of its time is spent waiting for data.

use std::time::{Duration, Instant};

/// Images and waiting since the last report.
pub(crate) struct Pace {
    since: Instant,
    images: usize,
    waited_before: Duration,
    waited: Duration,
}

impl Pace {
    /// Counts from now on, where `waited` has been spent on waiting before.
    pub(crate) fn starting_at(waited: Duration) -> Self {
        Self { since: Instant::now(), images: 0, waited_before: waited, waited }
    }

    /// Takes a step into account, after which `waited` has been spent on waiting since the start of the run.
    pub(crate) fn add(&mut self, images: usize, waited: Duration) {
        self.images += images;
        self.waited = waited;
    }

    /// Images per second, and the share of the time that went into waiting for data.
    pub(crate) fn rates(&self) -> (f64, f64) {
        let seconds = self.since.elapsed().as_secs_f64().max(1e-9);
        (self.images as f64 / seconds, (self.waited - self.waited_before).as_secs_f64() / seconds)
    }
}
