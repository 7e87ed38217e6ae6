//! Processes that are threads of one program: for tests, and what every other way of communicating is compared with.
//!
//! Sums are taken in double precision and in the order of the processes.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tensor::ParamSet;

use super::PeerError;
use super::group::{Exchange, Group, Sent, Word};

/// So many processes, each for a thread of its own. One that is dropped has ended: the others are told.
///
/// ```
/// use train::reduce::{Peers, threads};
///
/// let together: Vec<Vec<f64>> = std::thread::scope(|scope| {
///     let ranks = threads::group(2);
///     let all: Vec<_> = ranks
///         .into_iter()
///         .map(|mut rank| scope.spawn(move || rank.gather(&[rank.rank() as f64])))
///         .collect();
///     all.into_iter().last().unwrap().join().unwrap().unwrap()
/// });
/// assert_eq!(together, [[0.0], [1.0]]);
/// ```
pub fn group(ranks: usize) -> Vec<Group<Member>> {
    let place = Arc::new(Place { ranks, meeting: Mutex::default(), changed: Condvar::new() });
    (0..ranks).map(|rank| Group::new(Member { rank, place: place.clone() })).collect()
}

/// One of the threads.
#[derive(Debug)]
pub struct Member {
    rank: usize,
    place: Arc<Place>,
}

/// Where they meet.
#[derive(Debug)]
struct Place {
    ranks: usize,
    meeting: Mutex<Meeting>,
    changed: Condvar,
}

/// A meeting: they arrive, and when all are there each takes what all have brought.
#[derive(Debug, Default)]
struct Meeting {
    /// What those have brought who have arrived, by rank.
    arrived: Vec<(usize, Sent)>,
    /// Once all have arrived.
    together: Option<Arc<Vec<Sent>>>,
    /// How many have taken it.
    taken: usize,
    /// Who has ended.
    left: Option<usize>,
}

impl Place {
    fn meeting(&self) -> MutexGuard<'_, Meeting> {
        // A thread that panicked while it held this has left the meeting as a whole: nothing in here is ever half changed.
        self.meeting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `not_yet`.
    fn wait<'a>(
        &self,
        meeting: MutexGuard<'a, Meeting>,
        not_yet: impl FnMut(&mut Meeting) -> bool,
    ) -> MutexGuard<'a, Meeting> {
        self.changed.wait_while(meeting, not_yet).unwrap_or_else(PoisonError::into_inner)
    }
}

fn ended(rank: usize) -> PeerError {
    PeerError::Lost(format!("process {rank} has ended"))
}

impl Exchange for Member {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.place.ranks
    }

    fn meet(&mut self, here: Sent) -> Result<Vec<Sent>, PeerError> {
        let place = &*self.place;
        // Some may not have left the meeting before.
        let mut meeting = place.wait(place.meeting(), |m| m.together.is_some());
        if let Some(rank) = meeting.left {
            return Err(ended(rank));
        }
        meeting.arrived.push((self.rank, here));
        if meeting.arrived.len() == place.ranks {
            meeting.arrived.sort_by_key(|(rank, _)| *rank);
            let all = std::mem::take(&mut meeting.arrived).into_iter().map(|(_, sent)| sent).collect();
            meeting.together = Some(Arc::new(all));
            place.changed.notify_all();
        }
        let mut meeting = place.wait(meeting, |m| m.together.is_none() && m.left.is_none());
        let Some(together) = meeting.together.clone() else {
            return Err(ended(meeting.left.unwrap_or_default()));
        };
        meeting.taken += 1;
        if meeting.taken == place.ranks {
            (meeting.taken, meeting.together) = (0, None);
            place.changed.notify_all();
        }
        drop(meeting);
        Ok(Arc::unwrap_or_clone(together))
    }

    fn sum(&mut self, tensors: &mut ParamSet) -> Result<(), PeerError> {
        let numbers: Vec<f64> = tensors.iter().flat_map(|tensor| tensor.to_f64()).collect();
        let all = self.meet(Sent { word: Word::Numbers, numbers })?;
        let mut from = 0;
        for tensor in tensors.tensors_mut() {
            let to = from + tensor.len();
            let sum: Vec<f64> = (from..to).map(|i| all.iter().map(|sent| sent.numbers[i]).sum()).collect();
            tensor.copy_from_f64(&sum);
            from = to;
        }
        Ok(())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.place.meeting().left.get_or_insert(self.rank);
        self.place.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Peers, Reduce};
    use super::*;
    use tensor::{CpuOptions, Device};

    /// What `work` gives in each of some processes.
    fn in_each<R: Send>(ranks: usize, work: impl Fn(Group<Member>) -> R + Sync) -> Vec<R> {
        std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = group(ranks).into_iter().map(|rank| scope.spawn(move || work(rank))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn numbers_decisions_and_sums_are_those_of_all() {
        let seen = in_each(3, |mut rank| {
            let mut sums = Vec::new();
            for round in 0..200 {
                let here: Vec<f64> = (0..rank.rank()).map(|i| f64::from(round) + i as f64).collect();
                sums.push(rank.gather(&here).unwrap());
                assert_eq!(rank.any(rank.rank() == 1 && round % 2 == 0).unwrap(), round % 2 == 0);
            }
            let device = Device::cpu(CpuOptions { threads: Some(1), ..Default::default() }).unwrap();
            let mut set = ParamSet::zeros(&device, [&[2][..], &[1]]);
            for tensor in set.tensors_mut() {
                tensor.copy_from_f64(&vec![1.0 + rank.rank() as f64; tensor.len()]);
            }
            rank.sum(&mut set).unwrap();
            assert!(set.iter().all(|tensor| tensor.to_f64().iter().all(|&x| x == 6.0)));
            sums
        });
        assert_eq!(seen[0][7], [vec![], vec![7.0], vec![7.0, 8.0]]);
        assert!(seen.iter().all(|sums| *sums == seen[0]));
    }

    #[test]
    fn who_fails_in_the_middle_of_a_step_ends_it_for_all() {
        let seen = in_each(3, |mut rank| {
            let mut outcomes = Vec::new();
            for step in 0..3 {
                let failed = step == 1 && rank.rank() == 2;
                // Numbers are shared twice in a step, and decided on once at its end.
                let shared = if failed { Err(PeerError::Elsewhere) } else { rank.gather(&[0.0]) };
                let shared = shared.and_then(|_| rank.gather(&[0.0]));
                outcomes.push(rank.any(shared.is_err()).unwrap());
            }
            outcomes
        });
        assert!(seen.iter().all(|outcomes| *outcomes == [false, true, false]), "{seen:?}");
    }

    #[test]
    fn who_ends_leaves_nobody_waiting() {
        let seen = in_each(3, |mut rank| {
            rank.any(false).unwrap();
            if rank.rank() == 1 { Ok(vec![]) } else { rank.gather(&[1.0]) }
        });
        for rank in [0, 2] {
            let error = seen[rank].as_ref().unwrap_err();
            assert_eq!(error.to_string(), "the processes of this run have lost each other: process 1 has ended");
        }
    }

    #[test]
    fn who_is_elsewhere_in_the_run_is_noticed() {
        let seen =
            in_each(
                2,
                |mut rank| if rank.rank() == 0 { rank.any(false).map(|_| ()) } else { rank.gather(&[]).map(|_| ()) },
            );
        assert!(seen.iter().all(|seen| seen.as_ref().unwrap_err().to_string().contains("not at the same place")));
    }
}
