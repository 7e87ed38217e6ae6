//! Gradients that leave while the backward pass still computes others.
//!
//! The gradient of a layer is final once the backward pass has gone through it, for the last part of a step. From then on its
//! sum over the processes may be on its way, on a GPU beside the work that is still to do. Neighbours wait for each other until
//! there is enough for a sum of its own; what is left at the end is summed with [`Sums::sum`](super::Sums::sum).

use std::ops::Range;

use tensor::ParamSet;

use super::{PeerError, Reduce, Wire};

/// Sums that begin before all gradients are there.
pub struct EarlySums<'a> {
    reduce: &'a mut dyn Reduce,
    wire: Wire,
    least: usize,
    /// Ids that are final and have not left.
    ready: Range<usize>,
    outcome: Result<(), PeerError>,
}

impl std::fmt::Debug for EarlySums<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EarlySums").field("least", &self.least).field("ready", &self.ready).finish_non_exhaustive()
    }
}

impl<'a> EarlySums<'a> {
    /// Nothing where sums are taken at the end. Else all processes meet: one that has failed before this in the step says so
    /// here, and nobody waits for its gradients.
    pub fn begin(reduce: &'a mut dyn Reduce, wire: Wire) -> Result<Option<Self>, PeerError> {
        let Some(least) = reduce.least_to_begin() else { return Ok(None) };
        reduce.gather(&[])?;
        Ok(Some(Self { reduce, wire, least, ready: 0..0, outcome: Ok(()) }))
    }

    /// Says that the gradients of these ids are final. All processes say the same in the same order. A failure is kept until
    /// the end: the backward pass, which calls this, has no use for it.
    pub fn are_final(&mut self, tensors: &mut ParamSet, ids: Range<usize>) {
        if self.outcome.is_err() || ids.is_empty() {
            return;
        }
        self.ready = if self.ready.is_empty() {
            ids
        } else if ids.end == self.ready.start {
            ids.start..self.ready.end
        } else if self.ready.end == ids.start {
            self.ready.start..ids.end
        } else {
            self.leave(tensors);
            ids
        };
        let elements: usize = tensors.tensors()[self.ready.clone()].iter().map(tensor::Tensor::len).sum();
        if elements >= self.least {
            self.leave(tensors);
        }
    }

    fn leave(&mut self, tensors: &mut ParamSet) {
        let which = std::mem::replace(&mut self.ready, 0..0);
        if self.outcome.is_ok() && !which.is_empty() {
            self.outcome = self.reduce.begin_sum(tensors, which, self.wire);
        }
    }

    /// What went wrong. Gradients that have not left are for [`Sums::sum`](super::Sums::sum).
    pub fn end(self) -> Result<(), PeerError> {
        self.outcome
    }
}

/// Refuses to begin a sum twice: a step has ended in the middle, and the processes may not be at the same place.
pub(super) fn check_new(begun: &[Range<usize>], which: &Range<usize>) -> Result<(), PeerError> {
    if begun.iter().any(|before| before.start < which.end && which.start < before.end) {
        return Err(PeerError::Lost("the sums of the step before were begun and not completed".to_owned()));
    }
    Ok(())
}

/// The ids below `count` whose sums have not begun, in order.
pub(super) fn rest(begun: &[Range<usize>], count: usize) -> Vec<Range<usize>> {
    let mut begun = begun.to_vec();
    begun.sort_by_key(|which| which.start);
    let mut rest = Vec::new();
    let mut next = 0;
    for which in begun.into_iter().chain(std::iter::once(count..count)) {
        if next < which.start {
            rest.push(next..which.start);
        }
        next = next.max(which.end);
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::super::{Peers, Recipient, Sums, Until};
    use super::*;
    use tensor::{CpuOptions, Device};

    /// A process alone that notes which sums begin.
    struct Noting {
        least: Option<usize>,
        begun: Vec<Range<usize>>,
        meetings: usize,
    }

    impl Peers for Noting {
        fn rank(&self) -> usize {
            0
        }

        fn ranks(&self) -> usize {
            1
        }

        fn gather(&mut self, here: &[f64]) -> Result<Vec<Vec<f64>>, PeerError> {
            self.meetings += 1;
            Ok(vec![here.to_vec()])
        }
    }

    impl Sums for Noting {
        fn least_to_begin(&self) -> Option<usize> {
            self.least
        }

        fn begin_sum(&mut self, _: &mut ParamSet, which: Range<usize>, _: Wire) -> Result<(), PeerError> {
            check_new(&self.begun, &which)?;
            self.begun.push(which);
            Ok(())
        }

        fn sum(&mut self, _: &mut ParamSet, _: Wire) -> Result<(), PeerError> {
            Ok(())
        }

        fn put_together(&mut self, _: &ParamSet, _: Recipient<'_>) -> Result<(), PeerError> {
            Ok(())
        }
    }

    impl Reduce for Noting {
        fn any(&mut self, here: bool, _: Until) -> Result<bool, PeerError> {
            Ok(here)
        }

        fn told(&mut self, word: f64, _: Until) -> Result<f64, PeerError> {
            Ok(word)
        }
    }

    fn begun_of(least: Option<usize>, finals: &[Range<usize>]) -> (Noting, Result<(), PeerError>) {
        let device = Device::cpu(CpuOptions { threads: Some(1), ..Default::default() }).unwrap();
        let mut set = ParamSet::zeros(&device, (0..10).map(|_| &[4][..]));
        let mut noting = Noting { least, begun: Vec::new(), meetings: 0 };
        let mut outcome = Ok(());
        if let Some(mut early) = EarlySums::begin(&mut noting, Wire::Exact).unwrap() {
            finals.iter().for_each(|ids| early.are_final(&mut set, ids.clone()));
            outcome = early.end();
        }
        (noting, outcome)
    }

    #[test]
    fn neighbours_wait_until_they_are_enough_and_the_rest_is_left_to_the_end() {
        let finals = [8..10, 6..8, 4..6, 2..4, 0..2];
        assert_eq!(begun_of(Some(1), &finals).0.begun, finals);
        assert_eq!(begun_of(Some(12), &finals).0.begun, [6..10, 2..6]);
        assert_eq!(begun_of(Some(1000), &finals).0.begun, [0..0; 0]);
        // Those that are no neighbours do not wait for each other.
        assert_eq!(begun_of(Some(12), &[8..10, 3..5, 5..6, 0..1]).0.begun, [8..10, 3..6]);
        assert_eq!(begun_of(Some(1), &[3..3, 7..7]).0.begun, [0..0; 0]);
    }

    #[test]
    fn they_meet_only_where_sums_begin_early() {
        assert_eq!(begun_of(Some(1), &[]).0.meetings, 1);
        assert_eq!(begun_of(None, &[5..10, 0..5]).0.meetings, 0);
    }

    #[test]
    fn no_sum_begins_twice() {
        let (_, outcome) = begun_of(Some(1), &[4..6, 5..7]);
        assert!(outcome.unwrap_err().to_string().contains("not completed"));
    }

    #[test]
    fn what_has_not_begun_is_the_rest() {
        assert_eq!(rest(&[], 3), vec![0..3; 1]);
        assert_eq!(rest(&[7..9, 2..4], 10), [0..2, 4..7, 9..10]);
        assert_eq!(rest(&[0..9, 9..10], 10), [0..0; 0]);
        assert_eq!(rest(&[5..10, 0..5], 10), [0..0; 0]);
    }
}
