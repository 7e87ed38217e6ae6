//! Batch normalisation of a head's hidden layer, in training mode: with the statistics of the rows at hand, or with those of
//! more rows, of which other processes have the rest.

use rayon::prelude::*;

use super::{Cpu, ROWS_PER_TASK, Real, reduce};

/// Column means and biased variances.
fn statistics<T: Real>(cpu: &Cpu, x: &[T], columns: usize, mean: &mut [T], variance: &mut [T]) {
    let inverse = T::ONE / T::from_f64((x.len() / columns) as f64);
    mean.fill(T::ZERO);
    reduce::add_column_sums(cpu, x, columns, mean);
    mean.iter_mut().for_each(|m| *m *= inverse);
    let squares: Vec<T> =
        x.iter().enumerate().map(|(i, &x)| (x - mean[i % columns]) * (x - mean[i % columns])).collect();
    variance.fill(T::ZERO);
    reduce::add_column_sums(cpu, &squares, columns, variance);
    variance.iter_mut().for_each(|v| *v *= inverse);
}

/// y = (x - mean) / sqrt(variance + epsilon) * weight + bias; writes mean and biased variance.
pub(crate) fn forward<T: Real>(
    cpu: &Cpu,
    x: &[T],
    weight: &[T],
    bias: &[T],
    epsilon: f64,
    y: &mut [T],
    mean: &mut [T],
    variance: &mut [T],
) {
    statistics(cpu, x, weight.len(), mean, variance);
    apply(cpu, x, mean, variance, weight, bias, epsilon, y);
}

/// y = (x - mean) / sqrt(variance + epsilon) * weight + bias with given statistics.
pub(crate) fn apply<T: Real>(
    cpu: &Cpu,
    x: &[T],
    mean: &[T],
    variance: &[T],
    weight: &[T],
    bias: &[T],
    epsilon: f64,
    y: &mut [T],
) {
    let columns = weight.len();
    let scale: Vec<T> = weight.iter().zip(variance).map(|(&w, &v)| w / (v + T::from_f64(epsilon)).sqrt()).collect();
    let task = ROWS_PER_TASK * columns;
    cpu.install(|| {
        x.par_chunks(task).zip(y.par_chunks_mut(task)).for_each(|(x, y)| {
            for (x, y) in x.chunks_exact(columns).zip(y.chunks_exact_mut(columns)) {
                for c in 0..columns {
                    y[c] = (x[c] - mean[c]).mul_add(scale[c], bias[c]);
                }
            }
        });
    });
}

/// dx (written) and the parameters' gradients (added).
pub(crate) fn backward<T: Real>(
    cpu: &Cpu,
    x: &[T],
    mean: &[T],
    variance: &[T],
    weight: &[T],
    epsilon: f64,
    dy: &[T],
    dx: &mut [T],
    d_weight: &mut [T],
    d_bias: &mut [T],
) {
    let columns = weight.len();
    let inverse = T::ONE / T::from_f64((x.len() / columns) as f64);
    let (mut sum, mut sum_hat) = (vec![T::ZERO; columns], vec![T::ZERO; columns]);
    sums(cpu, x, mean, variance, epsilon, dy, &mut sum, &mut sum_hat);
    let means = |sums: &[T]| sums.iter().map(|&s| s * inverse).collect::<Vec<T>>();
    input_gradient(x, mean, variance, weight, epsilon, dy, &means(&sum), &means(&sum_hat), dx);
    d_weight.iter_mut().zip(&sum_hat).for_each(|(d, &s)| *d += s);
    d_bias.iter_mut().zip(&sum).for_each(|(d, &s)| *d += s);
}

fn reciprocal_deviations<T: Real>(variance: &[T], epsilon: f64) -> Vec<T> {
    variance.iter().map(|&v| T::ONE / (v + T::from_f64(epsilon)).sqrt()).collect()
}

/// Sums of dy and of dy x_hat over the rows (added).
pub(crate) fn sums<T: Real>(
    cpu: &Cpu,
    x: &[T],
    mean: &[T],
    variance: &[T],
    epsilon: f64,
    dy: &[T],
    sum: &mut [T],
    sum_hat: &mut [T],
) {
    let columns = mean.len();
    let rstd = reciprocal_deviations(variance, epsilon);
    let hat = |i: usize| (x[i] - mean[i % columns]) * rstd[i % columns];
    let dy_hat: Vec<T> = dy.iter().enumerate().map(|(i, &d)| d * hat(i)).collect();
    reduce::add_column_sums(cpu, dy, columns, sum);
    reduce::add_column_sums(cpu, &dy_hat, columns, sum_hat);
}

/// dx (written), from the means of dy and of dy x_hat over all rows that the statistics are of.
pub(crate) fn input_gradient<T: Real>(
    x: &[T],
    mean: &[T],
    variance: &[T],
    weight: &[T],
    epsilon: f64,
    dy: &[T],
    mean_dy: &[T],
    mean_dy_hat: &[T],
    dx: &mut [T],
) {
    let columns = weight.len();
    let rstd = reciprocal_deviations(variance, epsilon);
    for (i, dx) in dx.iter_mut().enumerate() {
        let c = i % columns;
        let hat = (x[i] - mean[c]) * rstd[c];
        *dx = weight[c] * rstd[c] * (dy[i] - mean_dy[c] - hat * mean_dy_hat[c]);
    }
}

/// Output, means and biased variances, column by column: the oracle.
#[cfg(test)]
fn batch_norm_plain(x: &[f64], weight: &[f64], bias: &[f64], epsilon: f64) -> [Vec<f64>; 3] {
    let columns = weight.len();
    let rows = x.len() / columns;
    let (mut y, mut means, mut variances) = (vec![0.0; x.len()], Vec::new(), Vec::new());
    for c in 0..columns {
        let column: Vec<f64> = (0..rows).map(|r| x[r * columns + c]).collect();
        let mean = column.iter().sum::<f64>() / rows as f64;
        let variance = column.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / rows as f64;
        for r in 0..rows {
            y[r * columns + c] = (column[r] - mean) / (variance + epsilon).sqrt() * weight[c] + bias[c];
        }
        means.push(mean);
        variances.push(variance);
    }
    [y, means, variances]
}

/// Gradients of input, weight and bias from the Jacobian of a column, as for LayerNorm but over rows: the oracle.
#[cfg(test)]
fn batch_norm_backward_plain(x: &[f64], weight: &[f64], epsilon: f64, dy: &[f64]) -> [Vec<f64>; 3] {
    let columns = weight.len();
    let rows = x.len() / columns;
    let n = rows as f64;
    let [hat, _, variances] = batch_norm_plain(x, &vec![1.0; columns], &vec![0.0; columns], epsilon);
    let (mut dx, mut dw, mut db) = (vec![0.0; x.len()], vec![0.0; columns], vec![0.0; columns]);
    for c in 0..columns {
        let s = 1.0 / (variances[c] + epsilon).sqrt();
        for i in (0..rows).map(|r| r * columns + c) {
            dw[c] += dy[i] * hat[i];
            db[c] += dy[i];
            for j in (0..rows).map(|r| r * columns + c) {
                let same = if i == j { 1.0 } else { 0.0 };
                dx[j] += dy[i] * weight[c] * s * (same - 1.0 / n - hat[i] * hat[j] / n);
            }
        }
    }
    [dx, dw, db]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{assert_follows, cpu, noise, unwritten, wide};

    fn matches_the_plain_form<T: Real>(rows: usize, columns: usize, tolerance: f64) {
        let n = rows * columns;
        let x: Vec<T> = noise::<T>(1, n).iter().map(|&x| x + T::from_f64(2.0)).collect();
        let (weight, bias, dy) = (noise::<T>(2, columns), noise::<T>(3, columns), noise::<T>(4, n));
        let (mut y, mut mean, mut variance) = (unwritten(n), unwritten(columns), unwritten(columns));
        forward(&cpu(), &x, &weight, &bias, 1e-5, &mut y, &mut mean, &mut variance);
        let plain = batch_norm_plain(&wide(&x), &wide(&weight), &wide(&bias), 1e-5);
        for (got, want) in [&y, &mean, &variance].into_iter().zip(&plain) {
            assert_follows(got, want, tolerance);
        }

        let (mut dx, mut dw, mut db) = (unwritten(n), vec![T::ZERO; columns], vec![T::ZERO; columns]);
        backward(&cpu(), &x, &mean, &variance, &weight, 1e-5, &dy, &mut dx, &mut dw, &mut db);
        let plain = batch_norm_backward_plain(&wide(&x), &wide(&weight), 1e-5, &wide(&dy));
        for (got, want) in [dx, dw, db].iter().zip(&plain) {
            assert_follows(got, want, tolerance);
        }
    }

    #[test]
    fn batch_norm_and_its_derivative_match_the_plain_form() {
        for (rows, columns) in [(2, 3), (64, 5), (300, 33)] {
            matches_the_plain_form::<f64>(rows, columns, 1e-12);
            matches_the_plain_form::<f32>(rows, columns, 1e-5);
        }
    }
}
