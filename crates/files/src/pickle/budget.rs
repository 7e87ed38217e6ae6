//! The memory of a reader, counted before it is taken.

use super::{Limits, Problem};

/// What the system's allocator takes for itself with each piece of memory, about.
const PIECE: usize = 16;

/// Elements of a list when it gets its first one.
const FIRST: usize = 4;

/// What is left of the [`Limits`] of bytes.
///
/// Whatever grows moves to a larger place, and for a moment has both: the budget asks for the sum, so that the limit holds
/// at every moment. Nothing that the pickle drops again is given back; a pickle drops little.
pub struct Budget {
    left: usize,
    limit: usize,
}

impl Budget {
    /// All that the limits allow.
    pub fn new(limits: &Limits) -> Self {
        Self { left: limits.bytes, limit: limits.bytes }
    }

    /// Whether as much is left.
    pub fn check(&self, bytes: u64) -> Result<(), Problem> {
        if bytes > self.left as u64 { Err(Problem::TooManyBytes { limit: self.limit }) } else { Ok(()) }
    }

    /// Takes so many bytes.
    pub fn take(&mut self, bytes: usize) -> Result<(), Problem> {
        self.check(bytes as u64)?;
        self.left -= bytes;
        Ok(())
    }

    /// Takes a piece of memory of so many bytes.
    pub fn take_piece(&mut self, bytes: usize) -> Result<(), Problem> {
        self.take(bytes.saturating_add(PIECE))
    }

    /// Makes room for `more` elements, and no more than these.
    pub fn grow<T>(&mut self, list: &mut Vec<T>, more: usize) -> Result<(), Problem> {
        let (before, after) = (list.capacity(), list.len().saturating_add(more));
        if after > before {
            self.check((after as u64).saturating_mul(size_of::<T>() as u64))?;
            self.take((after - before) * size_of::<T>() + if before == 0 { PIECE } else { 0 })?;
            list.reserve_exact(more);
        }
        Ok(())
    }

    /// Adds an element, and makes room for as many again where there is none left.
    pub fn push<T>(&mut self, list: &mut Vec<T>, element: T) -> Result<(), Problem> {
        if list.len() == list.capacity() {
            self.grow(list, list.len().max(FIRST))?;
        }
        list.push(element);
        Ok(())
    }
}
