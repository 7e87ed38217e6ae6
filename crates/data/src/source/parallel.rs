//! Many small file operations in parallel: on a network drive each costs a round trip.

use std::sync::{Mutex, PoisonError};

/// More threads than cores, because they mostly wait.
const HELPERS: usize = 15;

/// `work(0)`, `work(1)`, ... `work(count - 1)`, computed by several threads that take `share` numbers at a time.
pub(super) fn map<T: Send>(count: usize, share: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let mut made: Vec<Option<T>> = (0..count).map(|_| None).collect();
    for_each(&mut made, share, |i, made| *made = Some(work(i)));
    made.into_iter().flatten().collect()
}

/// Calls `work` on every item and its number.
fn for_each<T: Send>(items: &mut [T], share: usize, work: impl Fn(usize, &mut T) + Sync) {
    let helpers = HELPERS.min(items.len().saturating_sub(1) / share.max(1));
    let parts = Mutex::new(items.chunks_mut(share.max(1)).enumerate());
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        while let Some((part, items)) = next() {
            items.iter_mut().enumerate().for_each(|(i, item)| work(part * share + i, item));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..helpers {
            // If the system refuses a thread, the others do its work.
            _ = std::thread::Builder::new().spawn_scoped(scope, run);
        }
        run();
    });
}
