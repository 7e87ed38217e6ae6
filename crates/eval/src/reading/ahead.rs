//! Whose turn it is to be read: every image once, in order, and not too far ahead of who takes them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// How far threads may read ahead of who takes the images.
pub(super) struct Ahead {
    state: Mutex<AheadState>,
    moved: Condvar,
    total: usize,
}

struct AheadState {
    next: usize,
    limit: usize,
}

impl Ahead {
    /// Of `total` images the first `limit` may be read at once.
    pub(super) fn new(total: usize, limit: usize) -> Self {
        Self { state: Mutex::new(AheadState { next: 0, limit }), moved: Condvar::new(), total }
    }

    fn state(&self) -> MutexGuard<'_, AheadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next image to be read, when its turn has come; none after the last.
    pub(super) fn claim(&self) -> Option<usize> {
        let is_early = |state: &mut AheadState| state.next < self.total && state.next >= state.limit;
        let mut state = self.moved.wait_while(self.state(), is_early).unwrap_or_else(PoisonError::into_inner);
        let index = state.next;
        (index < self.total).then(|| {
            state.next += 1;
            index
        })
    }

    /// Lets so many more images be read.
    pub(super) fn allow(&self, images: usize) {
        self.state().limit += images;
        self.moved.notify_all();
    }

    /// There are no more images to be read.
    fn close(&self) {
        self.state().next = self.total;
        self.moved.notify_all();
    }
}

/// Closes when it is dropped. Who has claimed an image and does not bring it must let the others end: nobody would take theirs, and
/// they would wait for their turn for ever.
pub(super) struct CloseAtEnd<'a> {
    pub(super) ahead: &'a Ahead,
    /// Only where its thread panics.
    pub(super) of_panic: bool,
}

impl Drop for CloseAtEnd<'_> {
    fn drop(&mut self) {
        if !self.of_panic || thread::panicking() {
            self.ahead.close();
        }
    }
}
