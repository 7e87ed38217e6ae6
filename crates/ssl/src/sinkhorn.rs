//! Targets that use every prototype equally often: Sinkhorn's scaling of a batch.
//!
//! On the host and in double precision: the targets of a step are few beside its activations (batch times K), and those of
//! all processes and all parts of a step have to be scaled together.

/// Scales rows of probabilities over `columns` prototypes so that each prototype gets about the same share of the batch
/// while every row stays a distribution: `iterations` times columns, then rows.
///
/// What is scaled is a factor for each row and one for each column; the rows themselves are only read until the end. That the
/// shares of prototypes are 1 / K and those of rows 1 / B is a factor of all, which the next scaling takes away.
pub fn sinkhorn(rows: &mut [f64], columns: usize, iterations: usize) {
    let mut of_rows = vec![1.0; rows.len() / columns];
    let mut of_columns = vec![1.0; columns];
    for _ in 0..iterations {
        let mut sums = vec![0.0; columns];
        for (row, factor) in rows.chunks_exact(columns).zip(&of_rows) {
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += factor * x);
        }
        for (factor, sum) in of_columns.iter_mut().zip(sums) {
            // A prototype that no row gives any weight stays without. Of less than this the inverse is infinite.
            *factor = if sum >= f64::MIN_POSITIVE { 1.0 / sum } else { 1.0 };
        }
        for (row, factor) in rows.chunks_exact(columns).zip(&mut of_rows) {
            *factor = 1.0 / dot(row, &of_columns);
        }
    }
    for (row, of_row) in rows.chunks_exact_mut(columns).zip(of_rows) {
        row.iter_mut().zip(&of_columns).for_each(|(x, of_column)| *x = *x * of_column * of_row);
    }
}

/// In lanes that are added up at the end, so that it becomes vector instructions.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    const LANES: usize = 8;
    let mut sums = [0.0; LANES];
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f64 = a.remainder().iter().zip(b.remainder()).map(|(x, y)| x * y).sum();
    for (a, b) in a.zip(b) {
        for ((sum, x), y) in sums.iter_mut().zip(a).zip(b) {
            *sum += x * y;
        }
    }
    sums.iter().sum::<f64>() + rest
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

    /// As it is described: the matrix itself is divided by its sums, again and again.
    fn by_dividing(rows: &mut [f64], columns: usize, iterations: usize) {
        let count = rows.len() / columns;
        for _ in 0..iterations {
            let sums: Vec<f64> = (0..columns).map(|c| rows.iter().skip(c).step_by(columns).sum()).collect();
            rows.iter_mut().enumerate().for_each(|(i, x)| *x /= sums[i % columns] * columns as f64);
            for row in rows.chunks_exact_mut(columns) {
                let sum: f64 = row.iter().sum();
                row.iter_mut().for_each(|x| *x /= sum * count as f64);
            }
        }
        rows.iter_mut().for_each(|x| *x *= count as f64);
    }

    #[test]
    fn factors_give_what_dividing_the_matrix_gives() {
        for (count, columns, iterations) in [(12, 5, 3), (7, 19, 3), (1, 8, 2), (30, 33, 10)] {
            let rows: Vec<f64> = (0..count * columns).map(|i| (1.3 * i as f64).sin().exp().powi(9)).collect();
            let (mut scaled, mut divided) = (rows.clone(), rows);
            sinkhorn(&mut scaled, columns, iterations);
            by_dividing(&mut divided, columns, iterations);
            for (x, y) in scaled.iter().zip(&divided) {
                assert!((x - y).abs() <= 1e-13 * y, "{x} {y}");
            }
        }
    }

    #[test]
    fn a_prototype_without_weight_breaks_nothing() {
        for nothing in [0.0, 1e-310] {
            let mut rows = vec![0.5, 0.5, nothing, 0.9, 0.1, nothing];
            sinkhorn(&mut rows, 3, 3);
            assert!(rows.iter().all(|x| x.is_finite()) && rows[2] <= 2.0 * nothing, "{rows:?}");
        }
    }
}
