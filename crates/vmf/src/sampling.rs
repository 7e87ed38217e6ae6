//! Draws from the distribution: Wood's rejection for the cosine to the mean, a uniform direction around it.
//!
//! At kappa = 1e6 the cosine is 1 but for its last digits, so everything is written in `1 - cosine`, whose relative
//! accuracy survives: the angle of a draw has the right distribution even where its cosine rounds to 1.

use random::Stream;

/// A unit vector from the component with unit `mean` and `kappa >= 0`.
pub(crate) fn sample(mean: &[f64], kappa: f64, stream: &mut Stream) -> Vec<f64> {
    let deficit = cosine_deficit(mean.len(), kappa, stream);
    let mut point = tangent(mean.len(), stream);
    let sine = (deficit * (2.0 - deficit)).sqrt();
    for x in &mut point[1..] {
        *x *= sine;
    }
    point[0] = 1.0 - deficit;
    reflect_first_axis_to(mean, &mut point);
    point
}

/// Draws `1 - cosine`, by rejection from a transformed Beta (Wood 1994, algorithm VM*).
fn cosine_deficit(p: usize, kappa: f64, stream: &mut Stream) -> f64 {
    let m = (p - 1) as f64;
    let b = m / (2.0 * kappa + m.hypot(2.0 * kappa));
    // 1 - x0, with x0 = (1 - b) / (1 + b) the cosine where the envelope touches.
    let touch = 2.0 * b / (1.0 + b);
    loop {
        // z = g1 / (g1 + g2) is Beta(m/2, m/2), and the cosine (1 - (1 + b) z) / (1 - (1 - b) z) is the proposal.
        let (g1, g2) = (gamma_half(p - 1, stream), gamma_half(p - 1, stream));
        let deficit = 2.0 * b * g1 / (g2 + b * g1);
        let gap = deficit - touch;
        let log_ratio = m * ((1.0 - touch) * gap / (touch * (2.0 - touch))).ln_1p() - kappa * gap;
        let log_uniform = (1.0 - stream.uniform()).ln();
        // A concentration too large for f64 makes the ratio 0 / 0, at the mean itself: accept it rather than loop.
        if log_ratio >= log_uniform || log_ratio.is_nan() {
            return deficit;
        }
    }
}

/// Gamma with shape `twice_shape / 2` and scale 1, `twice_shape >= 1` (Marsaglia and Tsang 2000).
fn gamma_half(twice_shape: usize, stream: &mut Stream) -> f64 {
    if twice_shape == 1 {
        let x = stream.normal();
        return 0.5 * x * x;
    }
    let d = 0.5 * twice_shape as f64 - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = stream.normal();
        let root = 1.0 + c * x;
        if root <= 0.0 {
            continue;
        }
        let v = root * root * root;
        if (1.0 - stream.uniform()).ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
            return d * v;
        }
    }
}

/// A uniform unit vector of R^p orthogonal to the first axis.
fn tangent(p: usize, stream: &mut Stream) -> Vec<f64> {
    let mut direction = vec![0.0; p];
    loop {
        for x in &mut direction[1..] {
            *x = stream.normal();
        }
        let length = direction.iter().map(|x| x * x).sum::<f64>().sqrt();
        if length > 0.0 {
            direction.iter_mut().for_each(|x| *x /= length);
            return direction;
        }
    }
}

/// Applies the reflection (and sign) that takes the first axis to `mean`.
///
/// The mirror is `mean + sign * e1`, never the short difference of the two, so orthogonality holds to the last digit.
fn reflect_first_axis_to(mean: &[f64], point: &mut [f64]) {
    let sign = 1.0_f64.copysign(mean[0]);
    let along: f64 = mean.iter().zip(point.iter()).map(|(m, x)| m * x).sum::<f64>() + sign * point[0];
    let scale = along / (1.0 + mean[0].abs());
    point[0] -= scale * sign;
    for (x, m) in point.iter_mut().zip(mean) {
        *x = sign * (scale * m - *x);
    }
}

#[cfg(test)]
mod tests {
    use random::{Key, Purpose};

    use super::*;

    #[test]
    fn the_reflection_takes_the_first_axis_to_the_mean_and_keeps_lengths() {
        for mean in [[0.6, 0.8, 0.0], [-0.6, 0.0, 0.8], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]] {
            let mut axis = [1.0, 0.0, 0.0];
            reflect_first_axis_to(&mean, &mut axis);
            assert!(axis.iter().zip(&mean).all(|(a, m)| (a - m).abs() < 1e-15), "{mean:?} {axis:?}");
            let mut other = [0.0, 0.6, -0.8];
            reflect_first_axis_to(&mean, &mut other);
            let dot: f64 = other.iter().zip(&mean).map(|(a, m)| a * m).sum();
            let square: f64 = other.iter().map(|x| x * x).sum();
            assert!(dot.abs() < 1e-15 && (square - 1.0).abs() < 1e-15, "{mean:?}");
        }
    }

    #[test]
    fn gamma_draws_have_mean_and_variance_equal_to_their_shape() {
        let mut stream = Key::new(3, Purpose::Bench).stream();
        for twice_shape in [1, 2, 3, 15, 255] {
            let (n, shape) = (40_000, twice_shape as f64 / 2.0);
            let draws: Vec<f64> = (0..n).map(|_| gamma_half(twice_shape, &mut stream)).collect();
            let mean = draws.iter().sum::<f64>() / n as f64;
            let variance = draws.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / n as f64;
            // The mean's standard error is sqrt(shape / n), the variance's below sqrt((2 + 6 / shape) / n) of it.
            assert!((mean - shape).abs() < 5.0 * (shape / n as f64).sqrt(), "{shape}: {mean}");
            assert!(
                (variance / shape - 1.0).abs() < 5.0 * ((2.0 + 6.0 / shape) / n as f64).sqrt(),
                "{shape}: {variance}"
            );
        }
    }

    #[test]
    fn a_concentration_beyond_f64_ends_at_the_mean() {
        let mut stream = Key::new(4, Purpose::Bench).stream();
        for kappa in [1e18, 1e300, f64::MAX] {
            assert!((sample(&[0.0, -1.0], kappa, &mut stream)[1] + 1.0).abs() < 1e-15, "kappa = {kappa}");
        }
    }
}
