//! How fast a run goes, and how much of its time is spent waiting.

use std::time::{Duration, Instant};

use crate::slowest::Spent;

/// Time that a process has spent waiting since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waited {
    /// For data.
    pub data: Duration,
    /// For other processes.
    pub others: Duration,
}

/// Images and waiting since the last report.
pub(crate) struct Pace {
    since: Instant,
    images: usize,
    before: Waited,
    now: Waited,
}

impl Pace {
    /// Counts from now on, after this much waiting.
    pub(crate) fn starting_at(waited: Waited) -> Self {
        Self { since: Instant::now(), images: 0, before: waited, now: waited }
    }

    /// Takes a step into account.
    pub(crate) fn add(&mut self, images: usize, waited: Waited) {
        self.images += images;
        self.now = waited;
    }

    /// Images per second, and the share of the time that went into waiting for data.
    pub(crate) fn rates(&self) -> (f64, f64) {
        let Spent { whole, data, .. } = self.spent();
        (self.images as f64 / whole, data / whole)
    }

    /// What this process has done with its time.
    pub(crate) fn spent(&self) -> Spent {
        Spent {
            whole: self.since.elapsed().as_secs_f64().max(1e-9),
            data: (self.now.data - self.before.data).as_secs_f64(),
            others: (self.now.others - self.before.others).as_secs_f64(),
        }
    }
}
