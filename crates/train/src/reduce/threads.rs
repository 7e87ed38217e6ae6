//! Processes that are threads of one program: for tests, and what every other way of communicating is compared with.
//!
//! Sums are taken in double precision and in the order of the processes.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tensor::{ParamSet, Tensor};

use super::group::{Exchange, Group, Sent, Word};
use super::waiting::Next;
use super::{Awaited, PeerError, Recipient, Share, Until, Waiting, Wire, early, wire};

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
}

impl Meeting {
    /// Why it will not take place.
    fn failure(&self) -> Option<PeerError> {
        let late = self.given_up.clone().map(PeerError::Late);
        late.or_else(|| self.left.map(|rank| PeerError::Lost(format!("process {rank} has ended"))))
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
                assert_eq!(rank.any(rank.rank() == 1 && round % 2 == 0, Until::Limit).unwrap(), round % 2 == 0);
            }
            let device = Device::cpu(CpuOptions { threads: Some(1), ..Default::default() }).unwrap();
            let mut set = ParamSet::zeros(&device, [&[2][..], &[1]]);
            for tensor in set.tensors_mut() {
                tensor.copy_from_f64(&vec![1.0 + rank.rank() as f64; tensor.len()]);
            }
            rank.sum(&mut set, Wire::Exact).unwrap();
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
                outcomes.push(rank.any(shared.is_err(), Until::Limit).unwrap());
            }
            outcomes
        });
        assert!(seen.iter().all(|outcomes| *outcomes == [false, true, false]), "{seen:?}");
    }

    #[test]
    fn who_ends_leaves_nobody_waiting() {
        let seen = in_each(3, |mut rank| {
            rank.any(false, Until::Limit).unwrap();
            if rank.rank() == 1 { Ok(vec![]) } else { rank.gather(&[1.0]) }
        });
        for rank in [0, 2] {
            let error = seen[rank].as_ref().unwrap_err();
            assert_eq!(error.to_string(), "the processes of this run have lost each other: process 1 has ended");
        }
    }

    #[test]
    fn who_is_elsewhere_in_the_run_is_noticed() {
        let seen = in_each(2, |mut rank| {
            if rank.rank() == 0 { rank.any(false, Until::Limit).map(|_| ()) } else { rank.gather(&[]).map(|_| ()) }
        });
        assert!(seen.iter().all(|seen| seen.as_ref().unwrap_err().to_string().contains("not at the same place")));
    }
    #[test]
    fn who_does_not_come_is_named_and_ends_the_waiting_of_all() {
        let said = Arc::new(Mutex::new(Vec::new()));
        let say = {
            let said = said.clone();
            Arc::new(move |words: &str| said.lock().unwrap().push(words.to_owned()))
        };
        let short = std::time::Duration::from_millis(50);
        let waiting = Waiting { limit: Some(4 * short), notice: short, say };
        // Whoever gives up lets the late one go on, which comes after all: for it too the meeting is over.
        let gave_up = std::sync::Barrier::new(3);
        let seen = std::thread::scope(|scope| {
            let work = |mut rank: Group<Member>| {
                let gave_up = &gave_up;
                scope.spawn(move || {
                    if rank.rank() == 1 {
                        gave_up.wait();
                        return rank.gather(&[1.0]).unwrap_err();
                    }
                    let error = rank.gather(&[1.0]).unwrap_err();
                    gave_up.wait();
                    error
                })
            };
            let threads: Vec<_> = group_that_waits(3, &waiting).into_iter().map(work).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        for error in seen {
            assert!(matches!(&error, PeerError::Late(awaited) if awaited.ranks == [1]), "{error}");
            assert!(error.to_string().starts_with("process 1 has not come for "), "{error}");
        }
        let said = said.lock().unwrap();
        let is_of_one = |words: &String| words.starts_with("waiting: process 1 has not come for ");
        assert!(!said.is_empty() && said.iter().all(is_of_one), "{said:?}");
    }

    #[test]
    fn whatever_one_of_them_does_alone_is_waited_for() {
        let waiting = Waiting { limit: Some(std::time::Duration::ZERO), ..Waiting::default() };
        let entered = std::sync::Barrier::new(2);
        let seen = std::thread::scope(|scope| {
            let work = |mut rank: Group<Member>| {
                let entered = &entered;
                scope.spawn(move || {
                    entered.wait();
                    // Somebody is here first, and has no time to wait otherwise.
                    rank.any(rank.rank() == 0, Until::Done).unwrap()
                })
            };
            let threads: Vec<_> = group_that_waits(2, &waiting).into_iter().map(work).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(seen, [true, true]);
    }

    /// Tensors of some lengths whose elements are all different.
    fn set(device: &Device, lengths: &[usize], from: f64) -> ParamSet {
        let shapes: Vec<[usize; 1]> = lengths.iter().map(|&length| [length]).collect();
        let mut set = ParamSet::zeros(device, shapes.iter().map(|shape| &shape[..]));
        let mut next = from;
        for tensor in set.tensors_mut() {
            let values: Vec<f64> = (0..tensor.len()).map(|i| next + i as f64).collect();
            next += values.len() as f64;
            tensor.copy_from_f64(&values);
        }
        set
    }

    fn elements(set: &ParamSet) -> Vec<f64> {
        set.iter().flat_map(Tensor::to_f64).collect()
    }

    #[test]
    fn shares_put_together_are_the_whole_in_all_or_in_the_first() {
        let lengths = [1, 7, 2, 30];
        in_each(3, |mut rank| {
            let device = Device::cpu(CpuOptions { threads: Some(1), ..Default::default() }).unwrap();
            let whole = set(&device, &lengths, 1.0);
            let shares = Share { number: rank.rank(), of: 3 }.copy_of(&whole);
            assert!(shares.iter().map(Tensor::len).sum::<usize>() <= 40 / 3 + lengths.len());
            let mut everywhere = whole.zeros_like();
            rank.put_together(&shares, Recipient::Everyone(&mut everywhere)).unwrap();
            assert_eq!(elements(&everywhere), elements(&whole));
            let mut first = whole.zeros_like();
            let to = if rank.rank() == 0 { Recipient::First(&mut first) } else { Recipient::Another };
            rank.put_together(&shares, to).unwrap();
            assert_eq!(elements(&first) == elements(&whole), rank.rank() == 0);
        });
    }

    #[test]
    fn gradients_may_travel_rounded_and_all_have_the_same_sum() {
        let sums = in_each(3, |mut rank| {
            let device = Device::cpu(CpuOptions { threads: Some(1), ..Default::default() }).unwrap();
            let mut gradient = set(&device, &[5, 300], 1.0 + rank.rank() as f64 / 3.0);
            rank.sum(&mut gradient, Wire::Bf16).unwrap();
            elements(&gradient)
        });
        assert!(sums.iter().all(|sum| *sum == sums[0]));
        for (i, sum) in sums[0].iter().enumerate() {
            let exact = 3.0 * (1.0 + i as f64) + 1.0;
            assert!((sum - exact).abs() <= exact / 128.0, "{sum} is not {exact}");
            assert_eq!(as_sent([*sum].into_iter(), Wire::Bf16), [*sum], "it has travelled");
        }
    }
}
