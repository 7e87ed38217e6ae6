//! Whitening: directions in which all images differ much count as much as those in which they differ little.

use rayon::prelude::*;
use tensor::Device;

use crate::eigen::{self, Eigen};
use crate::error::EvalError;
use crate::features::Features;

/// Eigenvalues are no smaller than this share of the largest.
const FLOOR: f64 = 1e-5;
/// Samples whose products are summed by one task.
const SAMPLES: usize = 256;

/// The mean that is subtracted, and the transform diag(l^-1/2) V' behind it, where l and V decompose X'X / n.
///
/// As in the reference, X is not centred: the mean itself is one of the directions.
#[derive(Debug)]
pub struct Whitening {
    mean: Vec<f64>,
    /// Row after row.
    transform: Vec<f64>,
}

impl Whitening {
    /// Learns from the features of images that are neither searched nor looked for, on the threads of `host`. Takes two matrices of
    /// dim x dim in double precision, and some for a moment.
    pub fn fit(features: &Features, host: &Device) -> Result<Self, EvalError> {
        let (dim, count) = (features.dim, features.len());
        if count < 2 || dim == 0 {
            return Err(EvalError::Empty { which: "whitening" });
        }
        let column_mean = |column: usize| {
            features.values.iter().skip(column).step_by(dim).map(|&x| f64::from(x)).sum::<f64>() / count as f64
        };
        let mean = host.run(|| (0..dim).into_par_iter().map(column_mean).collect());
        let covariance = host.run(|| covariance(&features.values, dim));
        let decomposed = host.run(|| eigen::symmetric(covariance, dim));
        let Some(Eigen { values, vectors: mut transform }) = decomposed else {
            return Err(EvalError::NotFinite { name: "the covariance of the whitening images".to_owned() });
        };
        let floor = FLOOR * values.iter().copied().fold(0.0, f64::max);
        for (row, value) in transform.chunks_exact_mut(dim).zip(values) {
            let scale = value.max(floor).max(f64::MIN_POSITIVE).sqrt().recip();
            row.iter_mut().for_each(|x| *x *= scale);
        }
        Ok(Self { mean, transform })
    }

    /// Whitens features, on the threads of `host`.
    ///
    /// # Panics
    /// When they are of another width than those that were learnt from.
    pub fn apply(&self, features: &mut Features, host: &Device) {
        let dim = self.mean.len();
        assert_eq!(features.dim, dim, "features of one network");
        host.run(|| {
            features.values.par_chunks_exact_mut(dim).for_each(|row| {
                let centered: Vec<f64> = row.iter().zip(&self.mean).map(|(&x, mean)| f64::from(x) - mean).collect();
                for (x, direction) in row.iter_mut().zip(self.transform.chunks_exact(dim)) {
                    *x = eigen::dot(direction, &centered) as f32;
                }
            });
        });
    }
}

/// X'X / n, whose lower half is computed.
fn covariance(values: &[f32], dim: usize) -> Vec<f64> {
    let mut sums = vec![0.0; dim * dim];
    // In pieces of samples, so that a piece stays in the cache while all rows pass over it; rows are shared out.
    for piece in values.chunks(SAMPLES * dim) {
        sums.par_chunks_exact_mut(dim).enumerate().for_each(|(row, sums)| {
            for sample in piece.chunks_exact(dim) {
                let x = f64::from(sample[row]);
                for (sum, &y) in sums[..=row].iter_mut().zip(sample) {
                    *sum += x * f64::from(y);
                }
            }
        });
    }
    let count = (values.len() / dim) as f64;
    (0..dim * dim).map(|at| sums[(at / dim).max(at % dim) * dim + (at / dim).min(at % dim)] / count).collect()
}
