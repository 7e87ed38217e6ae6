//! Processes that are threads of one program: for tests, and what every other way of communicating is compared with.
//!
//! Sums are taken in double precision and in the order of the processes.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tensor::{ParamSet, Tensor};

use super::group::{Exchange, Group, Sent, Word};
use super::waiting::Next;
use super::{Awaited, Carrier, PeerError, Recipient, Share, Sums, Until, Waiting, Wire, early, wire};

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
    group_that_waits(ranks, &Waiting::default())
}

/// The same where they wait for each other in this way.
pub fn group_that_waits(ranks: usize, waiting: &Waiting) -> Vec<Group<Member>> {
    let place = Arc::new(Place { ranks, meeting: Mutex::default(), changed: Condvar::new() });
    let member = |rank| Member { rank, place: place.clone(), waiting: waiting.clone(), begun: Vec::new() };
    (0..ranks).map(|rank| Group::new(member(rank))).collect()
}

/// So many carriers, for processes that meet elsewhere and are threads of one program.
pub fn carriers(ranks: usize) -> Vec<Member> {
    group(ranks).into_iter().map(Group::into_exchange).collect()
}

/// One of the threads.
#[derive(Debug)]
pub struct Member {
    rank: usize,
    place: Arc<Place>,
    waiting: Waiting,
    /// Which tensors of the step under way are sums already.
    begun: Vec<Range<usize>>,
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
    /// Whom the others have waited for in vain.
    given_up: Option<Awaited>,
    /// Whether somebody has said that nothing more is carried.
    is_ended: bool,
}

impl Meeting {
    /// Why it will not take place.
    fn failure(&self) -> Option<PeerError> {
        let late = self.given_up.clone().map(PeerError::Late);
        let ended = self.is_ended.then(|| PeerError::Lost("nothing more is carried between them".to_owned()));
        late.or(ended).or_else(|| self.left.map(|rank| PeerError::Lost(format!("process {rank} has ended"))))
    }

    /// Those of so many who have not come.
    fn missing(&self, ranks: usize) -> Vec<usize> {
        (0..ranks).filter(|rank| self.arrived.iter().all(|(arrived, _)| arrived != rank)).collect()
    }
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

impl Member {
    /// Waits until all have come, or it is clear that they will not.
    fn await_all<'a>(&'a self, mut meeting: MutexGuard<'a, Meeting>, until: Until) -> MutexGuard<'a, Meeting> {
        let (began, mut said) = (Instant::now(), false);
        while meeting.together.is_none() && meeting.failure().is_none() {
            let waited = began.elapsed();
            let awaited = Awaited { ranks: meeting.missing(self.place.ranks), seconds: waited.as_secs() };
            let left = match self.waiting.after(waited, until, said) {
                Next::GiveUp => {
                    meeting.given_up = Some(awaited);
                    self.place.changed.notify_all();
                    continue;
                }
                Next::Notice => {
                    said = true;
                    // One of those who wait is enough.
                    if meeting.arrived.iter().all(|(rank, _)| *rank >= self.rank) {
                        (self.waiting.say)(&format!("waiting: {awaited}"));
                    }
                    continue;
                }
                Next::Wait(left) => left,
            };
            meeting = match left {
                Some(left) => self.place.changed.wait_timeout(meeting, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.place.changed.wait(meeting).unwrap_or_else(PoisonError::into_inner),
            };
        }
        meeting
    }
}

impl Sums for Member {
    fn least_to_begin(&self) -> Option<usize> {
        // Nothing is gained by it here; it is done as often as can be, so that tests see it.
        Some(1)
    }

    fn begin_sum(&mut self, tensors: &mut ParamSet, which: Range<usize>, wire: Wire) -> Result<(), PeerError> {
        early::check_new(&self.begun, &which)?;
        self.sum_some(tensors, std::slice::from_ref(&which), wire)?;
        self.begun.push(which);
        Ok(())
    }

    fn sum(&mut self, tensors: &mut ParamSet, wire: Wire) -> Result<(), PeerError> {
        let begun = std::mem::take(&mut self.begun);
        self.sum_some(tensors, &early::rest(&begun, tensors.len()), wire)
    }

    fn put_together(&mut self, shares: &ParamSet, to: Recipient<'_>) -> Result<(), PeerError> {
        let all = self.share_numbers(shares.iter(), Wire::Exact)?;
        let (Recipient::Everyone(whole) | Recipient::First(whole)) = to else { return Ok(()) };
        // What has been taken of the numbers of each.
        let mut taken = vec![0; all.len()];
        for tensor in whole.tensors_mut() {
            let mut of_all = Vec::with_capacity(tensor.len());
            for (number, sent) in all.iter().enumerate() {
                let count = Share { number, of: all.len() }.of_elements(tensor.len()).len();
                of_all.extend_from_slice(&sent.numbers[taken[number]..taken[number] + count]);
                taken[number] += count;
            }
            tensor.copy_from_f64(&of_all);
        }
        Ok(())
    }
}

impl Exchange for Member {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.place.ranks
    }

    fn meet(&mut self, here: Sent, until: Until) -> Result<Vec<Sent>, PeerError> {
        let place = &*self.place;
        // Some may not have left the meeting before.
        let mut meeting = place.wait(place.meeting(), |m| m.together.is_some());
        if let Some(failure) = meeting.failure() {
            return Err(failure);
        }
        meeting.arrived.push((self.rank, here));
        if meeting.arrived.len() == place.ranks {
            meeting.arrived.sort_by_key(|(rank, _)| *rank);
            let all = std::mem::take(&mut meeting.arrived).into_iter().map(|(_, sent)| sent).collect();
            meeting.together = Some(Arc::new(all));
            place.changed.notify_all();
        }
        let mut meeting = self.await_all(meeting, until);
        let Some(together) = meeting.together.clone() else {
            return Err(meeting.failure().unwrap_or(PeerError::Elsewhere));
        };
        meeting.taken += 1;
        if meeting.taken == place.ranks {
            (meeting.taken, meeting.together) = (0, None);
            place.changed.notify_all();
        }
        drop(meeting);
        Ok(Arc::unwrap_or_clone(together))
    }
}

/// Numbers as they are after they have travelled.
fn as_sent(numbers: impl Iterator<Item = f64>, wire: Wire) -> Vec<f64> {
    match wire {
        Wire::Exact => numbers.collect(),
        Wire::Bf16 => wire::rounded(numbers).into_iter().map(wire::number).collect(),
    }
}

impl Member {
    /// Replaces the tensors of these ids by their sums.
    fn sum_some(&mut self, tensors: &mut ParamSet, which: &[Range<usize>], wire: Wire) -> Result<(), PeerError> {
        let ids = || which.iter().cloned().flatten();
        let all = self.share_numbers(ids().map(|id| &tensors.tensors()[id]), wire)?;
        let mut from = 0;
        for id in ids() {
            let tensor = &mut tensors.tensors_mut()[id];
            let to = from + tensor.len();
            let sum = (from..to).map(|i| all.iter().map(|sent| sent.numbers[i]).sum());
            tensor.copy_from_f64(&as_sent(sum, wire));
            from = to;
        }
        Ok(())
    }

    /// The elements of some tensors, as all processes have them.
    fn share_numbers<'a>(
        &mut self,
        tensors: impl Iterator<Item = &'a Tensor>,
        wire: Wire,
    ) -> Result<Vec<Sent>, PeerError> {
        let numbers = as_sent(tensors.flat_map(Tensor::to_f64), wire);
        self.meet(Sent { word: Word::Numbers, numbers }, Until::Limit)
    }
}

impl Carrier for Member {
    fn gather(&mut self, here: &[f64], lengths: &[usize]) -> Result<Vec<f64>, PeerError> {
        let all = self.meet(Sent { word: Word::Numbers, numbers: here.to_vec() }, Until::Limit)?;
        assert!(all.iter().map(|sent| sent.numbers.len()).eq(lengths.iter().copied()), "as was announced");
        Ok(all.into_iter().flat_map(|sent| sent.numbers).collect())
    }

    fn give_up(&self) -> Arc<dyn Fn() + Send + Sync> {
        let place = self.place.clone();
        Arc::new(move || {
            place.meeting().is_ended = true;
            place.changed.notify_all();
        })
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
    use super::super::group_tests::of_every_group;
    use super::*;

    of_every_group!(group_that_waits);
}
