//! Settings of a probe, checked before anything is computed.

use std::f64::consts::PI;

use crate::error::EvalError;

/// Settings of a linear probe. The defaults are DINO's: 100 epochs, batches of 1,024 (128 on each of eight GPUs), momentum
/// 0.9; but for the learning rate, which is tuned for every network, one of thirteen.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearOptions {
    /// Learning rates for a batch of 256; each is multiplied by the batch size over 256.
    pub rates: Vec<f64>,
    /// Passes over the training images.
    pub epochs: usize,
    /// Images of a step.
    pub batch_size: usize,
    /// Of SGD.
    pub momentum: f64,
    /// What initial weights, orders and views are drawn from.
    pub seed: u64,
}

/// Values in 1, 2, 5 steps over four decades: wide enough for features of any length.
const USUAL_RATES: [f64; 13] = [1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0];
/// Classifiers at once: more than anyone compares, and memory is taken for each.
const MOST_RATES: usize = 1024;

impl Default for LinearOptions {
    fn default() -> Self {
        Self { rates: USUAL_RATES.to_vec(), epochs: 100, batch_size: 1024, momentum: 0.9, seed: 0 }
    }
}

impl LinearOptions {
    /// The 45 learning rates of iBOT's sweep: n 10^k for n = 1..9 and k = -4..0.
    pub fn ibot_rates() -> Vec<f64> {
        let decades = [1e-4, 1e-3, 1e-2, 1e-1, 1.0];
        decades.iter().flat_map(|decade| (1..=9).map(move |n| f64::from(n) * decade)).collect()
    }

    /// Validates the settings.
    pub fn check(&self) -> Result<(), EvalError> {
        let refuse = |setting, value: String, expected: &str| {
            Err(EvalError::Setting { setting, value, expected: expected.to_owned() })
        };
        if self.rates.is_empty() || self.rates.len() > MOST_RATES {
            return refuse("learning rates", self.rates.len().to_string(), "1 to 1024 of them");
        }
        if let Some(rate) = self.rates.iter().find(|rate| !(rate.is_finite() && **rate > 0.0)) {
            return refuse("learning rate", rate.to_string(), "a number above zero");
        }
        if !(0.0..1.0).contains(&self.momentum) {
            return refuse("momentum", self.momentum.to_string(), "a number from 0 to below 1");
        }
        for (setting, value, most) in [("epochs", self.epochs, 100_000), ("batch_size", self.batch_size, 65_536)] {
            if !(1..=most).contains(&value) {
                return refuse(setting, value.to_string(), &format!("1 to {most}"));
            }
        }
        Ok(())
    }

    /// Learning rates of an epoch, from 0, one for each classifier.
    pub(super) fn rates_in(&self, epoch: usize) -> Vec<f64> {
        let factor = epoch_rate(epoch, self.epochs) * self.batch_size as f64 / 256.0;
        self.rates.iter().map(|rate| rate * factor).collect()
    }
}

/// The share of the learning rate in an epoch, from 0: `(1 + cos(pi epoch / epochs)) / 2`, as of PyTorch's
/// `CosineAnnealingLR` to zero, stepped after each epoch.
pub(super) fn epoch_rate(epoch: usize, epochs: usize) -> f64 {
    0.5 * (1.0 + (PI * epoch as f64 / epochs as f64).cos())
}
