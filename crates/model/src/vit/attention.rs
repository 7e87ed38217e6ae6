//! What the class token looks at: its attention in the last block.

use tensor::ops::Pixels;
use tensor::{Device, ParamSet};

use super::Vit;
use crate::config::ConfigError;

/// How much of an image's class token looks at each patch, in the last block: rows of softmax(q k^T / sqrt(d)).
#[derive(Clone, Debug, PartialEq)]
pub struct ClassAttention {
    /// Rows and columns of patches.
    pub grid: (usize, usize),
    /// The weights of each head, [heads, patches]. A head's sum is below one: the rest looks at the class token itself and
    /// at registers.
    pub weights: Vec<f64>,
}

impl ClassAttention {
    /// The weights of one head after another.
    pub fn heads(&self) -> impl ExactSizeIterator<Item = &[f64]> {
        self.weights.chunks_exact(self.grid.0 * self.grid.1)
    }

    /// The mean over heads.
    pub fn mean(&self) -> Vec<f64> {
        let heads = self.heads().len() as f64;
        let sum = |patch: usize| self.heads().map(|head| head[patch]).sum::<f64>();
        (0..self.grid.0 * self.grid.1).map(|patch| sum(patch) / heads).collect()
    }
}

impl Vit {
    /// The attention of the class token of each image in the last block, keeping nothing. Queries and keys are the device's;
    /// the few weights that are read of them are computed on the host.
    pub fn class_attention(
        &self,
        p: &ParamSet,
        device: &Device,
        images: &[Pixels<'_>],
    ) -> Result<Vec<ClassAttention>, ConfigError> {
        let (tokens, patches) = self.cut(device, images)?;
        let (mut x, rows) = self.embed(p, &tokens, &patches, None);
        drop(patches);
        let (last, first) = self.split_last()?;
        for block in first {
            x = block.infer(p, &x, &rows);
        }
        let (queries, keys) = last.class_queries_and_keys(p, &x, &rows);
        let (queries, keys) = (queries.to_f64(), keys.to_f64());
        let (dim, leading) = (self.config.dim, self.config.leading_tokens());
        let patch = self.config.patch;
        let sizes = images.iter().flat_map(|g| std::iter::repeat_n((g.height / patch, g.width / patch), g.count));
        let mut attentions = Vec::with_capacity(rows.segments());
        for (image, (grid, query)) in sizes.zip(queries.chunks_exact(dim)).enumerate() {
            let keys = &keys[rows.start(image) * dim..][..rows.segment_len(image) * dim];
            let mut weights = Vec::new();
            for head in 0..self.config.heads {
                weights.extend_from_slice(&self.head_weights(head, query, keys)[leading..]);
            }
            attentions.push(ClassAttention { grid, weights });
        }
        Ok(attentions)
    }

    /// softmax(q k^T / sqrt(d)) of one head, for one query and the keys of all tokens of its image.
    fn head_weights(&self, head: usize, query: &[f64], keys: &[f64]) -> Vec<f64> {
        let (dim, width) = (self.config.dim, self.config.dim / self.config.heads);
        let part = head * width..(head + 1) * width;
        let query = &query[part.clone()];
        let score = |key: &[f64]| {
            let dot: f64 = query.iter().zip(&key[part.clone()]).map(|(q, k)| q * k).sum();
            dot / (width as f64).sqrt()
        };
        let mut scores: Vec<f64> = keys.chunks_exact(dim).map(score).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        scores.iter_mut().for_each(|score| *score = (*score - largest).exp());
        let sum: f64 = scores.iter().sum();
        scores.iter_mut().for_each(|score| *score /= sum);
        scores
    }
}
