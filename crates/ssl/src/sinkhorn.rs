//! Targets that use every prototype equally often: Sinkhorn's scaling of a batch.
//!
//! On the host and in double precision: the targets of a step are few beside its activations (batch times K), and those of
//! all processes and all parts of a step have to be scaled together.

/// Scales rows of probabilities over `columns` prototypes so that each prototype gets about the same share of the batch
/// while every row stays a distribution: `iterations` times columns, then rows.
pub fn sinkhorn(rows: &mut [f64], columns: usize, iterations: usize) {
    let count = rows.len() / columns;
    let total: f64 = rows.iter().sum();
    rows.iter_mut().for_each(|x| *x /= total);
    for _ in 0..iterations {
        let mut sums = vec![0.0; columns];
        for row in rows.chunks_exact(columns) {
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
        }
        for row in rows.chunks_exact_mut(columns) {
            // A prototype that no row gives any weight stays without.
            row.iter_mut().zip(&sums).for_each(|(x, &sum)| {
                if sum > 0.0 {
                    *x /= sum * columns as f64;
                }
            });
            let sum: f64 = row.iter().sum();
            row.iter_mut().for_each(|x| *x /= sum * count as f64);
        }
    }
    rows.iter_mut().for_each(|x| *x *= count as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stay_distributions_and_prototypes_come_to_equal_shares() {
        let mut rows: Vec<f64> = (0..12 * 5).map(|i| (1.3 * f64::from(i)).sin().exp().powi(3)).collect();
        sinkhorn(&mut rows, 5, 50);
        for row in rows.chunks(5) {
            assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        }
        for column in 0..5 {
            let share: f64 = rows.iter().skip(column).step_by(5).sum();
            assert!((share - 12.0 / 5.0).abs() < 1e-9, "{share}");
        }
    }

    #[test]
    fn a_prototype_without_weight_breaks_nothing() {
        let mut rows = vec![0.5, 0.5, 0.0, 0.9, 0.1, 0.0];
        sinkhorn(&mut rows, 3, 3);
        assert!(rows.iter().all(|x| x.is_finite()) && rows[2] == 0.0);
    }
}
