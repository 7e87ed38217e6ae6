//! The database images in the order of how well they match each query.

use std::path::Path;

use files::numpy::NpyFile;
use rayon::prelude::*;
use tensor::Device;
use tensor::ops::{self, Affine};

use super::error::RetrievalError;
use super::ground_truth::GroundTruth;
use crate::error::EvalError;
use crate::features::Features;

/// Database images whose similarities with all queries are computed at once.
const BLOCK: usize = 4096;
/// Lower bound of the norm that a feature is divided by.
const NORMALIZE_EPSILON: f64 = 1e-12;

/// For each query the numbers of database images, best match first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranking {
    /// Images of each query's list.
    depth: usize,
    /// List after list.
    order: Vec<u32>,
}

impl Ranking {
    /// Reads a ranking of another program: an `.npy` file of whole numbers [database, queries], a column for each query, as the
    /// benchmark's own scorer takes it. It may have fewer rows; what is not in it is not found.
    pub fn read(path: &Path, truth: &GroundTruth) -> Result<Self, RetrievalError> {
        let failed = |source| RetrievalError::Ranks { path: path.to_owned(), source };
        let (database, queries) = (truth.database.len(), truth.queries.len());
        let file = NpyFile::open(path).map_err(failed)?;
        // Looked at before its elements are read: the ground truth bounds the memory.
        let depth = match *file.shape() {
            [depth, columns] if columns == queries && (1..=database).contains(&depth) => depth,
            _ => {
                let shape = file.shape().to_vec();
                return Err(RetrievalError::RanksShape { path: path.to_owned(), shape, database, queries });
            }
        };
        let rows = file.integers().map_err(failed)?;
        let mut order = Vec::with_capacity(depth * queries);
        let mut seen = vec![false; database];
        for query in 0..queries {
            seen.fill(false);
            for place in 0..depth {
                let image = rows[place * queries + query];
                let wrong = |what| RetrievalError::Rank { path: path.to_owned(), query, place, image, what };
                let number = usize::try_from(image).ok().filter(|&number| number < database);
                let number = number.ok_or_else(|| wrong("is not in the database"))?;
                if std::mem::replace(&mut seen[number], true) {
                    return Err(wrong("stands there a second time"));
                }
                order.push(number as u32);
            }
        }
        Ok(Self { depth, order })
    }

    /// Ranks by the cosine of features, on the threads of `host`; of equals the lower number first.
    ///
    /// # Panics
    /// When `host` is a GPU.
    pub fn by_similarity(database: &Features, queries: &Features, host: &Device) -> Result<Self, EvalError> {
        assert!(!host.is_gpu(), "similarities are computed on the host");
        if database.dim != queries.dim {
            return Err(EvalError::Width { train: database.dim, test: queries.dim });
        }
        for (features, which) in [(database, "database"), (queries, "query")] {
            if features.is_empty() || features.dim == 0 {
                return Err(EvalError::Empty { which });
            }
        }
        let (depth, dim) = (database.len(), database.dim);
        let unit = |values: &[f32]| {
            let matrix = host.from_f32(&[values.len() / dim, dim], values);
            ops::l2_normalize(&matrix, NORMALIZE_EPSILON).0
        };
        let asked = unit(&queries.values);
        let mut similarities: Vec<Vec<f32>> = vec![Vec::with_capacity(depth); queries.len()];
        for block in database.values.chunks(BLOCK * dim) {
            let block = unit(block);
            let no_bias = host.zeros(&[block.rows()]);
            let of_block = ops::linear(&asked, &Affine::new(&block, &no_bias)).to_f32();
            host.finish()?;
            for (all, row) in similarities.iter_mut().zip(of_block.chunks(block.rows())) {
                all.extend_from_slice(row);
            }
        }
        let sorted = |similarities: &Vec<f32>| {
            let mut order: Vec<u32> = (0..depth as u32).collect();
            // Stable, so that equals stay in order.
            order.sort_by(|&a, &b| similarities[b as usize].total_cmp(&similarities[a as usize]));
            order
        };
        let lists: Vec<Vec<u32>> = host.run(|| similarities.par_iter().map(sorted).collect());
        Ok(Self { depth, order: lists.concat() })
    }

    /// The number of queries.
    pub fn queries(&self) -> usize {
        self.order.len() / self.depth.max(1)
    }

    /// The list of a query, best match first.
    ///
    /// # Panics
    /// When there is no such query.
    pub fn of(&self, query: usize) -> &[u32] {
        &self.order[query * self.depth..][..self.depth]
    }

    #[cfg(test)]
    pub(super) fn from_lists(lists: &[Vec<u32>]) -> Self {
        Self { depth: lists[0].len(), order: lists.concat() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(dim: usize, values: &[f32]) -> Features {
        Features::labelled(dim, values.to_vec(), &vec![0; values.len() / dim])
    }

    #[test]
    fn the_nearest_comes_first_whatever_its_length_and_equals_stay_in_order() {
        let host = Device::cpu(Default::default()).unwrap();
        let database = features(2, &[0.0, 1.0, 5.0, 5.0, 3.0, 0.0, 0.1, 0.1, -1.0, 0.0]);
        let queries = features(2, &[9.0, 0.0, 0.0, 0.01]);
        let ranking = Ranking::by_similarity(&database, &queries, &host).unwrap();
        assert_eq!((ranking.queries(), ranking.of(0), ranking.of(1)), (2, &[2, 1, 3, 0, 4][..], &[0, 1, 3, 2, 4][..]));
        let wide = features(3, &[1.0; 3]);
        assert!(matches!(Ranking::by_similarity(&database, &wide, &host), Err(EvalError::Width { .. })));
    }
}
