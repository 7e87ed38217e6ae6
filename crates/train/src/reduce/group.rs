//! How processes that can exchange numbers decide and fail as one, however the numbers travel.
//!
//! Everything but the sum of gradients is one kind of meeting: each process brings a word and some numbers, and sees those of
//! all. The word says what it came for. A process that fails in the middle of a step comes for the decision at the step's
//! end, while the others still come to share numbers. They see its word, and know: their step ends with
//! [`PeerError::Elsewhere`], and the decision that they would come for next has been made.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tensor::ParamSet;

use super::{PeerError, Peers, Recipient, Reduce, SumMemory, Sums, Until, Wire};

/// What a process came for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// To share its numbers.
    Numbers,
    /// To decide, itself for no.
    No,
    /// To decide, itself for yes: in the middle of a step, that it has failed.
    Yes,
}

/// What a process brought to a meeting.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// What it came for.
    pub word: Word,
    /// Its numbers.
    pub numbers: Vec<f64>,
}

/// A way for numbers to travel between the processes of a run.
pub trait Exchange: Sums {
    /// The number of this process, from 0.
    fn rank(&self) -> usize;

    /// How many processes there are.
    fn ranks(&self) -> usize;

    /// What all processes have brought, in their order.
    fn meet(&mut self, here: Sent, until: Until) -> Result<Vec<Sent>, PeerError>;
}

/// Processes that train together. A clone is the same process.
#[derive(Clone, Debug)]
pub struct Group<E> {
    exchange: E,
    /// Whether a failure elsewhere has made the next decision already.
    decided: Arc<AtomicBool>,
    /// Nanoseconds that this process has been with the others.
    waited: Arc<AtomicU64>,
}

impl<E: Exchange> Group<E> {
    /// Processes that exchange numbers in this way.
    pub fn new(exchange: E) -> Self {
        Self { exchange, decided: Arc::default(), waited: Arc::default() }
    }

    /// How they exchange numbers.
    pub(super) fn into_exchange(self) -> E {
        self.exchange
    }

    /// What is done with the others, whose time is taken.
    fn timed<R>(&mut self, work: impl FnOnce(&mut E) -> R) -> R {
        let began = Instant::now();
        let done = work(&mut self.exchange);
        self.waited.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        done
    }

    fn numbers(&mut self, numbers: Vec<f64>, until: Until) -> Result<Vec<Vec<f64>>, PeerError> {
        let all = self.timed(|exchange| exchange.meet(Sent { word: Word::Numbers, numbers }, until))?;
        if all.iter().any(|sent| sent.word == Word::No) {
            return Err(out_of_step());
        }
        if all.iter().any(|sent| sent.word == Word::Yes) {
            self.decided.store(true, Ordering::Relaxed);
            return Err(PeerError::Elsewhere);
        }
        Ok(all.into_iter().map(|sent| sent.numbers).collect())
    }
}

/// Where one process came to decide "no" while another one came for something else: they have not done the same so far.
fn out_of_step() -> PeerError {
    PeerError::Lost("they are not at the same place of the run".to_owned())
}

impl<E: Exchange> Peers for Group<E> {
    fn rank(&self) -> usize {
        self.exchange.rank()
    }

    fn ranks(&self) -> usize {
        self.exchange.ranks()
    }

    fn gather(&mut self, here: &[f64]) -> Result<Vec<Vec<f64>>, PeerError> {
        self.numbers(here.to_vec(), Until::Limit)
    }
}

impl<E: Exchange> Sums for Group<E> {
    fn least_to_begin(&self) -> Option<usize> {
        self.exchange.least_to_begin()
    }

    fn memory(&self, lengths: &[usize], wire: Wire) -> SumMemory {
        self.exchange.memory(lengths, wire)
    }

    fn prepare(&mut self, tensors: &ParamSet, wire: Wire) -> Result<(), PeerError> {
        self.exchange.prepare(tensors, wire)
    }

    fn begin_sum(&mut self, tensors: &mut ParamSet, which: Range<usize>, wire: Wire) -> Result<(), PeerError> {
        self.timed(|exchange| exchange.begin_sum(tensors, which, wire))
    }

    fn sum(&mut self, tensors: &mut ParamSet, wire: Wire) -> Result<(), PeerError> {
        self.timed(|exchange| exchange.sum(tensors, wire))
    }

    fn put_together(&mut self, shares: &ParamSet, to: Recipient<'_>) -> Result<(), PeerError> {
        self.timed(|exchange| exchange.put_together(shares, to))
    }
}

impl<E: Exchange> Reduce for Group<E> {
    fn any(&mut self, here: bool, until: Until) -> Result<bool, PeerError> {
        if self.decided.swap(false, Ordering::Relaxed) {
            return Ok(true);
        }
        let word = if here { Word::Yes } else { Word::No };
        let all = self.timed(|exchange| exchange.meet(Sent { word, numbers: Vec::new() }, until))?;
        let said = |word: Word| all.iter().any(|sent| sent.word == word);
        if said(Word::Numbers) && said(Word::No) {
            return Err(out_of_step());
        }
        Ok(said(Word::Yes))
    }

    fn told(&mut self, word: f64, until: Until) -> Result<f64, PeerError> {
        let all = self.numbers(vec![word], until)?;
        Ok(all.first().and_then(|first| first.first()).copied().unwrap_or(word))
    }

    fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }
}
