//! The nearest training features of each test feature, by cosine.

use rayon::prelude::*;
use tensor::ops::{self, Affine};
use tensor::{Device, Tensor};

use crate::error::EvalError;
use crate::features::Features;

/// Test rows that are compared at a time, and training rows they are compared with: 8 MiB of similarities.
const TEST_ROWS: usize = 256;
const TRAIN_ROWS: usize = 4096;
/// Shorter vectors are not blown up to unit length (`torch.nn.functional.normalize`).
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
    /// All.
    Nothing,
    /// All but the one of the same number.
    Itself,
}

/// Calls `judge` with every test row and its `k` nearest training rows (all, where there are fewer), nearest first and
/// of equally near ones the lower row first. Returns the results in order of test rows.
///
/// The similarities of all pairs never exist at once.
pub(crate) fn nearest<R: Send>(
    device: &Device,
    train: &Features,
    test: &Features,
    k: usize,
    exclude: Exclude,
    judge: impl Fn(usize, &[Neighbor]) -> R + Sync,
) -> Result<Vec<R>, EvalError> {
    // Neighbours are told apart by similarities that bfloat16 would round together, so the host computes them.
    let host;
    let device = if device.is_gpu() {
        host = Device::cpu(Default::default())?;
        &host
    } else {
        device
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(device.threads()).build();
    let pool = pool.map_err(|error| EvalError::Thread { reason: error.to_string() })?;
    let train: Vec<(Tensor, Tensor)> = units(device, train, TRAIN_ROWS)
        .map(|unit| {
            let no_bias = device.zeros(&[unit.rows()]);
            (unit, no_bias)
        })
        .collect();
    let mut judged = Vec::with_capacity(test.len());
    for (chunk, test) in units(device, test, TEST_ROWS).enumerate() {
        let first_test = chunk * TEST_ROWS;
        let mut best: Vec<Best> = (0..test.rows()).map(|_| Best::new(k)).collect();
        for (block, (train, no_bias)) in train.iter().enumerate() {
            let similarities = ops::linear(&test, &Affine::new(train, no_bias)).to_f64();
            device.finish()?;
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

/// Features scaled to unit length, some rows at a time.
fn units<'a>(device: &'a Device, features: &'a Features, rows: usize) -> impl Iterator<Item = Tensor> + 'a {
    features.values.chunks(rows * features.dim).map(|values| {
        let matrix = device.from_f32(&[values.len() / features.dim, features.dim], values);
        ops::l2_normalize(&matrix, NORMALIZE_EPSILON).0
    })
}

/// The best of the rows seen so far. Rows are offered in ascending order.
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
            // Most rows end here: they are no nearer than the last of the best.
            let full = self.neighbors.len() == self.k;
            if full && self.neighbors.last().is_none_or(|worst| similarity <= worst.similarity) || skip == Some(row) {
                continue;
            }
            if full {
                self.neighbors.pop();
            }
            // Behind those that are as near: they have lower rows.
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
    fn of_equally_near_rows_the_lower_come_first_and_stay() {
        let mut best = Best::new(3);
        best.offer_all(0, &[0.5, 0.9, 0.5, 0.9], None);
        best.offer_all(4, &[0.9, 0.5, 0.9], Some(4));
        assert_eq!(best.neighbors.iter().map(|n| n.row).collect::<Vec<_>>(), [1, 3, 6]);
    }
}
