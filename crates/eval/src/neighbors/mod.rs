//! The nearest training features of each test feature, by cosine.
//!
//! The similarity matrix only ever exists in blocks, products of unit vectors. On the host a block's rows are read once, where
//! they lie: a run of similarities none of which is above the k-th best so far is passed over whole, which is nearly all of
//! them. A GPU selects the largest of its blocks itself ([`selected`]), and the host gets no others to see.

mod best;
mod selected;

use rayon::prelude::*;
use tensor::ops::{self, Affine};
use tensor::{DType, Device, Tensor};

use crate::error::EvalError;
use crate::features::Features;
use best::Best;

/// Blocks of the similarity matrix on the host, test by training rows: 8 MiB in f32.
const TEST_ROWS: usize = 960;
const TRAIN_ROWS: usize = 2048;
/// Lower bound of the norm that a vector is divided by, as in `torch.nn.functional.normalize`.
const NORMALIZE_EPSILON: f64 = 1e-12;

/// Where neighbours are looked for: similarities on one device, the nearest of all blocks on the threads of the host.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    host: &'a Device,
    products: &'a Device,
    /// Who is told how many images have their neighbours.
    tell: Option<&'a dyn Fn(usize, usize)>,
}

impl std::fmt::Debug for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("host", self.host).field("products", self.products).finish_non_exhaustive()
    }
}

impl<'a> Place<'a> {
    /// Similarities on `device` where it computes them in f32, otherwise on the host: bf16 would round near neighbours
    /// together.
    ///
    /// # Panics
    /// When `host` is a GPU.
    pub fn new(host: &'a Device, device: &'a Device) -> Self {
        assert!(!host.is_gpu(), "the host is a CPU");
        Self { host, products: if device.dtype() == DType::F32 { device } else { host }, tell: None }
    }

    /// The same, with somebody who is told how many of how many images have their neighbours.
    pub fn watched_by(self, tell: &'a dyn Fn(usize, usize)) -> Self {
        Self { tell: Some(tell), ..self }
    }

    /// The host, and who computes products.
    pub(crate) fn devices(self) -> (&'a Device, &'a Device) {
        (self.host, self.products)
    }

    /// Whether similarities are computed on a GPU.
    pub fn is_gpu(&self) -> bool {
        self.products.is_gpu()
    }
}

impl<'a> From<&'a Device> for Place<'a> {
    /// Everything on the host.
    fn from(host: &'a Device) -> Self {
        assert!(!host.is_gpu(), "the host is a CPU");
        Self { host, products: host, tell: None }
    }
}

/// A training feature near a test feature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbor {
    /// Its row.
    pub row: usize,
    /// Cosine of the angle between the two.
    pub similarity: f64,
}

/// Which training rows count for a test row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exclude {
    /// All count.
    Nothing,
    /// All but the row of the same number: leave-one-out.
    Itself,
}

impl Exclude {
    /// The training row that does not count for a test row.
    fn of(self, test_row: usize) -> Option<usize> {
        (self == Exclude::Itself).then_some(test_row)
    }
}

/// The `k` nearest training rows of every test row (all, where there are fewer), nearest first.
pub fn nearest_rows<'a>(
    place: impl Into<Place<'a>>,
    train: &Features,
    test: &Features,
    k: usize,
) -> Result<Vec<Vec<Neighbor>>, EvalError> {
    if train.dim != test.dim {
        return Err(EvalError::Width { train: train.dim, test: test.dim });
    }
    nearest(place, train, test, k.max(1), Exclude::Nothing, |_, neighbors| neighbors.to_vec())
}

/// Maps `judge` over every test row and its `k` nearest training rows (all, where there are fewer), nearest first and
/// the lower row first among equally near ones. Results are in order of test rows.
///
/// Takes a copy of the training features on the device of the products, and some 20 MiB on the host; on a GPU what
/// [`selected`] says.
pub(crate) fn nearest<'a, R: Send>(
    place: impl Into<Place<'a>>,
    train: &Features,
    test: &Features,
    k: usize,
    exclude: Exclude,
    judge: impl Fn(usize, &[Neighbor]) -> R + Sync,
) -> Result<Vec<R>, EvalError> {
    let place = place.into();
    if place.is_gpu() {
        return selected::nearest(place, train, test, (k, exclude), selected::ON_GPU, judge);
    }
    let Place { host, products, tell } = place;
    let train = blocks(products, train, TRAIN_ROWS);
    let mut judged = Vec::with_capacity(test.len());
    for (chunk, unit) in units(products, test, TEST_ROWS).enumerate() {
        let first_test = chunk * TEST_ROWS;
        let mut best: Vec<Best> = (0..unit.rows()).map(|_| Best::new(k)).collect();
        for (block, (train, no_bias)) in train.iter().enumerate() {
            let similarities = ops::linear(&unit, &Affine::new(train, no_bias));
            let (first_train, columns) = (block * TRAIN_ROWS, train.rows());
            let skip = |row: usize| exclude.of(first_test + row);
            // In the precision that they were computed in: what is equal stays so.
            if similarities.dtype() == DType::F64 {
                let rows = similarities.to_f64();
                host.run(|| {
                    let rows = best.par_iter_mut().zip(rows.par_chunks(columns)).enumerate();
                    rows.for_each(|(i, (best, row))| best.offer_all(first_train, row, skip(i)));
                });
            } else {
                let rows = similarities.as_f32();
                host.run(|| {
                    let rows = best.par_iter_mut().zip(rows.par_chunks(columns)).enumerate();
                    rows.for_each(|(i, (best, row))| best.offer_all(first_train, row, skip(i)));
                });
            }
        }
        host.run(|| {
            let judge = |(i, best): (usize, Best)| judge(first_test + i, &best.into_sorted());
            judged.par_extend(best.into_par_iter().enumerate().map(judge));
        });
        if let Some(tell) = tell {
            tell(judged.len(), test.len());
        }
    }
    Ok(judged)
}

/// Blocks of so many training rows, each with the bias that a linear layer wants.
fn blocks(device: &Device, train: &Features, rows: usize) -> Vec<(Tensor, Tensor)> {
    let with_bias = |unit: Tensor| {
        let no_bias = device.zeros(&[unit.rows()]);
        (unit, no_bias)
    };
    units(device, train, rows).map(with_bias).collect()
}

/// Features scaled to unit length, in blocks of rows.
fn units<'a>(device: &'a Device, features: &'a Features, rows: usize) -> impl Iterator<Item = Tensor> + 'a {
    features.values.chunks(rows * features.dim).map(|values| {
        let matrix = device.from_f32(&[values.len() / features.dim, features.dim], values);
        ops::l2_normalize(&matrix, NORMALIZE_EPSILON).0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::{Key, Purpose};
    use tensor::{CpuOptions, Precision};

    pub(super) fn device(precision: Precision, threads: usize) -> Device {
        Device::cpu(CpuOptions { threads: Some(threads), precision }).unwrap()
    }

    pub(super) fn noise(stream: u64, rows: usize, dim: usize) -> Features {
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
        let lists = nearest_rows(&device(Precision::F64, 2), &train, &test, 4).unwrap();
        let rows: Vec<Vec<usize>> = lists.iter().map(|list| list.iter().map(|n| n.row).collect()).collect();
        assert_eq!(rows, nearest_plain(&train, &test, 4, Exclude::Nothing));
        assert!(nearest_rows(&device(Precision::F64, 1), &train, &noise(2, 3, 7), 4).is_err(), "of another width");
    }

    /// Signs in 64 dimensions have lengths and cosines without any rounding, and thousands of them are equal.
    pub(super) fn signs(stream: u64, rows: usize) -> Features {
        let mut numbers = Key::new(stream, Purpose::Bench).stream();
        let values = (0..rows * 64).map(|_| if numbers.chance(0.5) { 1.0 } else { -1.0 });
        Features::labelled(64, values.collect(), &vec![0; rows])
    }

    #[test]
    fn ten_thousand_by_a_thousand_with_ties_are_those_of_a_full_sort() {
        let (train, test) = (signs(7, 10_000), signs(8, 1000));
        let pairs = |_, neighbors: &[Neighbor]| neighbors.iter().map(|n| n.row).collect::<Vec<_>>();
        let wanted = nearest_plain(&train, &test, 200, Exclude::Nothing);
        for precision in [Precision::F32, Precision::F64] {
            let host = device(precision, 2);
            assert_eq!(nearest(&host, &train, &test, 200, Exclude::Nothing, pairs).unwrap(), wanted);
        }
        // There are ties at the very end of nearly every list, too.
        let host = device(Precision::F32, 2);
        let similarities = |_, n: &[Neighbor]| n.iter().map(|n| n.similarity).collect::<Vec<_>>();
        let longer = nearest(&host, &train, &test, 201, Exclude::Nothing, similarities).unwrap();
        assert!(longer.iter().filter(|list| list[199] == list[200]).count() > 900);
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
}
