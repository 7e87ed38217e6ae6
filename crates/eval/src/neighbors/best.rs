//! The nearest of many rows, kept while they come.

use std::cmp::Ordering;

use super::Neighbor;

/// Similarities that are passed over together.
const RUN: usize = 64;

/// The k nearest of the rows offered so far, and up to as many again that may be. Rows have to be offered in ascending order.
pub(super) struct Best {
    k: usize,
    candidates: Vec<Neighbor>,
    /// The k-th best similarity when candidates were last thinned out. A row that comes later has to be nearer.
    bar: f64,
}

impl Best {
    pub(super) fn new(k: usize) -> Self {
        Self { k, candidates: Vec::new(), bar: f64::NEG_INFINITY }
    }

    pub(super) fn offer_all<T: Copy + PartialOrd + Into<f64>>(
        &mut self,
        first_row: usize,
        similarities: &[T],
        skip: Option<usize>,
    ) {
        for (run, similarities) in similarities.chunks(RUN).enumerate() {
            // Without a branch for each, so that it becomes a few vector comparisons.
            let is_near = |near: bool, &similarity: &T| near | (similarity.into() > self.bar);
            if !similarities.iter().fold(false, is_near) {
                continue;
            }
            for (i, &similarity) in similarities.iter().enumerate() {
                self.offer(first_row + run * RUN + i, similarity.into(), skip);
            }
        }
    }

    pub(super) fn offer(&mut self, row: usize, similarity: f64, skip: Option<usize>) {
        if similarity > self.bar && skip != Some(row) {
            // The order of candidates tells -0 from 0, which are equal here: adding 0 leaves the latter.
            self.candidates.push(Neighbor { row, similarity: similarity + 0.0 });
            if self.candidates.len() == 2 * self.k {
                self.thin_out();
            }
        }
    }

    /// Leaves the k best.
    fn thin_out(&mut self) {
        if self.candidates.len() > self.k {
            let (_, last, _) = self.candidates.select_nth_unstable_by(self.k - 1, nearer_first);
            self.bar = last.similarity;
            self.candidates.truncate(self.k);
        }
    }

    pub(super) fn into_sorted(mut self) -> Vec<Neighbor> {
        self.thin_out();
        self.candidates.sort_unstable_by(nearer_first);
        self.candidates
    }
}

/// By similarity, and by row among equals: no two rows are equal.
fn nearer_first(a: &Neighbor, b: &Neighbor) -> Ordering {
    b.similarity.total_cmp(&a.similarity).then(a.row.cmp(&b.row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equally_near_rows_the_lower_come_first_and_stay() {
        let mut best = Best::new(3);
        best.offer_all(0, &[0.5_f32, 0.9, 0.5, 0.9], None);
        best.offer_all(4, &[0.9_f32, 0.5, 0.9], Some(4));
        assert_eq!(best.into_sorted().iter().map(|n| n.row).collect::<Vec<_>>(), [1, 3, 6]);
    }

    #[test]
    fn both_zeros_are_equally_near() {
        let mut best = Best::new(2);
        best.offer_all(0, &[-1.0_f32, -0.0, 0.0, -0.0, 0.0], None);
        assert_eq!(best.into_sorted().iter().map(|n| n.row).collect::<Vec<_>>(), [1, 2]);
    }
}
