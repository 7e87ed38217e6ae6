//! Draws against the moments that the exact functions predict, and fits against the draws' parameters.

use random::{Key, Purpose, Stream};
use vmf::{VonMisesFisher, mean_resultant_length, mean_resultant_length_derivative};

/// Five standard errors: a right sampler fails one such check in two million, and the seeds are fixed.
const SIGMAS: f64 = 5.0;

fn stream(case: u64) -> Stream {
    Key::new(20, Purpose::Bench).sample(case).stream()
}

/// A direction without zeros or symmetry.
fn direction(p: usize) -> Vec<f64> {
    (0..p).map(|i| (1.3 + 0.7 * i as f64).sin()).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[test]
fn the_cosine_of_draws_has_the_mean_and_variance_of_the_distribution() {
    let n = 4000;
    for (case, p) in [2_usize, 3, 16, 256].into_iter().enumerate() {
        for kappa in [0.0, 0.5, 10.0, 100.0, 1e4] {
            let component = VonMisesFisher::new(&direction(p), kappa).unwrap();
            let mut stream = stream(case as u64);
            let cosines: Vec<f64> =
                (0..n).map(|_| dot(component.mean_direction(), &component.sample(&mut stream))).collect();
            let mean = cosines.iter().sum::<f64>() / f64::from(n);
            let second = cosines.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / f64::from(n);
            let fourth = cosines.iter().map(|c| (c - mean).powi(4)).sum::<f64>() / f64::from(n);
            let variance: f64 = mean_resultant_length_derivative(p, kappa);
            let mean_error = (variance / f64::from(n)).sqrt();
            let variance_error = ((fourth - second * second) / f64::from(n)).sqrt();
            let expected: f64 = mean_resultant_length(p, kappa);
            assert!((mean - expected).abs() < SIGMAS * mean_error, "p = {p}, kappa = {kappa}: {mean} {expected}");
            assert!(
                (second - variance).abs() < SIGMAS * variance_error,
                "p = {p}, kappa = {kappa}: {second} {variance}"
            );
        }
    }
}

#[test]
fn at_a_million_the_angle_still_has_its_distribution() {
    // kappa * angle^2 is nearly chi-square with p - 1 degrees of freedom: mean p - 1, variance 2 (p - 1).
    for p in [2_usize, 3, 16, 256] {
        let component = VonMisesFisher::new(&direction(p), 1e6).unwrap();
        let (n, mut stream) = (2000, stream(40));
        let total: f64 = (0..n)
            .map(|_| {
                let draw = component.sample(&mut stream);
                1e6 * draw.iter().zip(component.mean_direction()).map(|(x, m)| (x - m).powi(2)).sum::<f64>()
            })
            .sum();
        let freedom = (p - 1) as f64;
        let error = (2.0 * freedom / f64::from(n)).sqrt();
        assert!((total / f64::from(n) - freedom).abs() < SIGMAS * error, "p = {p}: {}", total / f64::from(n));
    }
}

#[test]
fn draws_are_unit_vectors_and_a_function_of_their_key() {
    for p in [2, 3, 17, 256] {
        for kappa in [0.0, 1.0, 1e6] {
            let component = VonMisesFisher::new(&direction(p), kappa).unwrap();
            let draw = component.sample(&mut stream(7));
            assert!((dot(&draw, &draw) - 1.0).abs() < 1e-14, "p = {p}, kappa = {kappa}");
            assert_eq!(draw, component.sample(&mut stream(7)));
            assert_ne!(draw, component.sample(&mut stream(8)));
        }
    }
}

#[test]
fn around_the_mean_every_direction_is_equally_likely() {
    for p in [3_usize, 16] {
        let component = VonMisesFisher::new(&direction(p), 5.0).unwrap();
        let (n, mut stream) = (6000, stream(60));
        let mut sums = vec![0.0; p];
        let mut squares = vec![0.0; p];
        for _ in 0..n {
            let draw = component.sample(&mut stream);
            let cosine = dot(&draw, component.mean_direction());
            for (i, (x, m)) in draw.iter().zip(component.mean_direction()).enumerate() {
                let tangent = x - cosine * m;
                sums[i] += tangent;
                squares[i] += tangent * tangent / (1.0 - cosine * cosine);
            }
        }
        for (i, m) in component.mean_direction().iter().enumerate() {
            // A uniform tangent direction has covariance (I - mu mu') / (p - 1).
            let variance = (1.0 - m * m) / (p - 1) as f64;
            let error = (variance / f64::from(n)).sqrt();
            assert!((sums[i] / f64::from(n)).abs() < SIGMAS * error, "p = {p}, axis {i}: {}", sums[i]);
            assert!((squares[i] / f64::from(n) - variance).abs() < SIGMAS * 1.5 * error, "p = {p}, axis {i}");
        }
    }
}

#[test]
fn on_the_ordinary_sphere_the_cosine_follows_its_closed_distribution() {
    // P(cosine <= w) = (e^(kappa w) - e^-kappa) / (e^kappa - e^-kappa); Kolmogorov's distance at one in a million.
    for kappa in [0.3_f64, 4.0, 60.0] {
        let component = VonMisesFisher::new(&[0.1, -0.4, 0.2], kappa).unwrap();
        let (n, mut stream) = (5000, stream(80));
        let mut cosines: Vec<f64> =
            (0..n).map(|_| dot(component.mean_direction(), &component.sample(&mut stream))).collect();
        cosines.sort_by(f64::total_cmp);
        let scale = 1.0 - (-2.0 * kappa).exp();
        let distance = cosines.iter().enumerate().fold(0.0_f64, |worst, (i, w)| {
            let below = ((kappa * (w - 1.0)).exp() - (-2.0 * kappa).exp()) / scale;
            worst.max((below - i as f64 / n as f64).abs()).max((below - (i + 1) as f64 / n as f64).abs())
        });
        assert!(distance < 2.7 / f64::sqrt(n as f64), "kappa = {kappa}: {distance}");
    }
}

#[test]
fn a_fit_recovers_the_mean_and_the_concentration_in_f32_and_f64() {
    for (p, kappa) in [(2, 3.0), (3, 40.0), (16, 10.0), (256, 25.0), (256, 400.0), (4, 1e6)] {
        let component = VonMisesFisher::new(&direction(p), kappa).unwrap();
        let (n, mut stream) = (2000, stream(90));
        let draws: Vec<f64> = (0..n).flat_map(|_| component.sample(&mut stream)).collect();
        let fitted = VonMisesFisher::fit(p, &draws).unwrap();
        // The estimate's standard error is 1 / sqrt(n A'); fitting the mean too biases it by (p - 1) / (2 n kappa A').
        let slope: f64 = mean_resultant_length_derivative(p, kappa);
        let error = SIGMAS / (f64::from(n) * slope).sqrt();
        let bias = (p - 1) as f64 / (2.0 * f64::from(n) * kappa * slope);
        assert!((fitted.kappa() - kappa - bias).abs() < error, "p = {p}: {} for {kappa}", fitted.kappa());
        // The mean's squared sine is about (p - 1) / (n kappa A) in expectation.
        let sine = 1.0 - dot(fitted.mean_direction(), component.mean_direction()).powi(2);
        let expected = (p - 1) as f64 / (f64::from(n) * kappa * component.mean_resultant_length());
        assert!(sine < 25.0 * expected, "p = {p}, kappa = {kappa}: {sine} {expected}");

        let narrow: Vec<f32> = draws.iter().map(|&x| x as f32).collect();
        let from_f32 = VonMisesFisher::fit(p, &narrow).unwrap().kappa();
        assert!((from_f32 / fitted.kappa() - 1.0).abs() < 1e-4, "p = {p}, kappa = {kappa}: {from_f32}");
    }
}

#[test]
fn the_fit_has_the_greatest_likelihood_nearby() {
    let draws: Vec<f64> = {
        let (component, mut stream) = (VonMisesFisher::new(&direction(5), 8.0).unwrap(), stream(95));
        (0..300).flat_map(|_| component.sample(&mut stream)).collect()
    };
    let fitted = VonMisesFisher::fit(5, &draws).unwrap();
    let likelihood =
        |candidate: &VonMisesFisher| draws.chunks(5).map(|x| candidate.log_density(x).unwrap()).sum::<f64>();
    let best = likelihood(&fitted);
    for factor in [0.98, 1.02] {
        assert!(likelihood(&VonMisesFisher::new(fitted.mean_direction(), factor * fitted.kappa()).unwrap()) < best);
    }
    for axis in 0..5 {
        let mut mean = fitted.mean_direction().to_vec();
        mean[axis] += 0.02;
        assert!(likelihood(&VonMisesFisher::new(&mean, fitted.kappa()).unwrap()) < best);
    }
}
