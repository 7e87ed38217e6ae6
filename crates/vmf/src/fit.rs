//! Maximum likelihood: the mean direction of samples, and the concentration whose `A_p` is their mean resultant length.

use crate::distribution::unit;
use crate::{Error, Real, exact};

/// Quadratic convergence from within 1/p of the root needs about six steps.
const MOST_STEPS: usize = 60;

/// The `kappa` with `A_p(kappa) = mean_resultant_length`, by Newton's method on the exact ratio.
///
/// Accurate to the last digits that the argument determines: near 1 a change in its last place moves
/// `kappa ~ (p - 1) / (2 (1 - length))` by as much as it moves `1 - length`. An error for a length outside `[0, 1)`.
///
/// ```
/// let length: f64 = vmf::mean_resultant_length(256, 25.0);
/// assert!((vmf::estimate_kappa(256, length)? - 25.0).abs() < 1e-12);
/// # Ok::<(), vmf::Error>(())
/// ```
pub fn estimate_kappa(p: usize, mean_resultant_length: f64) -> Result<f64, Error> {
    let length = mean_resultant_length;
    if p < 2 {
        return Err(Error::Dimension { p });
    }
    if !(0.0..1.0).contains(&length) {
        return Err(Error::ResultantLength { length });
    }
    // Amos's upper bound on A_p, inverted, is a lower bound on kappa. A_p is concave, so Newton's steps climb from
    // there to the root and never pass it; the first step that does not climb is rounding.
    let mut kappa = (p - 1) as f64 * length / ((1.0 - length) * (1.0 + length));
    for _ in 0..MOST_STEPS {
        let missing = length - exact::mean_resultant_length(p, kappa);
        let next = kappa + missing / exact::mean_resultant_length_derivative(p, kappa);
        if next <= kappa {
            break;
        }
        kappa = next;
    }
    Ok(kappa)
}

/// The unnormalised mean of the rows of `samples`, each divided by its length first, and its length, below 1.
pub(crate) fn mean_direction<T: Real>(p: usize, samples: &[T]) -> Result<(Vec<f64>, f64), Error> {
    if p < 2 {
        return Err(Error::Dimension { p });
    }
    if samples.is_empty() || !samples.len().is_multiple_of(p) {
        return Err(Error::Samples { numbers: samples.len(), p });
    }
    let count = samples.len() / p;
    let (mut mean, mut direction) = (vec![0.0; p], vec![0.0; p]);
    for (row, sample) in samples.chunks_exact(p).enumerate() {
        unit(sample, row, &mut direction)?;
        for (m, d) in mean.iter_mut().zip(&direction) {
            *m += d / count as f64;
        }
    }
    let length = mean.iter().map(|m| m * m).sum::<f64>().sqrt();
    if length == 0.0 {
        return Err(Error::NoMeanDirection { samples: count });
    }
    // Within the rounding of the sum, equal directions and infinite concentration look alike.
    if length >= 1.0 - 1e-15 * (count as f64).sqrt() {
        return Err(Error::OneDirection { samples: count });
    }
    Ok((mean, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VonMisesFisher;

    #[test]
    fn the_concentration_is_recovered_from_its_mean_resultant_length() {
        for p in [2, 3, 5, 16, 256, 4096, 100_000] {
            for kappa in [1e-8, 0.01, 1.0, 10.0, 39.0, 200.0, 1e4, 1e6] {
                let length: f64 = exact::mean_resultant_length(p, kappa);
                let found = estimate_kappa(p, length).unwrap();
                // What rounding in the length leaves undetermined: dkappa = dA / A'.
                let slope: f64 = exact::mean_resultant_length_derivative(p, kappa);
                let tolerance = 4.0 * f64::EPSILON * (kappa + length / slope);
                assert!((found - kappa).abs() <= tolerance, "p = {p}, kappa = {kappa}: {found}");
            }
        }
    }

    #[test]
    fn the_ends_of_the_range_are_handled() {
        assert_eq!(estimate_kappa(5, 0.0), Ok(0.0));
        assert!(estimate_kappa(5, 1.0 - 1e-15).unwrap() > 1e15);
        assert!(estimate_kappa(2, f64::MIN_POSITIVE).unwrap() > 0.0);
        for length in [1.0, 1.5, -0.1, f64::NAN, f64::INFINITY] {
            assert!(matches!(estimate_kappa(5, length), Err(Error::ResultantLength { .. })), "{length}");
        }
        assert_eq!(estimate_kappa(1, 0.5), Err(Error::Dimension { p: 1 }));
    }

    #[test]
    fn samples_without_a_maximum_of_the_likelihood_are_errors() {
        assert_eq!(VonMisesFisher::fit::<f32>(3, &[]), Err(Error::Samples { numbers: 0, p: 3 }));
        assert_eq!(VonMisesFisher::fit(3, &[1.0_f32; 4]), Err(Error::Samples { numbers: 4, p: 3 }));
        assert_eq!(VonMisesFisher::fit(2, &[1.0, 0.0, -1.0, 0.0]), Err(Error::NoMeanDirection { samples: 2 }));
        assert_eq!(VonMisesFisher::fit(2, &[0.3_f32; 20]), Err(Error::OneDirection { samples: 10 }));
        assert_eq!(VonMisesFisher::fit(2, &[1.0, 0.0, 0.0, 0.0]), Err(Error::NoDirection { row: 1, length: 0.0 }));
    }

    #[test]
    fn the_fit_ignores_the_lengths_of_the_samples() {
        let short = VonMisesFisher::fit(2, &[1.0, 0.0, 0.6, 0.8]).unwrap();
        let long = VonMisesFisher::fit(2, &[5.0, 0.0, 0.06, 0.08]).unwrap();
        assert!((short.kappa() - long.kappa()).abs() < 1e-12);
        assert!((short.mean_resultant_length() - 0.8_f64.sqrt()).abs() < 1e-15);
    }
}
