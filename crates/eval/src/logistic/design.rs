//! The rows that problems are fitted to, in coordinates that make them easy.
//!
//! With an intercept the features' mean is taken off, and all are turned into the eigenvectors of their second moments:
//! z = V^T (x - mean). A rotation keeps |W|, and a shift only moves the intercept, so the objective and its minimum are
//! the same as those of x. But the Hessian is now nearly diagonal, so that a diagonal preconditioner, which costs nothing,
//! does what otherwise takes hundreds of iterations.

use std::ops::Range;

use rayon::prelude::*;

use super::eigen;
use super::scalar::{Matrix, Scalar, product, sum_in_order};

/// Rows that go through both products of a pass together: their features stay in the second-level cache, and four vectors of
/// sixteen divide them evenly, which is what the product computes at once.
pub(super) const ROWS: usize = 256;
/// Pieces that a pass is cut into, at most, if no part has fewer rows than [`ROWS`].
const PIECES: usize = 64;

/// Labelled feature vectors, cut into parts (folds).
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Values of one vector.
    pub dim: usize,
    /// All vectors, one after another.
    pub values: &'a [f32],
    /// The class of each.
    pub labels: &'a [u32],
    /// Number of classes.
    pub classes: usize,
    /// The part that each belongs to.
    pub parts: &'a [usize],
}

/// Some consecutive rows of one part.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) part: usize,
    pub(super) rows: Range<usize>,
}

/// Turned features, sorted by part.
pub(super) struct Design<T> {
    pub(super) dim: usize,
    pub(super) classes: usize,
    pub(super) intercept: bool,
    /// z, row by row.
    pub(super) values: Vec<T>,
    pub(super) labels: Vec<u32>,
    /// The rows of each part.
    pub(super) parts: Vec<Range<usize>>,
    pub(super) pieces: Vec<Piece>,
    /// What was taken off; zeros without an intercept.
    pub(super) mean: Vec<f64>,
    /// Eigenvalues of the second moments of a row, none below zero.
    pub(super) moments: Vec<f64>,
    /// V, one eigenvector a row.
    vectors: Vec<f64>,
}

impl<T: Scalar> Design<T> {
    /// Prepares rows on the threads of the current pool.
    ///
    /// # Panics
    /// When there are not as many labels and parts as vectors.
    pub(super) fn new(rows: &Rows<'_>, intercept: bool) -> Self {
        let (count, dim) = (rows.labels.len(), rows.dim);
        assert_eq!((rows.values.len(), rows.parts.len()), (count * dim, count), "a label and a part for each vector");
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|&row| rows.parts[row]);
        let labels = order.iter().map(|&row| rows.labels[row]).collect();
        let number = rows.parts.iter().max().map_or(0, |&part| part + 1);
        let first = |part: usize| order.partition_point(|&row| rows.parts[row] < part);
        let parts: Vec<Range<usize>> = (0..number).map(|part| first(part)..first(part + 1)).collect();
        let row = |at: usize| &rows.values[order[at] * dim..][..dim];

        let chunks: Vec<Range<usize>> = split(0..count, count.div_ceil(PIECES).next_multiple_of(ROWS));
        let mut mean = vec![0.0; dim];
        if intercept {
            mean = sum_in_order(&chunks, dim, |chunk, sums| {
                for at in chunk.clone() {
                    sums.iter_mut().zip(row(at)).for_each(|(sum, &x)| *sum += f64::from(x));
                }
            });
            mean.iter_mut().for_each(|sum| *sum /= count.max(1) as f64);
        }
        let centred = |rows: Range<usize>| -> Vec<f64> {
            rows.flat_map(|at| row(at).iter().zip(&mean).map(|(&x, m)| f64::from(x) - m)).collect()
        };
        let second_moments = sum_in_order(&chunks, dim * dim, |chunk, sums| {
            let mut product_of_block = vec![0.0; dim * dim];
            for block in split(chunk.clone(), ROWS) {
                let x = centred(block.clone());
                let x = Matrix::new(&x, block.len(), dim);
                product(&mut product_of_block, x.transposed(), x);
                super::scalar::add_to(sums, &product_of_block);
            }
        });
        let scale = 1.0 / count.max(1) as f64;
        let eigen = eigen::symmetric(second_moments.iter().map(|sum| scale * sum).collect(), dim);
        let mut values = vec![T::ZERO; count * dim];
        values.par_chunks_mut(ROWS * dim).enumerate().for_each(|(block, out)| {
            let rows = block * ROWS..block * ROWS + out.len() / dim;
            let x = centred(rows.clone());
            // Written column by column, z^T = V x^T is z row by row.
            let mut turned = vec![0.0; out.len()];
            let v = Matrix::new(&eigen.vectors, dim, dim);
            product(&mut turned, v, Matrix::new(&x, rows.len(), dim).transposed());
            out.iter_mut().zip(turned).for_each(|(out, z)| *out = T::of(z));
        });
        let of_part = |(part, rows): (usize, &Range<usize>)| {
            let pieces = split(rows.clone(), count.div_ceil(PIECES).next_multiple_of(ROWS));
            pieces.into_iter().map(move |rows| Piece { part, rows })
        };
        let pieces = parts.iter().enumerate().flat_map(of_part).collect();
        let moments = eigen.values.iter().map(|value| value.max(0.0)).collect();
        let (vectors, classes) = (eigen.vectors, rows.classes);
        Self { dim, classes, intercept, values, labels, parts, pieces, mean, moments, vectors }
    }

    /// Number of parameters of one problem: [classes][dim] weights, and with an intercept one value more a class.
    pub(super) fn parameters(&self) -> usize {
        self.classes * (self.dim + usize::from(self.intercept))
    }

    /// The z of some rows.
    pub(super) fn block(&self, rows: Range<usize>) -> Matrix<'_, T> {
        Matrix::new(&self.values[rows.start * self.dim..rows.end * self.dim], rows.len(), self.dim)
    }

    /// Weights and intercept for x instead of z: W = W_z V, b = b_z - W mean. Of intercepts only differences matter; their
    /// mean is set to zero.
    pub(super) fn original(&self, point: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (weights_z, intercept_z) = point.split_at(self.classes * self.dim);
        let mut weights = vec![0.0; self.classes * self.dim];
        let vectors = Matrix::new(&self.vectors, self.dim, self.dim);
        // Written column by column, V^T W_z^T is W_z V row by row.
        product(&mut weights, vectors.transposed(), Matrix::new(weights_z, self.classes, self.dim).transposed());
        let mut intercept: Vec<f64> = vec![0.0; self.classes];
        if self.intercept {
            for ((b, &b_z), w) in intercept.iter_mut().zip(intercept_z).zip(weights.chunks(self.dim)) {
                *b = b_z - w.iter().zip(&self.mean).map(|(w, m)| w * m).sum::<f64>();
            }
            let mean = intercept.iter().sum::<f64>() / self.classes as f64;
            intercept.iter_mut().for_each(|b| *b -= mean);
        }
        (weights, intercept)
    }
}

/// A range in pieces of this many, the last one shorter.
pub(super) fn split(range: Range<usize>, size: usize) -> Vec<Range<usize>> {
    let size = size.max(1);
    range.clone().step_by(size).map(|start| start..(start + size).min(range.end)).collect()
}
