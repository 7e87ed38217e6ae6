//! Memory for rounded numbers on their way. It is taken before the first step and kept: what travels does so beside the stream
//! in whose order other memory is handed on.

use super::operation::{Leg, NumbersOf, ROUNDED, RoundedChunk, chunks, share_of};
use crate::cuda::memory::{ALIGNMENT, Piece};

/// The most rounded numbers that are sent and added up at once.
const AT_ONCE: usize = 16 << 20;

fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT as usize)
}

/// The parts of the memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// For all numbers of a step.
    all: usize,
    /// For what a process adds up at once.
    parts: usize,
    /// For its sums.
    sum: usize,
}

impl Sizes {
    /// For tensors of these lengths, whose sums begin in whatever groups of neighbours.
    pub(super) fn of(lengths: &[usize], ranks: usize) -> Self {
        let total: usize = lengths.iter().sum();
        let largest = share_of(total.min(AT_ONCE), ranks) * ROUNDED;
        // A group, or a chunk of a large one, is rounded up to whole shares and to the alignment; in the worst case a group is
        // one tensor.
        let rounding = aligned(share_of(1, ranks) * ranks * ROUNDED) + ALIGNMENT as usize;
        let most = lengths.len() + total.div_ceil(AT_ONCE);
        Self { all: aligned(total * ROUNDED + most * rounding), parts: aligned(largest * ranks), sum: aligned(largest) }
    }

    pub(super) fn bytes(self) -> usize {
        self.all + self.parts + self.sum
    }
}

/// The memory, and how much of it this step has used.
pub(super) struct Staging {
    pub(super) memory: Piece,
    sizes: Sizes,
    used: usize,
    /// Where the sums of this step are, and where they belong.
    arriving: Vec<Leg>,
}

impl Staging {
    pub(super) fn new(memory: Piece, sizes: Sizes) -> Self {
        Self { memory, sizes, used: 0, arriving: Vec::new() }
    }

    pub(super) fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Makes room for some tensors, given by address and length: the chunks in which they travel, and from where to where they
    /// are rounded. None where there is not enough, which no group of the planned tensors reaches.
    pub(super) fn board(&mut self, tensors: &[(u64, usize)], ranks: usize) -> Option<(Vec<RoundedChunk>, Vec<Leg>)> {
        let base = self.memory.address();
        let lengths: Vec<usize> = tensors.iter().map(|&(_, length)| length).collect();
        let (mut boarded, mut legs) = (Vec::new(), Vec::new());
        for pieces in chunks(&lengths, AT_ONCE) {
            let share = share_of(pieces.iter().map(|piece| piece.count).sum(), ranks);
            let all = base + self.used as u64;
            self.used += aligned(share * ranks * ROUNDED);
            if self.used > self.sizes.all || share * ROUNDED > self.sizes.sum {
                return None;
            }
            let parts = base + self.sizes.all as u64;
            boarded.push(RoundedChunk { all, parts, sum: parts + self.sizes.parts as u64, share });
            let mut to = all;
            for NumbersOf { tensor, first, count } in pieces {
                let from = tensors[tensor].0 + (first * size_of::<f32>()) as u64;
                legs.push(Leg { from, to, count });
                to += (count * ROUNDED) as u64;
            }
        }
        self.arriving.extend(legs.iter().map(|leg| Leg { from: leg.to, to: leg.from, ..*leg }));
        Some((boarded, legs))
    }

    /// From where to where everything of this step goes that has arrived; the memory is free for the next one.
    pub(super) fn alight(&mut self) -> Vec<Leg> {
        self.used = 0;
        std::mem::take(&mut self.arriving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::memory::Arena;

    /// Staging without memory behind it.
    fn staging(lengths: &[usize], ranks: usize) -> Staging {
        let sizes = Sizes::of(lengths, ranks);
        Staging::new(Arena::for_plan().take(sizes.bytes()).unwrap(), sizes)
    }

    #[test]
    fn whatever_groups_the_tensors_leave_in_there_is_room() {
        let lengths = [1, 7, 40_000_000, 3, 0, 16 << 20, 100_001, 5];
        let tensors: Vec<(u64, usize)> = lengths.iter().enumerate().map(|(i, &n)| ((i as u64 + 1) << 40, n)).collect();
        for ranks in [1, 2, 3, 8, 64] {
            for group in [1, 2, 3, 8] {
                let mut staging = staging(&lengths, ranks);
                let (base, sizes) = (staging.memory.address(), staging.sizes());
                for step in 0..2 {
                    let mut used: Vec<(u64, u64)> = Vec::new();
                    for some in tensors.chunks(group) {
                        let (chunks, legs) = staging.board(some, ranks).expect("room");
                        for chunk in &chunks {
                            let bytes = (chunk.share * ranks * ROUNDED) as u64;
                            assert!(chunk.all + bytes <= base + sizes.all as u64);
                            assert!(chunk.parts + bytes <= chunk.sum);
                            let end = base + sizes.bytes() as u64;
                            assert!(chunk.sum + (chunk.share * ROUNDED) as u64 <= end);
                            used.push((chunk.all, chunk.all + bytes));
                        }
                        let boarded: usize = legs.iter().map(|leg| leg.count).sum();
                        assert_eq!(boarded, some.iter().map(|&(_, length)| length).sum::<usize>());
                    }
                    used.sort_unstable();
                    assert!(
                        used.windows(2).all(|pair| pair[0].1 <= pair[1].0),
                        "step {step}: nothing lies upon another"
                    );
                    let arrived: usize = staging.alight().iter().map(|leg| leg.count).sum();
                    assert_eq!(arrived, lengths.iter().sum::<usize>());
                }
            }
        }
    }

    #[test]
    fn it_is_about_two_bytes_a_number_and_a_little() {
        let lengths = [16_777_216, 589_824, 384];
        let bytes = Sizes::of(&lengths, 8).bytes();
        let numbers: usize = lengths.iter().sum();
        assert!(bytes < 2 * numbers + 2 * AT_ONCE + 2 * AT_ONCE / 8 + (1 << 20), "{bytes}");
    }
}
