//! The effective rank of features: how many directions those of different images take.

use tensor::Tensor;

/// Rows of features that the rank is taken of; more would cost time at every log line.
pub(crate) const RANK_ROWS: usize = 64;

/// exp of the entropy of the singular values' shares (RankMe), of at most the first 64 rows.
pub fn effective_rank(features: &Tensor) -> f64 {
    let (columns, rows) = (features.columns(), features.rows().min(RANK_ROWS));
    let x = features.to_f64();
    let row = |i: usize| &x[i * columns..(i + 1) * columns];
    let mut gram: Vec<Vec<f64>> =
        (0..rows).map(|i| (0..rows).map(|j| row(i).iter().zip(row(j)).map(|(a, b)| a * b).sum()).collect()).collect();
    let singular: Vec<f64> = eigenvalues(&mut gram).into_iter().map(|l| l.max(0.0).sqrt()).collect();
    let sum: f64 = singular.iter().sum();
    let entropy: f64 = singular.iter().map(|s| s / sum).filter(|&p| p > 0.0).map(|p| -p * p.ln()).sum();
    entropy.exp()
}

/// Eigenvalues of a symmetric matrix by Jacobi rotations: small, and exact enough for a rank.
fn eigenvalues(a: &mut [Vec<f64>]) -> Vec<f64> {
    let n = a.len();
    for _sweep in 0..30 {
        let off: f64 = (0..n).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| a[i][j] * a[i][j]).sum();
        let diagonal: f64 = (0..n).map(|i| a[i][i] * a[i][i]).sum();
        if off <= 1e-20 * diagonal {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                if a[p][q] == 0.0 {
                    continue;
                }
                let theta = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
                let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                let t = if theta == 0.0 { 1.0 } else { t };
                let (c, s) = (1.0 / (t * t + 1.0).sqrt(), t / (t * t + 1.0).sqrt());
                for row in a.iter_mut() {
                    let (x, y) = (row[p], row[q]);
                    (row[p], row[q]) = (c * x - s * y, s * x + c * y);
                }
                let (upper, lower) = a.split_at_mut(q);
                for (x, y) in upper[p].iter_mut().zip(&mut lower[0]) {
                    (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
                }
            }
        }
    }
    (0..n).map(|i| a[i][i]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::Device;

    #[test]
    fn the_rank_of_features_is_that_of_their_directions() {
        let device = Device::cpu(Default::default()).unwrap();
        let rank = |values: &[f64]| effective_rank(&device.from_f64(&[4, values.len() / 4], values));
        let same = rank(&[1.0, 2.0, 2.0, 4.0, 3.0, 6.0, 0.5, 1.0]);
        assert!((same - 1.0).abs() < 1e-6);
        let mut identity = vec![0.0; 16];
        (0..4).for_each(|i| identity[i * 5] = 2.0);
        assert!((rank(&identity) - 4.0).abs() < 1e-9);
    }
}
