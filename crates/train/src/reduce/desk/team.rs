//! Processes that meet at a desk, and have a carrier for what is large.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tensor::ParamSet;

use super::super::group::{Exchange, Sent, Word};
use super::super::{Carrier, PeerError, Recipient, SumMemory, Sums, Until, Wire};
use super::frame::{Brought, FEW};
use super::{Desk, Inner};

/// One of the processes that train together. A clone is the same process.
pub struct Team<C> {
    desk: Desk,
    /// None until there is one.
    carrier: Arc<Mutex<Option<C>>>,
}

impl<C> Clone for Team<C> {
    fn clone(&self) -> Self {
        Self { desk: self.desk.clone(), carrier: self.carrier.clone() }
    }
}

impl<C> fmt::Debug for Team<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team").field("desk", &self.desk).finish_non_exhaustive()
    }
}

impl<C: Carrier> Team<C> {
    /// Processes that have met at a desk. Until they have a carrier, they can share few numbers and decide.
    pub fn at(desk: Desk) -> Self {
        Self { desk, carrier: Arc::default() }
    }

    /// Gives them the carrier. All come with one, before anything large travels.
    pub fn carry_with(&self, carrier: C) {
        let give_up = carrier.give_up();
        *self.carrier() = Some(carrier);
        self.inner().participant.give_up_with(give_up);
    }

    fn inner(&self) -> &Inner {
        &self.desk.inner
    }

    fn carrier(&self) -> MutexGuard<'_, Option<C>> {
        // Whoever panicked in the carrier has ended the process, or the carrier itself says that it is of no use.
        self.carrier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether these processes can do nothing more together: for whoever waits for all of them elsewhere.
    pub fn is_over(&self) -> bool {
        self.inner().participant.end_of_carrier().is_some()
    }

    fn with_carrier<R>(&self, work: impl FnOnce(&mut C) -> Result<R, PeerError>) -> Result<R, PeerError> {
        let none = || PeerError::Lost("they have nothing that carries many numbers".to_owned());
        work(self.carrier().as_mut().ok_or_else(none)?)
    }

    /// Does something for which a process waits in the carrier.
    fn carry<R>(&self, work: impl FnOnce(&mut C) -> Result<R, PeerError>) -> Result<R, PeerError> {
        self.with_carrier(|carrier| self.desk.carry(|| work(carrier)))
    }
}

/// What each process has sent, where the numbers of all came one after another.
fn split(words: Vec<Brought>, numbers: &[f64]) -> Result<Vec<Sent>, PeerError> {
    let mut rest = numbers;
    let mut sent = Vec::with_capacity(words.len());
    for brought in words {
        let short = || PeerError::Lost("fewer numbers have arrived than were announced".to_owned());
        let (own, others) = rest.split_at_checked(brought.length as usize).ok_or_else(short)?;
        rest = others;
        sent.push(Sent { word: brought.word, numbers: own.to_vec() });
    }
    Ok(sent)
}

impl<C: Carrier> Sums for Team<C> {
    fn least_to_begin(&self) -> Option<usize> {
        self.carrier().as_ref().and_then(Sums::least_to_begin)
    }

    fn memory(&self, lengths: &[usize], wire: Wire) -> SumMemory {
        self.carrier().as_ref().map(|carrier| carrier.memory(lengths, wire)).unwrap_or_default()
    }

    fn prepare(&mut self, tensors: &ParamSet, wire: Wire) -> Result<(), PeerError> {
        self.with_carrier(|carrier| carrier.prepare(tensors, wire))
    }

    fn begin_sum(&mut self, tensors: &mut ParamSet, which: Range<usize>, wire: Wire) -> Result<(), PeerError> {
        // Nobody waits for the others in this: the sum, which completes it, does.
        self.with_carrier(|carrier| carrier.begin_sum(tensors, which, wire))
    }

    fn sum(&mut self, tensors: &mut ParamSet, wire: Wire) -> Result<(), PeerError> {
        self.carry(|carrier| carrier.sum(tensors, wire))
    }

    fn put_together(&mut self, shares: &ParamSet, to: Recipient<'_>) -> Result<(), PeerError> {
        self.carry(|carrier| carrier.put_together(shares, to))
    }
}

impl<C: Carrier> Exchange for Team<C> {
    fn rank(&self) -> usize {
        self.inner().rank
    }

    fn ranks(&self) -> usize {
        self.inner().ranks
    }

    fn meet(&mut self, here: Sent, until: Until) -> Result<Vec<Sent>, PeerError> {
        let Sent { word, numbers } = here;
        let few = if numbers.len() <= FEW { numbers.clone() } else { Vec::new() };
        let all = self.desk.meet(Brought { word, length: numbers.len() as u64, numbers: few }, until)?;
        let is_large = |brought: &Brought| brought.length > FEW as u64;
        // Where somebody came to decide, not all would come to the carrier: its word is all that counts.
        if all.iter().any(|brought| brought.word != Word::Numbers) || !all.iter().any(is_large) {
            return Ok(all.into_iter().map(|Brought { word, numbers, .. }| Sent { word, numbers }).collect());
        }
        let lengths: Vec<usize> = all.iter().map(|brought| brought.length as usize).collect();
        let together = self.carry(|carrier| carrier.gather(&numbers, &lengths))?;
        split(all, &together)
    }
}
