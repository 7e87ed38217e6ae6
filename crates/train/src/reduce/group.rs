//! How processes that can exchange numbers decide and fail as one, however the numbers travel.
//!
//! Everything but the sum of gradients is one kind of meeting: each process brings a word and some numbers, and sees those of
//! all. The word says what it came for. A process that fails in the middle of a step comes for the decision at the step's
//! end, while the others still come to share numbers. They see its word, and know: their step ends with
//! [`PeerError::Elsewhere`], and the decision that they would come for next has been made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tensor::ParamSet;

use super::{PeerError, Peers, Reduce};

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
pub trait Exchange: Send {
    /// The number of this process, from 0.
    fn rank(&self) -> usize;

    /// How many processes there are.
    fn ranks(&self) -> usize;

    /// What all processes have brought, in their order.
    fn meet(&mut self, here: Sent) -> Result<Vec<Sent>, PeerError>;

    /// Replaces each tensor by its sum over all processes. Every one of them is known to come for this.
    fn sum(&mut self, tensors: &mut ParamSet) -> Result<(), PeerError>;
}

/// Processes that train together. A clone is the same process.
#[derive(Clone, Debug)]
pub struct Group<E> {
    exchange: E,
    /// Whether a failure elsewhere has made the next decision already.
    decided: Arc<AtomicBool>,
}

impl<E: Exchange> Group<E> {
    /// Processes that exchange numbers in this way.
    pub fn new(exchange: E) -> Self {
        Self { exchange, decided: Arc::default() }
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
        let all = self.exchange.meet(Sent { word: Word::Numbers, numbers: here.to_vec() })?;
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

impl<E: Exchange> Reduce for Group<E> {
    fn sum(&mut self, tensors: &mut ParamSet) -> Result<(), PeerError> {
        self.exchange.sum(tensors)
    }

    fn any(&mut self, here: bool) -> Result<bool, PeerError> {
        if self.decided.swap(false, Ordering::Relaxed) {
            return Ok(true);
        }
        let word = if here { Word::Yes } else { Word::No };
        let all = self.exchange.meet(Sent { word, numbers: Vec::new() })?;
        let said = |word: Word| all.iter().any(|sent| sent.word == word);
        if said(Word::Numbers) && said(Word::No) {
            return Err(out_of_step());
        }
        Ok(said(Word::Yes))
    }
}
