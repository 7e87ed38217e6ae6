//! A part of every parameter that one process looks after: the moments of an optimiser whose state is spread over processes.

use std::ops::Range;

use tensor::ParamSet;

/// Which part of every tensor: one of several that are as equal as can be, and together the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its number, from 0.
    pub number: usize,
    /// How many there are.
    pub of: usize,
}

impl Share {
    /// Everything.
    pub const WHOLE: Self = Self { number: 0, of: 1 };

    /// Whether it is everything.
    pub fn is_whole(self) -> bool {
        self.of == 1
    }

    /// The elements of a tensor of so many.
    pub fn of_elements(self, len: usize) -> Range<usize> {
        let start = |number: usize| (len as u128 * number as u128 / self.of as u128) as usize;
        start(self.number)..start(self.number + 1)
    }

    /// The part of each tensor, all zero.
    pub fn zeros_of(self, set: &ParamSet) -> ParamSet {
        if self.is_whole() {
            return set.zeros_like();
        }
        let lengths: Vec<[usize; 1]> = set.iter().map(|tensor| [self.of_elements(tensor.len()).len()]).collect();
        match set.tensors().first() {
            Some(any) => ParamSet::zeros(any.device(), lengths.iter().map(|shape| &shape[..])),
            None => set.zeros_like(),
        }
    }

    /// The part of each tensor.
    pub fn copy_of(self, set: &ParamSet) -> ParamSet {
        let mut part = self.zeros_of(set);
        for (part, whole) in part.tensors_mut().iter_mut().zip(set.iter()) {
            part.copy_part_of(whole, self.of_elements(whole.len()));
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once_and_are_equal_but_for_one_element() {
        for len in [0, 1, 2, 7, 64, 1001] {
            for of in 1..9 {
                let parts: Vec<_> = (0..of).map(|number| Share { number, of }.of_elements(len)).collect();
                assert_eq!((parts[0].start, parts[of - 1].end), (0, len));
                assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
                assert!(parts.iter().all(|part| part.len().abs_diff(len / of) <= 1));
            }
        }
        assert_eq!(Share { number: 6, of: 7 }.of_elements(usize::MAX).end, usize::MAX);
    }
}
