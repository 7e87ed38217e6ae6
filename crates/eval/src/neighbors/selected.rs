//! Neighbours among the similarities that the device itself has found to be the largest of each block.
//!
//! All similarities would be far more to bring to the host than to compute. The device queues a chunk of test rows against
//! all training rows at once; while it works on one, the host merges what was selected for the one before.
//!
//! A GPU takes 256 MiB for a block ([`ON_GPU`]), and for every 65,536 training rows 8 k bytes for each of 1,024 test rows
//! (1.6 MiB where k is 200), which the host holds once more. The copy of the training features is there in full, and while it
//! is made once more for one block.

use rayon::prelude::*;
use tensor::Tensor;
use tensor::ops::{self, Affine, Largest};

use super::best::Best;
use super::{Exclude, Neighbor, Place, blocks, units};
use crate::error::EvalError;
use crate::features::Features;

/// A block of the similarity matrix, in rows of both kinds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub test: usize,
    pub train: usize,
}

/// 256 MiB. Few blocks, since each has to be waited for; and with that many rows all of a GPU selects.
pub(super) const ON_GPU: Block = Block { test: 1024, train: 65_536 };

/// The largest similarities of some test rows with a block of training rows, on the host.
struct Selected {
    similarities: Vec<f32>,
    columns: Vec<u32>,
}

impl Selected {
    /// Waits for them.
    fn new(largest: &Largest) -> Self {
        Self { similarities: largest.values.to_f32(), columns: largest.columns() }
    }

    /// Those of a row of `rows`.
    fn of_row(&self, row: usize, rows: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let count = self.columns.len() / rows;
        let range = row * count..(row + 1) * count;
        let columns = self.columns[range.clone()].iter().map(|&column| column as usize);
        columns.zip(self.similarities[range].iter().map(|&similarity| f64::from(similarity)))
    }
}

/// As [`super::nearest`], for a device that computes in f32.
pub(super) fn nearest<R: Send>(
    place: Place<'_>,
    train: &Features,
    test: &Features,
    (k, exclude): (usize, Exclude),
    block: Block,
    judge: impl Fn(usize, &[Neighbor]) -> R + Sync,
) -> Result<Vec<R>, EvalError> {
    let Place { host, products, tell } = place;
    let train = blocks(products, train, block.train);
    // One of them may be the row that does not count.
    let count = k + usize::from(exclude == Exclude::Itself);
    let queue = |unit: Tensor| -> (usize, Vec<Largest>) {
        let select = |(train, no_bias): &(Tensor, Tensor)| {
            ops::largest(&ops::linear(&unit, &Affine::new(train, no_bias)), count)
        };
        (unit.rows(), train.iter().map(select).collect())
    };
    // All of one size, or nearly: a product of another size is another one to be chosen.
    let chunks = test.len().div_ceil(block.test).max(1);
    let mut units = units(products, test, test.len().div_ceil(chunks).max(1));
    let mut queued = units.next().map(&queue);
    let mut judged = Vec::with_capacity(test.len());
    while let Some((rows, largest)) = queued {
        // On its way while the device works.
        let next = units.next();
        // Each is given back as soon as the host has it, before the next are asked for.
        let selected: Vec<Selected> = largest.into_iter().map(|largest| Selected::new(&largest)).collect();
        products.check()?;
        // The device has its next work before the host begins.
        queued = next.map(&queue);
        let first_test = judged.len();
        let of_row = |row: usize| {
            let mut best = Best::new(k);
            for (number, selected) in selected.iter().enumerate() {
                for (column, similarity) in selected.of_row(row, rows) {
                    best.offer(number * block.train + column, similarity, exclude.of(first_test + row));
                }
            }
            judge(first_test + row, &best.into_sorted())
        };
        host.run(|| judged.par_extend((0..rows).into_par_iter().map(of_row)));
        if let Some(tell) = tell {
            tell(judged.len(), test.len());
        }
    }
    Ok(judged)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{device, noise, signs};
    use super::*;
    use tensor::Precision;

    /// By selection, in small blocks, and by reading all similarities.
    fn assert_both_agree(train: &Features, test: &Features, k: usize, exclude: Exclude) {
        let host = device(Precision::F32, 2);
        let (lists, block) = (|_, neighbors: &[Neighbor]| neighbors.to_vec(), Block { test: 90, train: 700 });
        let read = super::super::nearest(&host, train, test, k, exclude, lists).unwrap();
        let selected = nearest(Place::from(&host), train, test, (k, exclude), block, lists).unwrap();
        assert_eq!(selected, read, "k = {k}, {exclude:?}");
    }

    #[test]
    fn selected_neighbours_are_those_of_reading_everything_ties_included() {
        let (train, test) = (signs(7, 2500), signs(8, 200));
        for k in [1, 20, 300, 900, 2500, 3000] {
            assert_both_agree(&train, &test, k, Exclude::Nothing);
            assert_both_agree(&train, &train, k, Exclude::Itself);
        }
        // Fewer rows than a block, and none.
        assert_both_agree(&signs(9, 5), &signs(10, 3), 4, Exclude::Nothing);
        assert_both_agree(&signs(9, 0), &signs(10, 3), 4, Exclude::Nothing);
        assert_both_agree(&signs(9, 5), &signs(10, 0), 4, Exclude::Nothing);
    }

    #[test]
    fn a_similarity_that_is_no_number_is_no_neighbour() {
        let (mut train, test) = (noise(1, 1500, 8), noise(2, 100, 8));
        for row in [0, 3, 699, 700, 1499] {
            train.values[row * 8] = f32::NAN;
        }
        assert_both_agree(&train, &test, 1500, Exclude::Nothing);
        let host = device(Precision::F32, 1);
        let numbers = |_, neighbors: &[Neighbor]| neighbors.len();
        let found = nearest(Place::from(&host), &train, &test, (1500, Exclude::Nothing), ON_GPU, numbers).unwrap();
        assert_eq!(found, [1495; 100]);
    }

    #[test]
    fn who_watches_is_told_of_every_chunk() {
        let (train, test, host) = (noise(1, 50, 4), noise(2, 200, 4), device(Precision::F32, 1));
        let told = std::cell::RefCell::new(Vec::new());
        let tell = |done, all| told.borrow_mut().push((done, all));
        let place = Place::from(&host).watched_by(&tell);
        let block = Block { test: 90, train: 700 };
        nearest(place, &train, &test, (3, Exclude::Nothing), block, |_, _| ()).unwrap();
        assert_eq!(*told.borrow(), [(67, 200), (134, 200), (200, 200)]);
    }
}
