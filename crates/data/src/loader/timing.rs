//! Where the workers' time goes, and what would make them faster.

use super::workbench::Decoding;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time that workers have spent, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Getting bytes from the source.
    pub fetch: Duration,
    /// Turning them into images.
    pub decode: Duration,
    /// Making views.
    pub views: Duration,
}

impl Effort {
    /// For somebody whose network waits for data: which part is slow, and what helps.
    pub fn advice(&self, decoding: Decoding, workers: usize, cores: usize) -> String {
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

/// The sum over all workers, in nanoseconds.
#[derive(Default)]
pub(super) struct Efforts {
    fetch: AtomicU64,
    decode: AtomicU64,
    views: AtomicU64,
}

impl Efforts {
    pub(super) fn add(&self, effort: Effort) {
        let Effort { fetch, decode, views } = effort;
        for (sum, time) in [(&self.fetch, fetch), (&self.decode, decode), (&self.views, views)] {
            sum.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    pub(super) fn sum(&self) -> Effort {
        let time = |sum: &AtomicU64| Duration::from_nanos(sum.load(Ordering::Relaxed));
        Effort { fetch: time(&self.fetch), decode: time(&self.decode), views: time(&self.views) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_the_slowest_part_and_idle_cores() {
        let effort = |fetch, decode, views| {
            let [fetch, decode, views] = [fetch, decode, views].map(Duration::from_millis);
            Effort { fetch, decode, views }
        };
        assert!(effort(9, 3, 3).advice(Decoding::Exact, 4, 4).contains("local disk"));
        assert!(effort(1, 3, 2).advice(Decoding::Exact, 4, 4).ends_with("photographs are large"));
        assert!(effort(1, 2, 3).advice(Decoding::Fast, 2, 8).contains("local_crops; so would workers = 8"));
    }
}
