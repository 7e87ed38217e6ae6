//! Whether a run has collapsed, since when, and for how long that is watched.
//!
//! What a collapse is, only the training knows: it says so with every record of the log. What is counted here goes into
//! every checkpoint, so that a resumed run ends at the very step at which an unbroken one does.

use crate::state::{SavedState, State, StateError};

const KEY: &str = "collapse";

/// How a training is doing, as far as it can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// It learns.
    #[default]
    Healthy,
    /// It is too early to tell.
    Unclear,
    /// What it has learnt is lost, and it does not come back by itself.
    Collapsed,
}

/// How long a collapse must last before it ends a run. Both must have passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Steps from the first record that told of it to the last.
    pub steps: u64,
    /// Records that told of it, one after the other.
    pub records: u64,
}

/// What the records so far have told. Steps are counted from 1; 0 stands for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collapse {
    /// The last healthy record, and the first one after it that was not.
    healthy: u64,
    doubtful: u64,
    /// The first and the last record of the collapse that lasts.
    since: u64,
    last: u64,
    /// How many there are.
    records: u64,
}

impl Collapse {
    /// Takes note of a record. One that is healthy ends a collapse.
    pub(crate) fn note(&mut self, step: u64, condition: Condition) {
        match condition {
            Condition::Unclear => self.doubt(step),
            Condition::Healthy => *self = Self { healthy: step, ..Self::default() },
            Condition::Collapsed => {
                self.doubt(step);
                self.since = if self.records == 0 { step } else { self.since };
                self.last = step;
                self.records += 1;
            }
        }
    }

    fn doubt(&mut self, step: u64) {
        self.doubtful = if self.doubtful == 0 { step } else { self.doubtful };
    }

    /// The step of the first record of the collapse that lasts; none in a run that is well.
    pub fn since(&self) -> Option<u64> {
        (self.records > 0).then_some(self.since)
    }

    /// The step before which checkpoints are good ones; none in a run that is well, and in one that never was. A teacher may
    /// become uniform so early that it is not called a collapse for some time.
    pub(crate) fn healthy_before(&self) -> Option<u64> {
        (self.healthy > 0 && self.doubtful > 0).then_some(self.doubtful)
    }

    /// Whether it has lasted for longer than there is patience for.
    pub(crate) fn exhausts(&self, patience: Option<Patience>) -> bool {
        patience.is_some_and(|Patience { steps, records }| {
            self.records >= records.max(1) && self.last - self.since >= steps
        })
    }

    pub(crate) fn save(&self, state: &mut State<'_>) {
        state.value(KEY, vec![self.healthy, self.doubtful, self.since, self.last, self.records]);
    }

    /// Checkpoints from before there was such a count have none: then it begins where they end.
    pub(crate) fn restore(saved: &SavedState<'_>) -> Result<Self, StateError> {
        if !saved.has(KEY) {
            return Ok(Self::default());
        }
        let [healthy, doubtful, since, last, records] = saved.numbers(KEY, 5)?[..] else { return Ok(Self::default()) };
        Ok(Self { healthy, doubtful, since, last, records })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { steps: 20, records: 3 };

    /// What is known after these records, ten steps from one to the next.
    fn after(conditions: &[Condition]) -> Collapse {
        let mut collapse = Collapse::default();
        conditions.iter().zip(1..).for_each(|(&condition, i)| collapse.note(10 * i, condition));
        collapse
    }

    #[test]
    fn a_collapse_ends_a_run_when_it_has_lasted_for_long_enough_in_steps_and_in_records() {
        use Condition::{Collapsed, Healthy, Unclear};
        assert!(!after(&[Healthy, Collapsed, Collapsed]).exhausts(Some(PATIENCE)), "two records are too few");
        let lasting = after(&[Healthy, Collapsed, Collapsed, Collapsed]);
        assert!(lasting.exhausts(Some(PATIENCE)));
        assert!(!lasting.exhausts(None), "it was asked to continue");
        assert!(!lasting.exhausts(Some(Patience { steps: 21, ..PATIENCE })));
        assert_eq!((lasting.since(), lasting.healthy_before()), (Some(20), Some(20)));
        // What is too early to tell neither begins a collapse nor ends one.
        assert_eq!(after(&[Unclear, Unclear]).since(), None);
        let never_well = after(&[Unclear, Collapsed, Unclear, Collapsed, Collapsed]);
        assert!(never_well.exhausts(Some(PATIENCE)));
        assert_eq!((never_well.since(), never_well.healthy_before()), (Some(20), None), "no checkpoint is a good one");
        let lost_early = after(&[Healthy, Unclear, Collapsed]);
        assert_eq!((lost_early.since(), lost_early.healthy_before()), (Some(30), Some(20)));
    }

    #[test]
    fn one_healthy_record_begins_the_count_anew() {
        use Condition::{Collapsed, Healthy};
        let mended = after(&[Collapsed, Collapsed, Healthy, Collapsed, Collapsed]);
        assert!(!mended.exhausts(Some(PATIENCE)));
        assert_eq!(mended.since(), Some(40));
        assert_eq!(after(&[Collapsed, Healthy]).since(), None);
    }
}
