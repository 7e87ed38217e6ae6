//! Batch norm over the rows of all processes that share a batch.
//!
//! Each has the statistics of its own rows. Those of all follow from them: with n_i rows, mean m_i and variance v_i in process i,
//!
//! ```text
//! m = sum n_i m_i / n,   v = sum n_i (v_i + (m_i - m)^2) / n,   n = sum n_i
//! ```
//!
//! and the derivative needs the sums of dy and dy x_hat over all rows. Both are put together in double precision and in the
//! order of the processes, so that every one of them computes with the same numbers.

use tensor::ops::{self, BatchStatistics};
use tensor::{ParamId, ParamSet, Tensor};

use crate::peers::{PeerError, Peers};

const EPSILON: f64 = 1e-5;

/// The parameters of a batch norm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedNorm {
    /// Multiplies each column.
    pub weight: ParamId,
    /// Added to each column.
    pub bias: ParamId,
}

/// What the derivative needs.
#[derive(Debug)]
pub(crate) struct SharedNormSaved {
    x: Tensor,
    statistics: BatchStatistics,
    /// Rows in all processes.
    rows: f64,
}

impl SharedNorm {
    /// The rows at hand, normalised with the statistics of all.
    pub fn forward(
        self,
        p: &ParamSet,
        x: Tensor,
        peers: &mut dyn Peers,
    ) -> Result<(Tensor, SharedNormSaved), PeerError> {
        let (weight, bias) = (&p[self.weight], &p[self.bias]);
        let (y, own) = ops::batch_norm(&x, weight, bias, EPSILON);
        let here = x.rows() as f64;
        if peers.ranks() == 1 {
            return Ok((y, SharedNormSaved { x, statistics: own, rows: here }));
        }
        drop(y);
        let sent: Vec<f64> = std::iter::once(here).chain(own.mean.to_f64()).chain(own.variance.to_f64()).collect();
        let (rows, mean, variance) = pooled(&peers.gather(&sent)?, own.mean.len());
        let exact = |values: &[f64]| x.device().exact_from_f64(own.mean.shape(), values);
        let statistics = BatchStatistics { mean: exact(&mean), variance: exact(&variance) };
        let y = ops::batch_norm_with(&x, &statistics, weight, bias, EPSILON);
        Ok((y, SharedNormSaved { x, statistics, rows }))
    }

    /// The gradient of the rows at hand; adds what they give of those of weight and bias.
    pub fn backward(
        self,
        p: &ParamSet,
        saved: &SharedNormSaved,
        dy: &Tensor,
        grads: &mut ParamSet,
        peers: &mut dyn Peers,
    ) -> Result<Tensor, PeerError> {
        let SharedNormSaved { x, statistics, rows } = saved;
        let (d_weight, d_bias) = grads.pair_mut(self.weight, self.bias);
        if peers.ranks() == 1 {
            return Ok(ops::batch_norm_backward(x, statistics, &p[self.weight], EPSILON, dy, d_weight, d_bias));
        }
        let sums = ops::batch_norm_sums(x, statistics, EPSILON, dy);
        *d_bias = ops::add_scaled(d_bias, 1.0, &sums.of_dy);
        *d_weight = ops::add_scaled(d_weight, 1.0, &sums.of_dy_hat);
        let sent: Vec<f64> = sums.of_dy.to_f64().into_iter().chain(sums.of_dy_hat.to_f64()).collect();
        let everywhere = peers.gather(&sent)?;
        let mean = |i: usize| everywhere.iter().filter(|sums| !sums.is_empty()).map(|sums| sums[i]).sum::<f64>() / rows;
        let columns = sums.of_dy.len();
        let exact = |from: usize| {
            let means: Vec<f64> = (from..from + columns).map(mean).collect();
            x.device().exact_from_f64(sums.of_dy.shape(), &means)
        };
        let means = ops::BatchSums { of_dy: exact(0), of_dy_hat: exact(columns) };
        Ok(ops::batch_norm_input_gradient(x, statistics, &p[self.weight], EPSILON, dy, &means))
    }

    /// Takes part in a [`Self::forward`] or [`Self::backward`] of the others without a row of its own.
    pub fn stand_by(peers: &mut dyn Peers) -> Result<(), PeerError> {
        peers.gather(&[]).map(|_| ())
    }
}

/// Rows, means and variances of all processes from what each has sent: rows, means, variances, or nothing.
fn pooled(everywhere: &[Vec<f64>], columns: usize) -> (f64, Vec<f64>, Vec<f64>) {
    let parts: Vec<(f64, &[f64], &[f64])> = everywhere
        .iter()
        .filter(|sent| !sent.is_empty())
        .map(|sent| (sent[0], &sent[1..1 + columns], &sent[1 + columns..]))
        .collect();
    let rows: f64 = parts.iter().map(|(n, ..)| n).sum();
    let mean: Vec<f64> = (0..columns).map(|c| parts.iter().map(|(n, m, _)| n * m[c]).sum::<f64>() / rows).collect();
    let of_column = |c: usize| parts.iter().map(|(n, m, v)| n * (v[c] + (m[c] - mean[c]).powi(2))).sum::<f64>() / rows;
    let variance = (0..columns).map(of_column).collect();
    (rows, mean, variance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_parts_give_those_of_all() {
        let all: [f64; 6] = [1.0, 4.0, -2.0, 0.5, 3.0, 8.0];
        let of = |part: &[f64]| {
            let n = part.len() as f64;
            let mean = part.iter().sum::<f64>() / n;
            vec![n, mean, part.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n]
        };
        let (rows, mean, variance) = pooled(&[of(&all[..1]), Vec::new(), of(&all[1..])], 1);
        let whole = of(&all);
        assert_eq!(rows, 6.0);
        assert!((mean[0] - whole[1]).abs() < 1e-15 && (variance[0] - whole[2]).abs() < 1e-14, "{mean:?} {variance:?}");
    }
}
