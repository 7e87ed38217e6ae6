//! The order of samples within an epoch, and of batches within a run.

use random::{Key, Purpose};
use std::sync::Arc;

/// The permutation of an epoch: a function of (seed, epoch, number of images) alone.
pub fn epoch_order(seed: u64, epoch: u64, len: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..len).collect();
    Key::new(seed, Purpose::Shuffle).epoch(epoch).stream().shuffle(&mut order);
    order
}

/// Whole batches in an epoch. The remaining images are dropped; they differ from epoch to epoch.
pub fn batches_per_epoch(images: usize, batch_size: usize) -> usize {
    images / batch_size.max(1)
}

/// Which repetition of its image sample `slot` of batch `position` is, counted from 0, where a single loader repeats every
/// image so often.
pub fn repetition(position: usize, batch_size: usize, slot: usize, repeats: usize) -> usize {
    Shard::default().rank(position, batch_size, slot) % repeats.max(1)
}

/// A place in the run: batch `position` of `epoch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub epoch: u64,
    pub position: usize,
}

/// One of several loaders that share the samples of every step, one loader for each device. The samples of a step do not
/// depend on the number of loaders, only on the sum of their batch sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The number of this loader, from 0.
    pub number: usize,
    /// The number of loaders.
    pub of: usize,
}

impl Default for Shard {
    /// A single loader.
    fn default() -> Self {
        Self { number: 0, of: 1 }
    }
}

impl Shard {
    /// The index in the epoch's order of sample `slot` of batch `position`.
    pub(super) fn rank(&self, position: usize, batch_size: usize, slot: usize) -> usize {
        (position * self.of + self.number) * batch_size + slot
    }
}

/// Iterates over the batches of a run, with the permutation of each one's epoch.
pub(super) struct Schedule {
    seed: u64,
    len: u32,
    batches_per_epoch: usize,
    next: Place,
    end_epoch: u64,
    order: Option<(u64, Arc<Vec<u32>>)>,
}

impl Schedule {
    pub(super) fn new(seed: u64, len: u32, batches_per_epoch: usize, start: Place, end_epoch: u64) -> Self {
        Self { seed, len, batches_per_epoch, next: start, end_epoch, order: None }
    }

    /// The next place, or none after the last epoch.
    pub(super) fn advance(&mut self) -> Option<(Place, Arc<Vec<u32>>)> {
        if self.next.position >= self.batches_per_epoch {
            self.next = Place { epoch: self.next.epoch + 1, position: 0 };
        }
        if self.next.epoch >= self.end_epoch {
            return None;
        }
        let place = self.next;
        self.next.position += 1;
        let order = match &self.order {
            Some((epoch, order)) if *epoch == place.epoch => Arc::clone(order),
            _ => {
                let order = Arc::new(epoch_order(self.seed, place.epoch, self.len));
                self.order = Some((place.epoch, Arc::clone(&order)));
                order
            }
        };
        Some((place, order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_is_another_permutation_of_all_images() {
        let (a, b) = (epoch_order(3, 0, 1000), epoch_order(3, 1, 1000));
        assert_ne!(a, b);
        for mut order in [a, b] {
            order.sort_unstable();
            assert!(order.into_iter().eq(0..1000));
        }
    }

    #[test]
    fn places_run_through_epochs_and_stop() {
        let start = Place { epoch: 1, position: 2 };
        let mut schedule = Schedule::new(0, 10, 3, start, 3);
        let mut places = Vec::new();
        while let Some((place, order)) = schedule.advance() {
            assert_eq!(*order, epoch_order(0, place.epoch, 10));
            places.push((place.epoch, place.position));
        }
        assert_eq!(places, [(1, 2), (2, 0), (2, 1), (2, 2)]);
    }

    #[test]
    fn a_start_behind_the_last_batch_is_the_next_epoch() {
        let mut schedule = Schedule::new(0, 10, 3, Place { epoch: 4, position: 3 }, 6);
        assert_eq!(schedule.advance().map(|(place, _)| place), Some(Place { epoch: 5, position: 0 }));
    }
}
