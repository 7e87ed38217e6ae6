//! What moves many numbers between processes, once all of them are known to come for it.
//!
//! Processes on GPUs meet at a desk that carries words and a few numbers, knows who is missing and cannot be held up by a GPU;
//! what is large goes from GPU to GPU. This is the second half: NCCL, or the memory of one program in tests.

use std::ops::Range;
use std::sync::Arc;

use tensor::ParamSet;

use super::{PeerError, Recipient, Wire};

/// Bytes of a device's memory that sums between processes take beside the tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CarrierMemory {
    /// For numbers on their way, taken by [`Carrier::prepare`] from the memory of tensors.
    pub staging: usize,
    /// What the library that carries them has taken for itself.
    pub own: u64,
}

/// A way for many numbers to travel.
pub trait Carrier: Send {
    /// How many elements are worth a sum of their own before all gradients are there; none where all are summed together at
    /// the end.
    fn least_to_begin(&self) -> Option<usize> {
        None
    }

    /// What sums of tensors of these lengths take beside them.
    fn memory(&self, lengths: &[usize], wire: Wire) -> CarrierMemory {
        _ = (lengths, wire);
        CarrierMemory::default()
    }

    /// Takes that memory, before the first sum of tensors like these.
    fn prepare(&mut self, tensors: &ParamSet, wire: Wire) -> Result<(), PeerError> {
        _ = (tensors, wire);
        Ok(())
    }

    /// Begins to replace the tensors of some ids by their sums, which nobody may touch until [`Carrier::sum`] has completed
    /// that and summed the rest.
    fn begin_sum(&mut self, tensors: &mut ParamSet, which: Range<usize>, wire: Wire) -> Result<(), PeerError> {
        _ = (tensors, which, wire);
        Ok(())
    }

    /// Replaces each tensor by its sum over all processes.
    fn sum(&mut self, tensors: &mut ParamSet, wire: Wire) -> Result<(), PeerError>;

    /// Puts the shares of all processes together.
    fn put_together(&mut self, shares: &ParamSet, to: Recipient<'_>) -> Result<(), PeerError>;

    /// The numbers of all processes one after another, of which each has the length given for it.
    fn gather(&mut self, here: &[f64], lengths: &[usize]) -> Result<Vec<f64>, PeerError>;

    /// Ends what is on its way, from any thread, so that nobody waits for a process that is gone. Whatever comes later is an error.
    fn give_up(&self) -> Arc<dyn Fn() + Send + Sync>;
}

impl<C: Carrier + ?Sized> Carrier for Box<C> {
    fn least_to_begin(&self) -> Option<usize> {
        (**self).least_to_begin()
    }

    fn memory(&self, lengths: &[usize], wire: Wire) -> CarrierMemory {
        (**self).memory(lengths, wire)
    }

    fn prepare(&mut self, tensors: &ParamSet, wire: Wire) -> Result<(), PeerError> {
        (**self).prepare(tensors, wire)
    }

    fn begin_sum(&mut self, tensors: &mut ParamSet, which: Range<usize>, wire: Wire) -> Result<(), PeerError> {
        (**self).begin_sum(tensors, which, wire)
    }

    fn sum(&mut self, tensors: &mut ParamSet, wire: Wire) -> Result<(), PeerError> {
        (**self).sum(tensors, wire)
    }

    fn put_together(&mut self, shares: &ParamSet, to: Recipient<'_>) -> Result<(), PeerError> {
        (**self).put_together(shares, to)
    }

    fn gather(&mut self, here: &[f64], lengths: &[usize]) -> Result<Vec<f64>, PeerError> {
        (**self).gather(here, lengths)
    }

    fn give_up(&self) -> Arc<dyn Fn() + Send + Sync> {
        (**self).give_up()
    }
}
