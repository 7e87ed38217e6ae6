//! What a fit is asked for, checked before it begins.

use crate::Error;

/// How points are shared out among components.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Assignment {
    /// By responsibility: maximum likelihood of the mixture.
    #[default]
    Soft,
    /// Each to its most probable component: classification EM.
    Hard,
}

/// Settings of [`crate::fit_mixture`].
#[derive(Clone, Debug, PartialEq)]
pub struct FitOptions {
    /// Number of components.
    pub components: usize,
    /// How points are shared out.
    pub assignment: Assignment,
    /// Whether all components have one concentration.
    pub shared_kappa: bool,
    /// Fits from means of their own, of which the best is kept.
    pub starts: usize,
    /// What the starts are drawn from.
    pub seed: u64,
    /// M-steps of a fit, at most.
    pub iterations: usize,
    /// A fit ends when an iteration gains no more than this, in nats per point.
    pub tolerance: f64,
    /// No concentration goes beyond this.
    pub largest_kappa: f64,
}

impl FitOptions {
    /// The usual settings for so many components: soft, kappa free, four starts, 200 iterations or a gain of 1e-6.
    ///
    /// The largest concentration is 1e5: an angle of 0.06 to the mean in 384 dimensions, far below what tells two images
    /// apart, and of 0.0045 in three.
    pub fn new(components: usize) -> Self {
        Self {
            components,
            assignment: Assignment::Soft,
            shared_kappa: false,
            starts: 4,
            seed: 0,
            iterations: 200,
            tolerance: 1e-6,
            largest_kappa: 1e5,
        }
    }

    pub(super) fn check(&self, p: usize, points: usize) -> Result<(), Error> {
        if p < 2 {
            return Err(Error::Dimension { p });
        }
        let refuse = |setting, value: String, expected| Err(Error::FitSetting { setting, value, expected });
        if !(1..=points).contains(&self.components) {
            return Err(Error::Components { components: self.components, points });
        }
        if self.starts == 0 {
            return refuse("starts", self.starts.to_string(), "at least 1");
        }
        if !(self.tolerance.is_finite() && self.tolerance >= 0.0) {
            return refuse("tolerance", self.tolerance.to_string(), "a number of at least 0");
        }
        if !(self.largest_kappa.is_finite() && self.largest_kappa > 0.0) {
            return refuse("largest kappa", self.largest_kappa.to_string(), "a number above 0");
        }
        Ok(())
    }
}
