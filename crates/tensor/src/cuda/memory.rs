//! Device memory: a few large blocks of the driver's, cut up here.
//!
//! All that works on an arena's memory is queued on one stream, so memory that a dropped tensor gives back can be handed out
//! again at once: whatever still reads it was queued before whatever writes it next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use cudarc::driver::result;

use crate::device::DeviceUse;

/// Alignment of every piece: enough for any vector access, and for cuBLASLt's fastest kernels.
pub(super) const ALIGNMENT: u64 = 512;

/// The smallest block that is taken from the driver.
const LEAST_BLOCK: u64 = 64 << 20;

/// A piece of device memory, which goes back to its arena when dropped.
pub(crate) struct Piece {
    arena: Arc<Arena>,
    address: u64,
    bytes: u64,
}

impl Piece {
    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.arena.lock().give_back(self.address, self.bytes);
    }
}

/// The memory of one device.
pub(crate) struct Arena {
    state: Mutex<State>,
}

/// The driver would not give more.
#[derive(Debug)]
pub(crate) struct Exhausted {
    /// What was asked for.
    pub wanted: u64,
    /// What is held already.
    pub held: u64,
}

#[derive(Default)]
struct State {
    /// Where the driver's blocks begin; free pieces are never joined across such a place.
    blocks: BTreeSet<u64>,
    by_address: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    live: u64,
    held: u64,
    /// Whether there is no memory behind the addresses.
    planned: bool,
    /// The end of the highest piece ever handed out.
    highest: u64,
}

impl State {
    fn add(&mut self, address: u64, bytes: u64) {
        self.by_address.insert(address, bytes);
        self.by_size.insert((bytes, address));
    }

    fn remove(&mut self, address: u64, bytes: u64) {
        self.by_address.remove(&address);
        self.by_size.remove(&(bytes, address));
    }

    /// The smallest free piece that is large enough, cut to size.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let &(size, address) = self.by_size.range((bytes, 0)..).next()?;
        self.remove(address, size);
        if size > bytes {
            self.add(address + bytes, size - bytes);
        }
        self.live += bytes;
        self.highest = self.highest.max(address + bytes);
        Some(address)
    }

    fn give_back(&mut self, mut address: u64, mut bytes: u64) {
        self.live -= bytes;
        let end = address + bytes;
        if let Some(&after) = self.by_address.get(&end).filter(|_| !self.blocks.contains(&end)) {
            self.remove(end, after);
            bytes += after;
        }
        if let Some((&before, &size)) = self.by_address.range(..address).next_back()
            && before + size == address
            && !self.blocks.contains(&address)
        {
            self.remove(before, size);
            (address, bytes) = (before, bytes + size);
        }
        self.add(address, bytes);
    }
}

impl Arena {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default() })
    }

    /// Addresses without memory behind them, and without end: for learning how much a plan needs.
    pub(crate) fn for_plan() -> Arc<Self> {
        let mut state = State { planned: true, ..State::default() };
        state.add(ALIGNMENT, 1 << 50);
        Arc::new(Self { state: Mutex::new(state) })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A piece of at least `bytes`; the device's context must be current.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Result<Piece, Exhausted> {
        let bytes = (bytes as u64).next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        let mut state = self.lock();
        let address = match state.take(bytes) {
            Some(address) => address,
            None => {
                grow(&mut state, bytes)?;
                state.take(bytes).ok_or(Exhausted { wanted: bytes, held: state.held })?
            }
        };
        Ok(Piece { arena: self.clone(), address, bytes })
    }

    /// Makes sure that a free piece of this size is there.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), Exhausted> {
        let mut state = self.lock();
        if state.by_size.range((bytes, 0)..).next().is_none() { grow(&mut state, bytes) } else { Ok(()) }
    }

    pub(crate) fn in_use(&self) -> DeviceUse {
        let state = self.lock();
        let peak = if state.planned { state.highest } else { state.held };
        DeviceUse { live_bytes: state.live as usize, peak_bytes: peak as usize }
    }
}

fn grow(state: &mut State, bytes: u64) -> Result<(), Exhausted> {
    let wanted = bytes.max(LEAST_BLOCK).next_multiple_of(2 << 20);
    // SAFETY: plain allocation; the context is current. The block lives as long as the process's context.
    let address =
        [wanted, bytes].into_iter().find_map(|b| unsafe { result::malloc_sync(b as usize) }.ok().map(|a| (a, b)));
    let Some((address, size)) = address else { return Err(Exhausted { wanted: bytes, held: state.held }) };
    state.blocks.insert(address);
    state.held += size;
    state.add(address, size);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena(bytes: u64) -> State {
        let mut state = State::default();
        state.blocks.insert(1 << 20);
        state.add(1 << 20, bytes);
        state
    }

    #[test]
    fn pieces_close_up_again_in_whatever_order_they_come_back() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut state = arena(6144);
            let pieces: Vec<u64> = [1024, 2048, 3072].iter().map(|&b| state.take(b).unwrap()).collect();
            assert_eq!(state.take(512), None);
            for i in order {
                state.give_back(pieces[i], [1024, 2048, 3072][i]);
            }
            assert_eq!((state.live, state.take(6144)), (0, Some(1 << 20)));
        }
    }

    #[test]
    fn the_smallest_hole_that_fits_is_taken() {
        let mut state = arena(8192);
        let pieces: Vec<u64> = [2048, 512, 1024, 512].iter().map(|&b| state.take(b).unwrap()).collect();
        state.give_back(pieces[0], 2048);
        state.give_back(pieces[2], 1024);
        assert_eq!(state.take(1024), Some(pieces[2]));
    }

    #[test]
    fn neighbouring_blocks_of_the_driver_stay_apart() {
        let mut state = arena(1024);
        state.blocks.insert((1 << 20) + 1024);
        state.add((1 << 20) + 1024, 1024);
        let (a, b) = (state.take(1024).unwrap(), state.take(1024).unwrap());
        state.give_back(a, 1024);
        state.give_back(b, 1024);
        assert_eq!(state.take(2048), None);
    }
}
