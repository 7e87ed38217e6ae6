//! Images copied to the GPU ahead of the step that reads them.
//!
//! The copy, and what is to be done to the images after it, run on a stream of their own, beside the step before. Pinned
//! memory and device memory of a batch form a slot, which later batches use again: two events say when the images in it
//! are ready, and when the last kernel that read them is through. Slots have memory of their own, because that of tensors
//! is handed on in the order of the other stream.

use std::sync::{Arc, Mutex};

use cudarc::driver::{result, sys};

use super::Cuda;
use super::memory::{Arena, Piece};
use super::views::Packed;
use crate::ops::ViewEdit;

/// Offset of the edits of views in a slot: behind this many bytes of pixels.
fn edits_at(pixels: usize) -> usize {
    pixels.next_multiple_of(16)
}

/// Room for the bytes of a batch.
struct Slot {
    bytes: usize,
    pinned: *mut u8,
    device: Piece,
    ready: sys::CUevent,
    read: sys::CUevent,
}

// SAFETY: a slot belongs to one batch, or to the pool behind its lock.
unsafe impl Send for Slot {}
// SAFETY: as above; nothing is written through a shared reference.
unsafe impl Sync for Slot {}

/// Slots that no batch uses, and the memory that all slots are made of.
pub(super) struct Slots {
    stream: sys::CUstream,
    arena: Arc<Arena>,
    free: Arc<Mutex<Vec<Slot>>>,
}

/// The pixels of a batch on the GPU, or on their way there.
pub struct UploadedPixels {
    slot: Option<Slot>,
    len: usize,
    compute: sys::CUstream,
    free: Arc<Mutex<Vec<Slot>>>,
}

// SAFETY: the stream's handle may be used from any thread.
unsafe impl Send for UploadedPixels {}
// SAFETY: as above.
unsafe impl Sync for UploadedPixels {}

impl UploadedPixels {
    /// Bytes of GPU memory that this many bytes of pixels take, with what is to be done to this many views of them.
    pub fn room(pixels: usize, edits: usize) -> usize {
        (edits_at(pixels) + edits * size_of::<Packed>()).next_multiple_of(super::memory::ALIGNMENT as usize)
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl std::fmt::Debug for UploadedPixels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes on the GPU", self.len)
    }
}

impl Drop for UploadedPixels {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            // SAFETY: the slot's own event; whatever read the slot was queued before.
            if unsafe { result::event::record(slot.read, self.compute) }.is_err() {
                // The GPU has failed, which later work reports; a slot without its event is not used again.
                std::mem::forget(slot);
                return;
            }
            self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(slot);
        }
    }
}

impl Slots {
    /// The context must be current.
    pub(super) fn new() -> Result<Self, result::DriverError> {
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        Ok(Self { stream, arena: Arena::new(), free: Arc::default() })
    }

    pub(super) fn in_use(&self) -> crate::DeviceUse {
        self.arena.in_use()
    }

    /// One of exactly this size: a larger one is what the next larger batch waits for, and memory for one more was not
    /// reserved.
    fn take(&self, bytes: usize) -> Option<Slot> {
        let mut free = self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let fitting = free.iter().position(|slot| slot.bytes == bytes)?;
        Some(free.swap_remove(fitting))
    }
}

impl Cuda {
    fn new_slot(&self, bytes: usize) -> Option<Slot> {
        let device = self.gpu.slots.arena.take(bytes).map_err(|e| self.fail(self.out_of_memory(&e))).ok()?;
        let event = || result::event::create(sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING);
        // SAFETY: plain pinned memory, kept for the life of the process with its slot.
        let pinned = unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
        match (pinned, event(), event()) {
            (Ok(pinned), Ok(ready), Ok(read)) => Some(Slot { bytes, pinned: pinned.cast(), device, ready, read }),
            (pinned, ready, read) => {
                let failed = pinned.err().or(ready.err()).or(read.err());
                self.check("memory for copies to the GPU", failed.map_or(Ok(()), Err));
                None
            }
        }
    }

    /// Starts copying bytes to the GPU and returns before they are there. Edits, one for each view of a (height, width), are
    /// made as soon as the bytes are.
    pub(crate) fn upload_pixels(
        &self,
        pixels: &[u8],
        to_edit: Option<((usize, usize), &[ViewEdit])>,
    ) -> UploadedPixels {
        let edits = to_edit.map_or(&[][..], |(_, edits)| edits);
        self.bind();
        let can_be_sent = self.is_usable() && !pixels.is_empty();
        let room = UploadedPixels::room(pixels.len(), edits.len());
        let slot = can_be_sent.then(|| self.gpu.slots.take(room).or_else(|| self.new_slot(room))).flatten();
        if let Some(slot) = &slot {
            let stream = self.gpu.slots.stream;
            let edits_at = edits_at(pixels.len());
            // SAFETY: the slot is ours alone and large enough. Its pinned memory may be written once the images before are
            // ready, which is after their copy; its device memory once the kernels that read it are through.
            let done = unsafe {
                result::event::synchronize(slot.ready).and_then(|()| {
                    std::ptr::copy_nonoverlapping(pixels.as_ptr(), slot.pinned, pixels.len());
                    for (i, edit) in edits.iter().enumerate() {
                        slot.pinned.add(edits_at).cast::<Packed>().add(i).write(Packed::new(edit));
                    }
                    let used = edits_at + edits.len() * size_of::<Packed>();
                    let staged = std::slice::from_raw_parts(slot.pinned.cast_const(), used);
                    let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
                    result::stream::wait_event(stream, slot.read, flags)?;
                    result::memcpy_htod_async(slot.device.address(), staged, stream)?;
                    if let Some((size, _)) = to_edit {
                        let at = slot.device.address();
                        self.edit_views(stream, (at, at + edits_at as u64), size, edits.len());
                    }
                    result::event::record(slot.ready, stream)
                })
            };
            self.check("copying images to the GPU", done);
        }
        UploadedPixels { slot, len: pixels.len(), compute: self.gpu.stream, free: self.gpu.slots.free.clone() }
    }

    /// Takes memory for the pixels of batches to come, as [`Cuda::reserve`] does for tensors.
    pub(crate) fn reserve_pixels(&self, bytes: u64) -> Result<(), crate::DeviceError> {
        self.bind();
        self.gpu.slots.arena.reserve(bytes).map_err(|e| self.out_of_memory(&e))
    }

    /// Where uploaded pixels are; whatever is queued from now on waits for them.
    pub(super) fn uploaded_address(&self, pixels: &UploadedPixels) -> u64 {
        let Some(slot) = &pixels.slot else { return 0 };
        self.bind();
        // SAFETY: the slot's own event on our stream.
        let done = unsafe {
            result::stream::wait_event(self.gpu.stream, slot.ready, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
        };
        self.check("waiting for images", done);
        slot.device.address()
    }
}
