//! The lengths g_k of prototypes: how they begin, how they learn, and what they are drawn to.
//!
//! kappa_k = |g_k| / tau_s is the concentration of a von Mises-Fisher component. In the paper g begins at one and learns as any
//! other parameter. Each of these says otherwise:
//!
//! ```text
//! start      g_k = kappa_0 tau_s in place of 1
//! lr_factor  the learning rate of g times a factor
//! in_log     l_k = ln |g_k| is what the optimiser moves: dL/dl = g dL/dg, and weight decay draws l to 0, g to 1
//! prior      a log-normal prior around kappa_1:  L = weight / 2K sum_k ln(kappa_k / kappa_1)^2
//! ```
//!
//! Whatever is chosen, a checkpoint holds g.

use model::{Init, Layout, PrototypeLayer};
use tensor::{ParamSet, ops};
use train::optimizer::Treatment;

use crate::recipe::Recipe;

/// How lengths begin and learn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LengthOptions {
    /// g at the start.
    pub start: f64,
    /// What their learning rate is multiplied by.
    pub lr_factor: f64,
    /// Whether their logarithms are trained.
    pub in_log: bool,
    /// What kappa is drawn to; none where nothing does.
    pub prior: Option<KappaPrior>,
}

impl Default for LengthOptions {
    /// As in the paper.
    fn default() -> Self {
        Self { start: 1.0, lr_factor: 1.0, in_log: false, prior: None }
    }
}

impl LengthOptions {
    /// Those of a recipe.
    pub fn of(recipe: &Recipe) -> Self {
        let temperature = recipe.student_temp();
        let prior =
            recipe.kappa_prior().map(|mode| KappaPrior { mode, weight: recipe.kappa_prior_weight(), temperature });
        Self {
            start: recipe.initial_kappa().map_or(1.0, |kappa| kappa * temperature),
            lr_factor: recipe.prototype_scale_lr(),
            in_log: recipe.prototype_scale_log(),
            prior,
        }
    }

    /// Says how the lengths of these prototypes begin.
    pub fn begin(&self, layout: &mut Layout, prototypes: &PrototypeLayer) {
        layout.begin_at(prototypes.magnitude(), Init::Constant(self.start));
    }

    /// How the optimiser treats them, where it would otherwise do so.
    pub fn treatment(&self, usual: Treatment) -> Treatment {
        Treatment { lr_factor: usual.lr_factor * self.lr_factor, in_log: self.in_log, ..usual }
    }
}

/// A log-normal prior on the concentrations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KappaPrior {
    /// kappa_1, the concentration at which it is largest.
    pub mode: f64,
    /// What its part of the loss is multiplied by.
    pub weight: f64,
    /// tau_s, by which lengths become concentrations.
    pub temperature: f64,
}

impl KappaPrior {
    /// 1 / 2K sum_k ln(kappa_k / kappa_1)^2 of these lengths, and its gradient. A length of zero is not moved: it has no
    /// logarithm.
    fn value_and_gradient(&self, lengths: &[f64]) -> (f64, Vec<f64>) {
        let count = lengths.len() as f64;
        let far = |g: &f64| if *g == 0.0 { 0.0 } else { (g.abs() / self.temperature / self.mode).ln() };
        let value = lengths.iter().map(|g| far(g).powi(2)).sum::<f64>() / (2.0 * count);
        (value, lengths.iter().map(|g| if *g == 0.0 { 0.0 } else { far(g) / (g * count) }).collect())
    }

    /// Adds the `share` of a part of a step to the gradient of the lengths; the whole of its part of the loss.
    pub(crate) fn add_gradient(
        &self,
        of: &PrototypeLayer,
        student: &ParamSet,
        share: f64,
        gradient: &mut ParamSet,
    ) -> f64 {
        let lengths = &student[of.magnitude()];
        let (value, slope) = self.value_and_gradient(&lengths.to_f64());
        let slope = lengths.device().exact_from_f64(lengths.shape(), &slope);
        let held = &mut gradient[of.magnitude()];
        *held = ops::add_scaled(held, self.weight * share, &slope);
        self.weight * value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIOR: KappaPrior = KappaPrior { mode: 30.0, weight: 2.0, temperature: 0.1 };

    #[test]
    fn its_gradient_is_that_of_its_value() {
        const H: f64 = 1e-6;
        let start = [1.0, -0.3, 7.0, 3.0];
        let (_, found) = PRIOR.value_and_gradient(&start);
        for j in 0..start.len() {
            let at = |step: f64| {
                let mut moved = start;
                moved[j] += step;
                PRIOR.value_and_gradient(&moved).0
            };
            let difference = (at(H) - at(-H)) / (2.0 * H);
            assert!((difference - found[j]).abs() < 1e-8, "{j}: {} is not {difference}", found[j]);
        }
        assert!(found[3].abs() < 1e-15, "the mode of kappa is a length of 3");
        assert!(found[0] < 0.0 && found[1] > 0.0 && found[2] > 0.0, "all are drawn to it, whatever their sign");
    }

    #[test]
    fn a_length_of_zero_is_left_alone() {
        let (value, gradient) = PRIOR.value_and_gradient(&[0.0, 3.0]);
        assert!(value < 1e-15 && gradient[0] == 0.0, "{value} {gradient:?}");
    }
}
