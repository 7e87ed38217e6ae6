//! Which steps were trained on substitutes for images that could not be read.
//!
//! A few unreadable images do not end a run: the next readable one takes the place. That is part of the result, and the
//! same in every run on the same files. But files that are repaired in the middle of a run do not change the steps that
//! it has already taken, so its result is not that of a run which could read them from the start. The count goes into
//! every checkpoint, so that the run can say so.

use std::fmt;

use data::Batch;

use crate::state::{SavedState, State, StateError};

const KEY: &str = "substitutes";

/// The substitutes of a run so far. Steps are counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Substitutes {
    /// How often an image stood in for another.
    pub images: u64,
    /// The first step in which one did.
    pub first: u64,
    /// The last one.
    pub last: u64,
}

impl Substitutes {
    /// Those in a batch. The images whose turn it was are in `keys`, those that came in `samples`.
    pub(crate) fn in_batch(batch: &Batch) -> u64 {
        batch.keys.iter().zip(&batch.samples).filter(|(turn, came)| turn != came).count() as u64
    }

    /// Takes note of those of a step.
    pub(crate) fn note(&mut self, step: u64, count: u64) {
        if count > 0 {
            self.first = if self.images == 0 { step } else { self.first };
            self.last = step;
            self.images += count;
        }
    }

    /// Whether a step after `step` has seen one.
    pub(crate) fn are_after(&self, step: u64) -> bool {
        self.images > 0 && self.last > step
    }

    pub(crate) fn save(&self, state: &mut State<'_>) {
        state.value(KEY, vec![self.images, self.first, self.last]);
    }

    pub(crate) fn restore(saved: &SavedState<'_>) -> Result<Self, StateError> {
        let numbers = saved.numbers(KEY, 3)?;
        Ok(Self { images: numbers[0], first: numbers[1], last: numbers[2] })
    }
}

impl fmt::Display for Substitutes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = if self.images == 1 { "once".to_owned() } else { format!("{} times", self.images) };
        let steps = if self.first == self.last {
            format!("step {}", self.first)
        } else {
            format!("steps {} to {}", self.first, self.last)
        };
        write!(f, "{times} in {steps} another image stood in for one that could not be read")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(keys: [u64; 2], samples: [u64; 2]) -> Batch {
        let (keys, samples) = (keys.to_vec(), samples.to_vec());
        Batch { epoch: 0, position: 0, keys, samples, groups: vec![], substituted: vec![], turned: 0 }
    }

    #[test]
    fn an_image_whose_turn_it_was_is_no_substitute() {
        let mut found = Substitutes::default();
        found.note(1, Substitutes::in_batch(&batch([4, 7], [4, 7])));
        assert_eq!(found, Substitutes::default());
        found.note(2, Substitutes::in_batch(&batch([4, 7], [4, 9])));
        assert_eq!(found.to_string(), "once in step 2 another image stood in for one that could not be read");
        found.note(5, Substitutes::in_batch(&batch([1, 2], [3, 3])));
        assert_eq!(found, Substitutes { images: 3, first: 2, last: 5 });
        assert!(found.to_string().starts_with("3 times in steps 2 to 5 "));
        assert!(found.are_after(4) && !found.are_after(5));
    }
}
