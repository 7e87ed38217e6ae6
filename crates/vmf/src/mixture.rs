//! Which component of a von Mises-Fisher mixture a point belongs to, Eq. (2), in the log domain.

use crate::{Error, Real};

/// The concentrations and weights of a mixture; its mean directions enter through the cosines to a point.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixture<T> {
    kappas: Vec<T>,
    /// `log pi_k + log C_p(kappa_k)`.
    offsets: Vec<T>,
}

impl<T: Real> Mixture<T> {
    /// `log_normalizers` holds `log C_p(kappa_k)`, exact ([`crate::log_normalizer`]) or the paper's
    /// ([`crate::LogNormalizer::relative`]): a constant common to all components makes no difference to
    /// responsibilities.
    pub fn new(kappas: Vec<T>, log_normalizers: &[T], log_weights: &[T]) -> Result<Self, Error> {
        let components = kappas.len();
        for (what, found) in [("log normalisers", log_normalizers.len()), ("log weights", log_weights.len())] {
            if found != components {
                return Err(Error::MixtureLength { components, what, found });
            }
        }
        let offsets: Vec<T> = log_normalizers.iter().zip(log_weights).map(|(&c, &w)| c + w).collect();
        if !offsets.iter().any(|o| o.to_f64().is_finite()) {
            return Err(Error::EmptyMixture);
        }
        Ok(Self { kappas, offsets })
    }

    /// Writes `log r_k`, with `r_k ~ pi_k C_p(kappa_k) exp(kappa_k cosine_k)`, for the point with these cosines to the
    /// mean directions. Returns the log density of the mixture there, up to the constant left out of the log
    /// normalisers.
    pub fn log_responsibilities(&self, cosines: &[T], out: &mut [T]) -> Result<T, Error> {
        let components = self.kappas.len();
        for (what, found) in [("cosines", cosines.len()), ("places for the result", out.len())] {
            if found != components {
                return Err(Error::MixtureLength { components, what, found });
            }
        }
        for ((exponent, &kappa), &cosine) in out.iter_mut().zip(&self.kappas).zip(cosines) {
            *exponent = kappa * cosine;
        }
        self.posterior(out)
    }

    /// The same of exponents `kappa_k <mu_k, y>` that are there already, as the logits `<w_k, y> / tau` of prototypes are,
    /// in place.
    pub fn posterior(&self, exponents: &mut [T]) -> Result<T, Error> {
        let (components, found) = (self.kappas.len(), exponents.len());
        if found != components {
            return Err(Error::MixtureLength { components, what: "exponents", found });
        }
        let mut largest = T::from_f64(f64::NEG_INFINITY);
        for (logit, &offset) in exponents.iter_mut().zip(&self.offsets) {
            *logit = *logit + offset;
            largest = if *logit > largest { *logit } else { largest };
        }
        // Relative to the largest, so that no exponential overflows and their sum is at least 1.
        let sum = exponents.iter().fold(T::from_f64(0.0), |sum, &logit| sum + (logit - largest).exp());
        let log_density = largest + sum.ln();
        for logit in exponents {
            *logit = *logit - log_density;
        }
        Ok(log_density)
    }

    /// The concentrations `kappa_k`.
    pub fn kappas(&self) -> &[T] {
        &self.kappas
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogNormalizer, VonMisesFisher, log_normalizer};

    #[test]
    fn responsibilities_are_bayes_rule_on_the_densities() {
        let kappas = [3.0, 40.0, 0.0];
        let means = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let weights: [f64; 3] = [0.2, 0.5, 0.3];
        let point = [0.48, 0.6, 0.64];
        let joint: Vec<f64> = (0..3)
            .map(|k| weights[k] * VonMisesFisher::new(&means[k], kappas[k]).unwrap().log_density(&point).unwrap().exp())
            .collect();
        let total: f64 = joint.iter().sum();
        let normalizers = kappas.map(|kappa| log_normalizer(3, kappa));
        let mixture = Mixture::new(kappas.to_vec(), &normalizers, &weights.map(f64::ln)).unwrap();
        let mut log_r = [0.0; 3];
        let log_density = mixture.log_responsibilities(&point, &mut log_r).unwrap();
        assert!((log_density - total.ln()).abs() < 1e-14);
        for k in 0..3 {
            assert!((log_r[k].exp() - joint[k] / total).abs() < 1e-15, "component {k}");
        }
    }

    #[test]
    fn a_constant_shift_of_the_normalisers_changes_no_responsibility() {
        let c = LogNormalizer::<f32>::new(256).unwrap();
        let kappas = [10.0, 25.0, 400.0, 1000.0];
        let cosines = [0.1, 0.2, 0.7, 0.6];
        let mut results = [[0.0; 4]; 2];
        for (shift, result) in [0.0, 344.0].into_iter().zip(&mut results) {
            let normalizers = kappas.map(|kappa| c.relative(kappa) + shift);
            let mixture = Mixture::new(kappas.to_vec(), &normalizers, &[0.0; 4]).unwrap();
            mixture.log_responsibilities(&cosines, result).unwrap();
        }
        assert!(results[0].iter().zip(&results[1]).all(|(a, b)| (a - b).abs() < 2e-4), "{results:?}");
    }

    #[test]
    fn responsibilities_stay_finite_where_probabilities_underflow() {
        let mixture = Mixture::new(vec![1000.0_f32, 1000.0], &[0.0, 0.0], &[0.0, 0.0]).unwrap();
        let mut log_r = [0.0; 2];
        mixture.log_responsibilities(&[1.0, -1.0], &mut log_r).unwrap();
        assert_eq!(log_r, [0.0, -2000.0]);
    }

    #[test]
    fn a_component_of_weight_zero_is_never_responsible_and_an_empty_mixture_is_an_error() {
        let never = f64::NEG_INFINITY;
        let mixture = Mixture::new(vec![1.0, 1.0], &[0.0, 0.0], &[0.0, never]).unwrap();
        let mut log_r = [0.0; 2];
        mixture.log_responsibilities(&[-1.0, 1.0], &mut log_r).unwrap();
        assert_eq!(log_r, [0.0, never]);
        assert_eq!(Mixture::new(vec![1.0], &[0.0], &[never]), Err(Error::EmptyMixture));
        assert_eq!(Mixture::<f64>::new(vec![], &[], &[]), Err(Error::EmptyMixture));
        assert!(matches!(Mixture::new(vec![1.0], &[0.0, 1.0], &[0.0]), Err(Error::MixtureLength { found: 2, .. })));
        assert!(matches!(mixture.log_responsibilities(&[0.0], &mut log_r), Err(Error::MixtureLength { found: 1, .. })));
    }
}
