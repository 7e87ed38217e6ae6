//! Stochastic depth: which residual branches a view skips.
//!
//! A skipped branch is not computed. The rows of the view are left out of the branch's matrices, so a rate of 0.1 over
//! the depth saves a twentieth of the student's work; those that stay are scaled by 1 / keep.

use random::Key;

/// The branches taken by every segment of a batch.
#[derive(Clone, Debug)]
pub struct DropPath {
    blocks: Vec<BlockChoice>,
}

/// The choices of one block.
#[derive(Clone, Debug)]
pub(crate) struct BlockChoice {
    /// 1 / (1 - rate): what a taken branch is multiplied by.
    pub scale: f64,
    pub attention: Vec<bool>,
    pub mlp: Vec<bool>,
}

impl DropPath {
    /// Draws for each segment from its own key. The rate grows linearly over the blocks from 0 to `rate`; attention
    /// and MLP are drawn independently.
    pub fn draw(rate: f64, depth: usize, keys: impl IntoIterator<Item = Key>) -> Self {
        // Rates are single-precision numbers in the reference; the difference is kept.
        let rate_of = |i: usize| f64::from(if depth > 1 { (rate * i as f64 / (depth - 1) as f64) as f32 } else { 0.0 });
        let mut blocks: Vec<BlockChoice> = (0..depth)
            .map(|i| BlockChoice { scale: 1.0 / (1.0 - rate_of(i)), attention: Vec::new(), mlp: Vec::new() })
            .collect();
        for key in keys {
            let mut stream = key.stream();
            for (i, block) in blocks.iter_mut().enumerate() {
                block.attention.push(stream.uniform() >= rate_of(i));
                block.mlp.push(stream.uniform() >= rate_of(i));
            }
        }
        Self { blocks }
    }

    /// Choices that were made elsewhere: whether a segment takes the attention (0) or the MLP (1) of a block, given its number,
    /// the block's and the branch's.
    pub fn chosen(rate: f64, depth: usize, segments: usize, takes: impl Fn(usize, usize, usize) -> bool) -> Self {
        let mut chosen = Self::draw(rate, depth, []);
        for (i, block) in chosen.blocks.iter_mut().enumerate() {
            block.attention = (0..segments).map(|segment| takes(segment, i, 0)).collect();
            block.mlp = (0..segments).map(|segment| takes(segment, i, 1)).collect();
        }
        chosen
    }

    /// Whether a segment takes the attention (0) or the MLP (1) of a block, given the three numbers as in [`DropPath::chosen`].
    pub fn takes(&self, segment: usize, block: usize, branch: usize) -> bool {
        let BlockChoice { attention, mlp, .. } = &self.blocks[block];
        [attention, mlp][branch][segment]
    }

    /// Every branch taken, and multiplied as if some were not: the most work and memory that a step at this rate takes.
    pub fn all_taken(rate: f64, depth: usize, segments: usize) -> Self {
        let mut all = Self::draw(rate, depth, []);
        for block in &mut all.blocks {
            block.attention = vec![true; segments];
            block.mlp = vec![true; segments];
        }
        all
    }

    /// The choices of some of the segments, by their numbers.
    pub fn segments(&self, take: impl Fn(usize) -> bool) -> Self {
        let some = |flags: &[bool]| flags.iter().enumerate().filter(|&(i, _)| take(i)).map(|(_, &f)| f).collect();
        let block = |b: &BlockChoice| BlockChoice { scale: b.scale, attention: some(&b.attention), mlp: some(&b.mlp) };
        Self { blocks: self.blocks.iter().map(block).collect() }
    }

    pub(crate) fn block(&self, i: usize) -> &BlockChoice {
        &self.blocks[i]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::Purpose;

    #[test]
    fn rates_grow_linearly_and_the_first_block_is_never_skipped() {
        let keys = (0..20_000).map(|i| Key::new(3, Purpose::DropPath).sample(i));
        let drop = DropPath::draw(0.1, 12, keys);
        for i in 0..12 {
            let block = drop.block(i);
            let rate = 0.1 * i as f64 / 11.0;
            for flags in [&block.attention, &block.mlp] {
                let skipped = flags.iter().filter(|f| !**f).count() as f64 / flags.len() as f64;
                assert!((skipped - rate).abs() < 0.008, "block {i}: {skipped} instead of {rate}");
            }
            assert!((block.scale - 1.0 / (1.0 - rate)).abs() < 1e-8);
        }
        assert!(drop.block(0).attention.iter().all(|&f| f));
    }
}
