//! When a run is saved: often while little has been done, and in the end as often as its options say.
//!
//! What is lost when a run is killed is then a part of what it has done, also for one that is over in minutes.

use std::time::{Duration, Instant};

/// Until the first checkpoint, and the least between two.
const LEAST: Duration = Duration::from_secs(20);
/// The part of the time so far that may pass between two.
const PART: u32 = 5;
/// Saving takes no more than a fiftieth of the time, where the options let it.
const WORK_FOR_A_SAVE: u32 = 50;

/// The checkpoints of this process.
pub(crate) struct SaveTimes {
    most: Duration,
    began: Instant,
    last: Instant,
    took: Duration,
}

impl SaveTimes {
    /// From now on, with at most this much time between two.
    pub(crate) fn new(most: Duration) -> Self {
        let now = Instant::now();
        Self { most, began: now, last: now, took: Duration::ZERO }
    }

    /// Whether it is time.
    pub(crate) fn is_due(&self) -> bool {
        self.last.elapsed() >= interval(self.most, self.began.elapsed(), self.took)
    }

    /// Takes note of a checkpoint that was begun at this moment and is there now.
    pub(crate) fn saved(&mut self, since: Instant) {
        self.last = Instant::now();
        self.took = self.last - since;
    }
}

fn interval(most: Duration, so_far: Duration, took: Duration) -> Duration {
    LEAST.max(so_far / PART).max(took * WORK_FOR_A_SAVE).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_costs_a_fifth_of_a_short_run_and_never_more_than_was_asked_for() {
        let most = Duration::from_secs(600);
        let after = |seconds| interval(most, Duration::from_secs(seconds), Duration::ZERO).as_secs();
        assert_eq!([0, 60, 100, 500, 3000, 100_000].map(after), [20, 20, 20, 100, 600, 600]);
        let hurried = Duration::from_secs(3);
        assert_eq!(interval(hurried, Duration::from_secs(500), Duration::from_secs(9)), hurried);
        assert_eq!(interval(Duration::ZERO, most, most), Duration::ZERO);
    }

    #[test]
    fn what_takes_long_to_save_is_saved_less_often() {
        let (most, so_far) = (Duration::from_secs(600), Duration::from_secs(60));
        let with = |seconds| interval(most, so_far, Duration::from_secs(seconds)).as_secs();
        assert_eq!([0, 1, 8, 30].map(with), [20, 50, 400, 600]);
    }

    #[test]
    fn the_time_of_a_checkpoint_counts_from_its_end() {
        assert!(SaveTimes::new(Duration::ZERO).is_due());
        let Some(since) = Instant::now().checked_sub(Duration::from_secs(15)) else { return };
        // Time has been passing since long before, and a checkpoint that took fifteen seconds has just come to its end.
        let mut times = SaveTimes { began: since, last: since, ..SaveTimes::new(Duration::from_secs(10)) };
        assert!(times.is_due());
        times.saved(since);
        assert!(!times.is_due() && times.took >= Duration::from_secs(15));
    }
}
