//! Buffers that go back to a pool when dropped.
//!
//! A training step takes and returns the same sizes over and over. Fresh memory from the system costs a page fault for
//! every 4 KiB, about a tenth of a step; a pool pays that once. Free buffers are kept by size; a request takes
//! the smallest that fits with at most a quarter of waste, because drop path makes sizes vary from step to step.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use aligned_vec::{AVec, RuntimeAlign};

use super::Real;
use crate::device::DeviceUse;

type Block<T> = AVec<T, RuntimeAlign>;

const CACHE_LINE: usize = 64;
const HUGE_PAGE: usize = 2 << 20;

/// Blocks are aligned to a cache line, so that a vector load never touches two; large ones to a huge page, so that the
/// system can back them with huge pages.
fn alignment(bytes: usize) -> usize {
    if bytes >= HUGE_PAGE { HUGE_PAGE } else { CACHE_LINE }
}

/// Asks for huge pages: a step walks through gigabytes, and with pages of 4 KiB a good part of its time is looking them
/// up. A hint that the system may ignore.
#[cfg(target_os = "linux")]
fn prefer_huge_pages<T>(block: &Block<T>, bytes: usize) {
    if bytes >= HUGE_PAGE {
        // SAFETY: the range is the block's own allocation, and the advice changes neither its content nor its validity.
        unsafe { libc::madvise(block.as_ptr().cast_mut().cast(), bytes, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn prefer_huge_pages<T>(_: &Block<T>, _: usize) {}

/// Free blocks of one element type, by their size.
pub(crate) struct Shelf<T> {
    free: Mutex<BTreeMap<usize, Vec<Block<T>>>>,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { free: Mutex::default() }
    }
}

/// The free blocks of every element type.
#[derive(Default)]
pub(crate) struct Shelves {
    pub(super) f32: Shelf<f32>,
    pub(super) f64: Shelf<f64>,
    count: Mutex<Count>,
}

#[derive(Default)]
struct Count {
    live: usize,
    held: usize,
    peak: usize,
}

/// The memory of one device.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    shelves: Arc<Shelves>,
}

impl Memory {
    /// A buffer of `len` elements whose content is whatever was there; NaN where debug assertions are on, so that a
    /// test notices a kernel that reads what nobody wrote.
    pub(super) fn take<T: Real>(&self, len: usize) -> Buffer<T> {
        let block = self.take_block::<T>(len);
        let mut buffer = Buffer { block: Some(block), len, shelves: self.shelves.clone() };
        if cfg!(debug_assertions) {
            buffer.elements_mut().fill(T::from_f64(f64::NAN));
        }
        buffer
    }

    fn take_block<T: Real>(&self, len: usize) -> Block<T> {
        let mut free = T::shelf(&self.shelves).free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut count = self.shelves.count.lock().unwrap_or_else(PoisonError::into_inner);
        let fit = free.range(len..=len + len / 4).next().map(|(&size, _)| size);
        if let Some(size) = fit
            && let Some(blocks) = free.get_mut(&size)
            && let Some(block) = blocks.pop()
        {
            if blocks.is_empty() {
                free.remove(&size);
            }
            count.live += size * size_of::<T>();
            return block;
        }
        // Rounded up by at most an eighth, so that sizes that differ a little share blocks.
        let grain = (len.next_power_of_two() / 16).max(16);
        let size = len.div_ceil(grain) * grain;
        let bytes = size * size_of::<T>();
        count.live += bytes;
        count.held += bytes;
        count.peak = count.peak.max(count.held);
        drop((free, count));
        let mut block = Block::with_capacity(alignment(bytes), size);
        prefer_huge_pages(&block, bytes);
        block.resize(size, T::ZERO);
        block
    }

    pub(super) fn in_use(&self) -> DeviceUse {
        let count = self.shelves.count.lock().unwrap_or_else(PoisonError::into_inner);
        DeviceUse { live_bytes: count.live, peak_bytes: count.peak }
    }
}

/// Memory of one tensor; back to the pool when dropped.
pub(crate) struct Buffer<T: Real> {
    block: Option<Block<T>>,
    len: usize,
    shelves: Arc<Shelves>,
}

impl<T: Real> Buffer<T> {
    pub(super) fn elements(&self) -> &[T] {
        self.block.as_ref().map_or(&[], |b| &b[..self.len])
    }

    pub(super) fn elements_mut(&mut self) -> &mut [T] {
        self.block.as_mut().map_or(&mut [], |b| &mut b[..self.len])
    }
}

impl<T: Real> Drop for Buffer<T> {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        let size = block.len();
        let mut free = T::shelf(&self.shelves).free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut count = self.shelves.count.lock().unwrap_or_else(PoisonError::into_inner);
        count.live -= size * size_of::<T>();
        free.entry(size).or_default().push(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_taken_again() {
        let memory = Memory::default();
        let first = memory.take::<f32>(1000);
        let address = first.elements().as_ptr();
        drop(first);
        let again = memory.take::<f32>(990);
        assert_eq!(again.elements().as_ptr(), address);
        assert_eq!(again.elements().len(), 990);
        let held = memory.in_use().peak_bytes;
        drop(memory.take::<f32>(16));
        assert!(memory.in_use().peak_bytes > held);
        assert!(memory.in_use().live_bytes >= 990 * 4);
    }

    #[test]
    fn sizes_that_vary_a_little_do_not_grow_the_pool() {
        let memory = Memory::default();
        for i in 0..1000 {
            drop(memory.take::<f64>(10_000 - i));
        }
        assert!(memory.in_use().peak_bytes < 3 * 10_000 * 8, "{}", memory.in_use().peak_bytes);
    }
}
