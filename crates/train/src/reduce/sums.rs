//! What all processes do with tensors: they replace them by their sums, and put their shares together.

use std::ops::Range;

use tensor::ParamSet;

use super::{PeerError, Wire};

/// Sums and shares of tensors over all processes, every one of which is known to come for them.
pub trait Sums: Send {
    /// How many elements are worth a sum of their own before all gradients are there; none where all are summed together at
    /// the end. The same in all processes.
    fn least_to_begin(&self) -> Option<usize> {
        None
    }

    /// What sums of tensors of these lengths take of a device's memory beside them.
    fn memory(&self, lengths: &[usize], wire: Wire) -> SumMemory {
        _ = (lengths, wire);
        SumMemory::default()
    }

    /// Takes that memory, before the first sum of tensors like these.
    fn prepare(&mut self, tensors: &ParamSet, wire: Wire) -> Result<(), PeerError> {
        _ = (tensors, wire);
        Ok(())
    }

    /// Begins to replace the tensors of some ids by their sums, which nobody may touch until [`Sums::sum`] has completed that
    /// and summed the rest: [`EarlySums`](super::EarlySums).
    fn begin_sum(&mut self, tensors: &mut ParamSet, which: Range<usize>, wire: Wire) -> Result<(), PeerError> {
        _ = (tensors, which, wire);
        Ok(())
    }

    /// Replaces each tensor by its sum over all processes.
    fn sum(&mut self, tensors: &mut ParamSet, wire: Wire) -> Result<(), PeerError>;

    /// Puts the shares of all processes together: in every process that wants the whole, of which the first is one.
    fn put_together(&mut self, shares: &ParamSet, to: Recipient<'_>) -> Result<(), PeerError>;
}

/// Bytes of a device's memory that sums between processes take beside the tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SumMemory {
    /// For numbers on their way, taken by [`Sums::prepare`] from the memory of tensors.
    pub staging: usize,
    /// What the library that carries them has taken for itself.
    pub own: u64,
}

/// Who gets what all processes put together.
#[derive(Debug)]
pub enum Recipient<'a> {
    /// All of them.
    Everyone(&'a mut ParamSet),
    /// The first one, which this is.
    First(&'a mut ParamSet),
    /// The first one, which is another.
    Another,
}

impl<S: Sums + ?Sized> Sums for Box<S> {
    fn least_to_begin(&self) -> Option<usize> {
        (**self).least_to_begin()
    }

    fn memory(&self, lengths: &[usize], wire: Wire) -> SumMemory {
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
}
