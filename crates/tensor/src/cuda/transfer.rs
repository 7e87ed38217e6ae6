//! Copies between host and device.
//!
//! Host data goes through a ring of pinned memory: the tables of a step (segments, addresses of parameters) without anybody
//! waiting for them, more than the ring holds with a wait. Results that the host needs are waited for.

use std::sync::{Mutex, PoisonError};
use std::thread;

use cudarc::driver::{result, sys};

use super::{Cuda, CudaBuffer};

/// Bytes of the ring.
const RING: usize = 32 << 20;

/// Pinned memory and how far it is used.
pub(crate) struct Staging {
    ring: Mutex<Ring>,
}

struct Ring {
    base: *mut u8,
    used: usize,
}

// SAFETY: the memory is only touched under the lock around the ring.
unsafe impl Send for Ring {}

impl Staging {
    /// The context must be current.
    pub(crate) fn new() -> Result<Self, result::DriverError> {
        // SAFETY: plain pinned memory, kept for the life of the process.
        let base = unsafe { result::malloc_host(RING, sys::CU_MEMHOSTALLOC_PORTABLE) }?;
        Ok(Self { ring: Mutex::new(Ring { base: base.cast(), used: 0 }) })
    }
}

/// One thread copies slower than the GPU takes.
fn copy_quickly(from: &[u8], to: &mut [u8]) {
    /// Bytes that are worth a thread.
    const SHARE: usize = 1 << 20;
    const THREADS: usize = 4;
    if from.len() < 2 * SHARE {
        return to.copy_from_slice(from);
    }
    let share = from.len().div_ceil(THREADS).max(SHARE);
    let parts = Mutex::new(from.chunks(share).zip(to.chunks_mut(share)));
    let work = || {
        let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
        while let Some((from, to)) = next() {
            to.copy_from_slice(from);
        }
    };
    thread::scope(|scope| {
        for _ in 1..from.len().div_ceil(share) {
            // A thread that the system refuses is one fewer to share the work.
            _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}

impl Cuda {
    /// Queues a copy of host values into device memory, which must be large enough.
    pub(crate) fn upload<T: bytemuck::NoUninit>(&self, address: u64, values: &[T]) {
        if values.is_empty() || address == 0 || !self.is_usable() {
            return;
        }
        self.bind();
        let mut ring = self.gpu.staging.ring.lock().unwrap_or_else(PoisonError::into_inner);
        for (i, part) in bytemuck::cast_slice::<T, u8>(values).chunks(RING / 4).enumerate() {
            if ring.used + part.len() > RING {
                // Everything queued from the ring has to be through before its memory is written again.
                // SAFETY: our stream.
                let done = unsafe { result::stream::synchronize(self.gpu.stream) };
                self.check("copying to the GPU", done);
                ring.used = 0;
            }
            // SAFETY: the part fits behind what is used, and nobody else writes there: the lock is held.
            let staged = unsafe {
                let place = ring.base.add(ring.used);
                copy_quickly(part, std::slice::from_raw_parts_mut(place, part.len()));
                std::slice::from_raw_parts(place.cast_const(), part.len())
            };
            ring.used += part.len().next_multiple_of(256);
            let to = address + (i * (RING / 4)) as u64;
            // SAFETY: the caller's memory on the device is large enough, and the ring keeps the bytes until the copy is done.
            let done = unsafe { result::memcpy_htod_async(to, staged, self.gpu.stream) };
            self.check("copying to the GPU", done);
        }
    }

    /// Host values in device memory of their own.
    pub(crate) fn uploaded<T: bytemuck::NoUninit>(&self, values: &[T]) -> CudaBuffer {
        let buffer = self.scratch(std::mem::size_of_val(values));
        self.upload(buffer.address(), values);
        buffer
    }

    /// Waits for all queued work and copies values to the host; zeros where the device has failed.
    pub(crate) fn download<T: bytemuck::Pod>(&self, address: u64, count: usize) -> Vec<T> {
        let mut values = vec![T::zeroed(); count];
        if count == 0 || address == 0 || !self.is_usable() {
            return values;
        }
        self.bind();
        // SAFETY: the memory holds at least this many values, and the copy is waited for before anybody reads them.
        let done = unsafe {
            result::memcpy_dtoh_async(&mut values, address, self.gpu.stream)
                .and_then(|()| result::stream::synchronize(self.gpu.stream))
        };
        self.check("copying from the GPU", done);
        values
    }

    /// Queues zeros: all types have zero as bytes of zero.
    pub(crate) fn clear(&self, address: u64, bytes: usize) {
        if bytes == 0 || address == 0 || !self.is_usable() {
            return;
        }
        self.bind();
        // SAFETY: the caller's memory on the device is at least this large.
        let clear = || unsafe { result::memset_d8_async(address, 0, bytes, self.gpu.stream) };
        let done = self.timed("elementwise", || "clear".to_owned(), clear);
        self.check("clearing memory of the GPU", done);
    }

    /// Queues a copy inside the device.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: usize) {
        if bytes == 0 || to == 0 || from == 0 || !self.is_usable() {
            return;
        }
        self.bind();
        // SAFETY: both pieces are at least this large and do not overlap.
        let done = unsafe { result::memcpy_dtod_async(to, from, bytes, self.gpu.stream) };
        self.check("copying on the GPU", done);
    }
}
