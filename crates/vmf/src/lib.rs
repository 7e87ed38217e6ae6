//! The von Mises-Fisher distribution on the unit sphere of R^p, as pure maths.
//!
//! Its density at a unit vector `y` is `C_p(kappa) exp(kappa <mu, y>)`, with
//! `C_p(kappa) = kappa^nu / ((2 pi)^(p/2) I_nu(kappa))` and `nu = p/2 - 1`. DINO's prototypes are such components, with
//! `kappa = |w| / tau` and `mu = w / |w|`; the paper adds the missing `log C_p(kappa)` to their logits.
//!
//! | what | where |
//! | --- | --- |
//! | the paper's one-term `log C_p`, Eq. (5), and its own derivative: what training uses | [`LogNormalizer`] |
//! | `log C_p` and `A_p = I_{p/2} / I_{p/2-1}` to machine precision: what everything else uses | [`log_normalizer`], [`mean_resultant_length`] |
//! | density, sampling, maximum likelihood | [`VonMisesFisher`], [`estimate_kappa`] |
//! | responsibilities of a mixture, Eq. (2) | [`Mixture`] |
//! | a mixture fitted to points by EM | [`fit_mixture`] |
//!
//! The approximation beside the exact value, and a component recovered from its own draws:
//!
//! ```
//! use random::{Key, Purpose};
//! use vmf::{LogNormalizer, VonMisesFisher, log_normalizer};
//!
//! // The bottleneck of DINO's head: the paper's approximation is right to a thousandth where only differences count.
//! let paper = LogNormalizer::<f64>::new(256)?;
//! let exact = log_normalizer(256, 25.0) - log_normalizer(256, 0.0);
//! assert!((paper.relative(25.0) - exact).abs() < 1e-3);
//! // In few dimensions it is too coarse, and refused.
//! assert!(LogNormalizer::<f64>::new(8).is_err());
//!
//! let component = VonMisesFisher::new(&[2.0, 0.0, 0.0, 0.0], 50.0)?;
//! let mut stream = Key::new(1, Purpose::Bench).stream();
//! let draws: Vec<f64> = (0..2000).flat_map(|_| component.sample(&mut stream)).collect();
//! let fitted = VonMisesFisher::fit(4, &draws)?;
//! assert!((fitted.kappa() / component.kappa() - 1.0).abs() < 0.1);
//! # Ok::<(), vmf::Error>(())
//! ```

mod approx;
mod debye;
mod distribution;
mod double_double;
mod em;
mod error;
mod exact;
mod fit;
mod mixture;
mod real;
mod sampling;

pub use approx::LogNormalizer;
pub use distribution::VonMisesFisher;
pub use em::{
    Assigned, Assignment, FitOptions, FitProgress, MixtureFit, PointMatrix, Points, Sums, VmfMixture, fit_mixture,
    refine_mixture,
};
pub use error::Error;
pub use exact::{log_normalizer, mean_resultant_length, mean_resultant_length_derivative};
pub use fit::estimate_kappa;
pub use mixture::Mixture;
pub use real::Real;
