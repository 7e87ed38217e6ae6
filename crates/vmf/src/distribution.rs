//! One von Mises-Fisher component: its parameters, checked, and its density.

use random::Stream;

use crate::{Error, Real, exact, fit, sampling};

/// How far from 1 the length of a point may be: room for features that were normalised in half precision.
const UNIT_TOLERANCE: f64 = 1e-2;

/// The distribution with density `C_p(kappa) exp(kappa <mu, y>)` on the unit sphere of R^p.
#[derive(Clone, Debug, PartialEq)]
pub struct VonMisesFisher {
    mean: Vec<f64>,
    kappa: f64,
    log_normalizer: f64,
}

impl VonMisesFisher {
    /// The component around `direction`, which is divided by its length, with concentration `kappa` (0 is uniform).
    pub fn new<T: Real>(direction: &[T], kappa: f64) -> Result<Self, Error> {
        let p = direction.len();
        if p < 2 {
            return Err(Error::Dimension { p });
        }
        if !(kappa.is_finite() && kappa >= 0.0) {
            return Err(Error::Concentration { kappa });
        }
        let mut mean = vec![0.0; p];
        unit(direction, 0, &mut mean)?;
        Ok(Self { mean, kappa, log_normalizer: exact::log_normalizer(p, kappa) })
    }

    /// The component that a DINO prototype `w` stands for at temperature `tau`: `mu = w / |w|`, `kappa = |w| / tau`.
    pub fn from_prototype<T: Real>(prototype: &[T], temperature: f64) -> Result<Self, Error> {
        Self::new(prototype, length(prototype) / temperature)
    }

    /// The maximum-likelihood component of `samples`: rows of `p` numbers one after another, each divided by its
    /// length.
    pub fn fit<T: Real>(p: usize, samples: &[T]) -> Result<Self, Error> {
        let (mean, resultant_length) = fit::mean_direction(p, samples)?;
        Self::new(&mean, fit::estimate_kappa(p, resultant_length)?)
    }

    /// `p`, the dimension of the space around the sphere.
    pub fn dimension(&self) -> usize {
        self.mean.len()
    }

    /// `mu`, a unit vector.
    pub fn mean_direction(&self) -> &[f64] {
        &self.mean
    }

    /// The concentration `kappa`.
    pub fn kappa(&self) -> f64 {
        self.kappa
    }

    /// `A_p(kappa)`: the expected cosine between a draw and the mean direction.
    pub fn mean_resultant_length(&self) -> f64 {
        exact::mean_resultant_length(self.dimension(), self.kappa)
    }

    /// `log C_p(kappa) + kappa <mu, point>`, exact, with respect to the area of the sphere.
    ///
    /// `point` must have the distribution's dimension and lie on the sphere up to the rounding of half precision; what
    /// is left of that rounding is not corrected.
    pub fn log_density<T: Real>(&self, point: &[T]) -> Result<f64, Error> {
        if point.len() != self.dimension() {
            return Err(Error::Length { expected: self.dimension(), found: point.len() });
        }
        let length = length(point);
        if length.is_nan() || (length - 1.0).abs() > UNIT_TOLERANCE {
            return Err(Error::NotUnit { length });
        }
        let cosine: f64 = self.mean.iter().zip(point).map(|(m, x)| m * x.to_f64()).sum();
        Ok(self.log_normalizer + self.kappa * cosine)
    }

    /// A draw, as a unit vector; the numbers it takes from `stream` vary, for the method rejects some.
    pub fn sample(&self, stream: &mut Stream) -> Vec<f64> {
        sampling::sample(&self.mean, self.kappa, stream)
    }
}

fn length<T: Real>(vector: &[T]) -> f64 {
    vector.iter().map(|x| x.to_f64() * x.to_f64()).sum::<f64>().sqrt()
}

/// Writes `vector / |vector|`; `row` names it in the error.
pub(crate) fn unit<T: Real>(vector: &[T], row: usize, out: &mut [f64]) -> Result<(), Error> {
    let length = length(vector);
    if !(length.is_finite() && length > 0.0) {
        return Err(Error::NoDirection { row, length });
    }
    for (o, x) in out.iter_mut().zip(vector) {
        *o = x.to_f64() / length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_density_integrates_to_one_over_the_circle() {
        for kappa in [0.0, 0.5, 30.0, 2000.0] {
            let circle = VonMisesFisher::new(&[1.0, 2.0], kappa).unwrap();
            // The trapezoid rule on a period converges faster than any power.
            let n = 4000;
            let step = std::f64::consts::TAU / f64::from(n);
            let point = |i: i32| [(step * f64::from(i)).cos(), (step * f64::from(i)).sin()];
            let total: f64 = (0..n).map(|i| circle.log_density(&point(i)).unwrap().exp() * step).sum();
            assert!((total - 1.0).abs() < 1e-11, "kappa = {kappa}: {total}");
        }
    }

    #[test]
    fn a_prototype_gains_from_a_larger_norm_only_within_the_threshold_angle() {
        let threshold: f64 = exact::mean_resultant_length(16, 10.0);
        for (cosine, gains) in [(threshold + 0.02, true), (threshold - 0.02, false)] {
            let mut point = [0.0; 16];
            (point[0], point[1]) = (cosine, (1.0 - cosine * cosine).sqrt());
            let log_density = |norm: f64| {
                let mut w = [0.0; 16];
                w[0] = norm;
                VonMisesFisher::from_prototype(&w, 0.1).unwrap().log_density(&point).unwrap()
            };
            assert_eq!(log_density(1.001) > log_density(1.0), gains, "cosine {cosine}");
        }
    }

    #[test]
    fn bad_parameters_and_points_are_errors() {
        assert_eq!(VonMisesFisher::new(&[1.0_f32], 1.0), Err(Error::Dimension { p: 1 }));
        assert_eq!(VonMisesFisher::new(&[1.0, 0.0], -1.0), Err(Error::Concentration { kappa: -1.0 }));
        assert!(matches!(VonMisesFisher::new(&[1.0, 0.0], f64::NAN), Err(Error::Concentration { .. })));
        assert_eq!(VonMisesFisher::new(&[0.0_f32, 0.0], 1.0), Err(Error::NoDirection { row: 0, length: 0.0 }));
        assert!(matches!(VonMisesFisher::new(&[f32::NAN, 0.0], 1.0), Err(Error::NoDirection { .. })));
        assert!(matches!(VonMisesFisher::from_prototype(&[1.0, 1.0], 0.0), Err(Error::Concentration { .. })));
        let circle = VonMisesFisher::new(&[3.0_f32, 4.0], 1.0).unwrap();
        assert_eq!(circle.log_density(&[1.0; 3]), Err(Error::Length { expected: 2, found: 3 }));
        assert_eq!(circle.log_density(&[3.0_f32, 4.0]), Err(Error::NotUnit { length: 5.0 }));
        assert!(matches!(circle.log_density(&[f64::NAN, 0.0]), Err(Error::NotUnit { .. })));
    }
}
