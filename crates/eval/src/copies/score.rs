//! How well the originals of copies are found.

use tensor::Device;

use super::layout::Block;
use crate::error::EvalError;
use crate::features::Features;
use crate::neighbors::{Exclude, Neighbor, nearest};
use crate::retrieval::average_precision;

/// Nearest images that are judged.
pub const DEPTH: usize = 20;

/// Mean average precision of a block, a share of one: `database` are features of the originals, in their order, and of
/// distractors behind them; `queries` those of the block's images. On the threads of `host`; of equally near images the
/// earlier one counts as nearer.
///
/// # Panics
/// When there is not a feature for each copy, or `host` is a GPU.
pub fn score<S>(block: &Block<S>, database: &Features, queries: &Features, host: &Device) -> Result<f64, EvalError> {
    assert_eq!(queries.len(), block.originals.len(), "a feature for each copy");
    if database.dim != queries.dim {
        return Err(EvalError::Width { train: database.dim, test: queries.dim });
    }
    let all = &block.originals;
    let precision = |query: usize, found: &[Neighbor]| {
        let originals = &all[query];
        let is_right = |neighbor: &Neighbor| originals.iter().any(|&original| original as usize == neighbor.row);
        let places: Vec<usize> =
            found.iter().enumerate().filter(|(_, n)| is_right(n)).map(|(place, _)| place).collect();
        average_precision(&places, originals.len())
    };
    let precisions = nearest(host, database, queries, DEPTH.min(database.len()), Exclude::Nothing, precision)?;
    Ok(precisions.iter().sum::<f64>() / precisions.len() as f64)
}
