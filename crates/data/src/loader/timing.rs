//! Time spent by the workers in each stage, and advice that follows from it.

use super::scratch::Decoding;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time spent in each stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Timing {
    /// Fetching bytes from the source.
    pub fetch: Duration,
    /// Decoding them.
    pub decode: Duration,
    /// Making views.
    pub views: Duration,
}

impl Timing {
    /// Advice for a run that waits for data: the slowest stage, and what makes it faster.
    pub(super) fn advice(&self, decoding: Decoding, workers: usize, cores: usize) -> String {
        let help = if self.fetch > self.decode + self.views {
            "most of the work is reading files: a local disk or tar shards would help"
        } else if self.decode > self.views && decoding == Decoding::Exact {
            "most of the work is decoding: smaller files would help, and decoding = \"fast\" where photographs are large"
        } else if self.decode > self.views {
            "most of the work is decoding: smaller files would help"
        } else {
            "most of the work is making views: more processor cores would help, or fewer local_crops"
        };
        let idle =
            if workers < cores { format!("; so would workers = {cores}, one for each core") } else { String::new() };
        format!("the network waits for data: {help}{idle}")
    }
}

/// Sums over all workers, in nanoseconds.
#[derive(Default)]
pub(super) struct Timings {
    fetch: AtomicU64,
    decode: AtomicU64,
    views: AtomicU64,
}

impl Timings {
    pub(super) fn add(&self, timing: Timing) {
        let Timing { fetch, decode, views } = timing;
        for (sum, time) in [(&self.fetch, fetch), (&self.decode, decode), (&self.views, views)] {
            sum.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    pub(super) fn sum(&self) -> Timing {
        let time = |sum: &AtomicU64| Duration::from_nanos(sum.load(Ordering::Relaxed));
        Timing { fetch: time(&self.fetch), decode: time(&self.decode), views: time(&self.views) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_the_slowest_part_and_idle_cores() {
        let timing = |fetch, decode, views| {
            let [fetch, decode, views] = [fetch, decode, views].map(Duration::from_millis);
            Timing { fetch, decode, views }
        };
        assert!(timing(9, 3, 3).advice(Decoding::Exact, 4, 4).contains("local disk"));
        assert!(timing(1, 3, 2).advice(Decoding::Exact, 4, 4).ends_with("photographs are large"));
        assert!(timing(1, 2, 3).advice(Decoding::Fast, 2, 8).contains("local_crops; so would workers = 8"));
    }
}
