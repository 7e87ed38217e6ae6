//! What moves many numbers between processes, once all of them are known to come for it.
//!
//! Processes on GPUs meet at a desk that carries words and a few numbers, knows who is missing and cannot be held up by a GPU;
//! what is large goes from GPU to GPU. This is the second half: NCCL, or the memory of one program in tests.

use std::sync::Arc;

use super::{PeerError, Sums};

/// A way for many numbers to travel.
pub trait Carrier: Sums {
    /// The numbers of all processes one after another, of which each has the length given for it.
    fn gather(&mut self, here: &[f64], lengths: &[usize]) -> Result<Vec<f64>, PeerError>;

    /// Ends what is on its way, from any thread, so that nobody waits for a process that is gone. Whatever comes later is an error.
    fn give_up(&self) -> Arc<dyn Fn() + Send + Sync>;
}

impl<C: Carrier + ?Sized> Carrier for Box<C> {
    fn gather(&mut self, here: &[f64], lengths: &[usize]) -> Result<Vec<f64>, PeerError> {
        (**self).gather(here, lengths)
    }

    fn give_up(&self) -> Arc<dyn Fn() + Send + Sync> {
        (**self).give_up()
    }
}
