//! The nearest training features of each test feature, by cosine.

use rayon::prelude::*;
use tensor::ops::{self, Affine};
use tensor::{Device, Tensor};

use crate::error::EvalError;
use crate::features::Features;

/// Blocks of the similarity matrix, test by training rows: 8 MiB in f64.
const TEST_ROWS: usize = 256;
const TRAIN_ROWS: usize = 4096;
/// Lower bound of the norm that a vector is divided by, as in `torch.nn.functional.normalize`.
const NORMALIZE_EPSILON: f64 = 1e-12;

/// A training feature near a test feature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Neighbor {
    /// Its row.
    pub(crate) row: usize,
    /// Cosine of the angle between the two.
    pub(crate) similarity: f64,
}

/// Which training rows count for a test row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exclude {
    /// All count.
    Nothing,
    /// All but the row of the same number: leave-one-out.
    Itself,
}

/// Maps `judge` over every test row and its `k` nearest training rows (all, where there are fewer), nearest first and
/// the lower row first among equally near ones. Results are in order of test rows.
///
/// Everything runs on the threads of `host`, and the similarity matrix only ever exists in blocks.
///
/// # Panics
/// When `host` is a GPU.
pub(crate) fn nearest<R: Send>(
    host: &Device,
    train: &Features,
    test: &Features,
    k: usize,
    exclude: Exclude,
    judge: impl Fn(usize, &[Neighbor]) -> R + Sync,
) -> Result<Vec<R>, EvalError> {
    assert!(!host.is_gpu(), "similarities are computed on the host");
    let pool = rayon::ThreadPoolBuilder::new().num_threads(host.threads()).build();
    let pool = pool.map_err(|error| EvalError::Thread { reason: error.to_string() })?;
    let train: Vec<(Tensor, Tensor)> = units(host, train, TRAIN_ROWS)
        .map(|unit| {
            let no_bias = host.zeros(&[unit.rows()]);
            (unit, no_bias)
        })
        .collect();
    let mut judged = Vec::with_capacity(test.len());
    for (chunk, test) in units(host, test, TEST_ROWS).enumerate() {
        let first_test = chunk * TEST_ROWS;
        let mut best: Vec<Best> = (0..test.rows()).map(|_| Best::new(k)).collect();
        for (block, (train, no_bias)) in train.iter().enumerate() {
            let similarities = ops::linear(&test, &Affine::new(train, no_bias)).to_f64();
            host.finish()?;
            let first_train = block * TRAIN_ROWS;
            pool.install(|| {
                best.par_iter_mut().zip(similarities.par_chunks(train.rows())).enumerate().for_each(
                    |(i, (best, row))| {
                        let skip = (exclude == Exclude::Itself).then_some(first_test + i);
                        best.offer_all(first_train, row, skip);
                    },
                );
            });
        }
        pool.install(|| {
            let judge = |(i, best): (usize, &Best)| judge(first_test + i, &best.neighbors);
            judged.par_extend(best.par_iter().enumerate().map(judge));
        });
    }
    Ok(judged)
}

/// Features scaled to unit length, in blocks of rows.
fn units<'a>(host: &'a Device, features: &'a Features, rows: usize) -> impl Iterator<Item = Tensor> + 'a {
    features.values.chunks(rows * features.dim).map(|values| {
        let matrix = host.from_f32(&[values.len() / features.dim, features.dim], values);
        ops::l2_normalize(&matrix, NORMALIZE_EPSILON).0
    })
}

/// The k nearest of the rows offered so far. Rows have to be offered in ascending order.
struct Best {
    k: usize,
    neighbors: Vec<Neighbor>,
}

impl Best {
    fn new(k: usize) -> Self {
        Self { k, neighbors: Vec::new() }
    }

    fn offer_all(&mut self, first_row: usize, similarities: &[f64], skip: Option<usize>) {
        for (i, &similarity) in similarities.iter().enumerate() {
            let row = first_row + i;
            // The common case: no nearer than the k-th so far.
            let full = self.neighbors.len() == self.k;
            if full && self.neighbors.last().is_none_or(|worst| similarity <= worst.similarity) || skip == Some(row) {
                continue;
            }
            if full {
                self.neighbors.pop();
            }
            // Behind those that are equally near, whose rows are lower.
            let place = self.neighbors.partition_point(|n| n.similarity >= similarity);
            self.neighbors.insert(place, Neighbor { row, similarity });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::{Key, Purpose};
    use tensor::{CpuOptions, Precision};

    fn device(precision: Precision, threads: usize) -> Device {
        Device::cpu(CpuOptions { threads: Some(threads), precision }).unwrap()
    }

    fn noise(stream: u64, rows: usize, dim: usize) -> Features {
        let mut numbers = Key::new(stream, Purpose::Bench).stream();
        Features::labelled(dim, (0..rows * dim).map(|_| numbers.normal() as f32).collect(), &vec![0; rows])
    }

    /// All pairs, sorted: the oracle.
    fn nearest_plain(train: &Features, test: &Features, k: usize, exclude: Exclude) -> Vec<Vec<usize>> {
        let unit = |f: &Features, row: usize| -> Vec<f64> {
            let values: Vec<f64> = f.row(row).iter().map(|&x| f64::from(x)).collect();
            let norm = values.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-12);
            values.iter().map(|x| x / norm).collect()
        };
        let train: Vec<Vec<f64>> = (0..train.len()).map(|j| unit(train, j)).collect();
        let all = |i: usize| {
            let x = unit(test, i);
            let dot = |j: usize| x.iter().zip(&train[j]).map(|(a, b)| a * b).sum::<f64>();
            let rows = (0..train.len()).filter(|&j| exclude == Exclude::Nothing || j != i);
            let mut pairs: Vec<(f64, usize)> = rows.map(|j| (dot(j), j)).collect();
            pairs.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            pairs.into_iter().take(k).map(|(_, j)| j).collect()
        };
        (0..test.len()).map(all).collect()
    }

    #[test]
    fn neighbours_across_blocks_and_chunks_are_those_of_a_full_sort() {
        let (train, test) = (noise(1, TRAIN_ROWS + 700, 6), noise(2, TEST_ROWS + 5, 6));
        for (k, exclude) in [(1, Exclude::Nothing), (30, Exclude::Itself)] {
            let rows = |_, neighbors: &[Neighbor]| neighbors.iter().map(|n| n.row).collect::<Vec<_>>();
            let found = nearest(&device(Precision::F64, 2), &train, &test, k, exclude, rows).unwrap();
            assert_eq!(found, nearest_plain(&train, &test, k, exclude));
        }
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let (train, test) = (noise(3, 900, 16), noise(4, 300, 16));
        let run = |threads| {
            nearest(&device(Precision::F32, threads), &train, &test, 9, Exclude::Nothing, |_, n| n.to_vec()).unwrap()
        };
        assert_eq!(run(1), run(3));
    }

    #[test]
    fn the_threads_are_those_of_the_host_device() {
        let (train, test) = (noise(5, 40, 4), noise(6, 20, 4));
        for threads in [1, 3] {
            let count = |_, _: &[Neighbor]| rayon::current_num_threads();
            let host = device(Precision::F32, threads);
            let seen = nearest(&host, &train, &test, 2, Exclude::Nothing, count).unwrap();
            assert_eq!(seen, vec![threads; 20]);
        }
    }

    #[test]
    fn of_equally_near_rows_the_lower_come_first_and_stay() {
        let mut best = Best::new(3);
        best.offer_all(0, &[0.5, 0.9, 0.5, 0.9], None);
        best.offer_all(4, &[0.9, 0.5, 0.9], Some(4));
        assert_eq!(best.neighbors.iter().map(|n| n.row).collect::<Vec<_>>(), [1, 3, 6]);
    }
}
