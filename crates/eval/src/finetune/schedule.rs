//! The learning rates of the two recipes.

use train::Position;
use train::curve::{Curve, cosine};

use super::recipe::{FineTuneRecipe, Kind};

/// The learning rate of every step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// BEiT's: one value a step, from zero up and down along half a cosine.
    PerStep(Curve),
    /// DeiT's: one value an epoch. The scheduler of timm is asked at the end of an epoch for the value of the epoch that has
    /// ended, so that epoch e trains at the value of epoch e - 1, and the first two at the same.
    PerEpoch {
        /// The highest value.
        lr: f64,
        /// The last value.
        min_lr: f64,
        /// The first value.
        warmup_lr: f64,
        /// Epochs of the linear warm-up, in which the cosine, hidden, has begun.
        warmup: u64,
        /// Epochs in all.
        epochs: u64,
    },
}

impl Schedule {
    /// The schedule of a recipe with so many steps an epoch.
    pub fn new(recipe: &FineTuneRecipe, steps_per_epoch: u64) -> Self {
        let FineTuneRecipe { lr, min_lr, warmup_lr, warmup_epochs: warmup, epochs, .. } = *recipe;
        match recipe.kind {
            Kind::Beit => Self::PerStep(cosine(lr, min_lr, epochs * steps_per_epoch, warmup * steps_per_epoch)),
            Kind::Deit => Self::PerEpoch { lr, min_lr, warmup_lr, warmup, epochs },
        }
    }

    /// The learning rate of a step.
    pub fn lr(&self, at: Position) -> f64 {
        match *self {
            Self::PerStep(curve) => curve.at(at.step),
            Self::PerEpoch { lr, min_lr, warmup_lr, warmup, epochs } => {
                let t = at.epoch.saturating_sub(1);
                if t < warmup {
                    return warmup_lr + t as f64 * (lr - warmup_lr) / warmup as f64;
                }
                let turn = std::f64::consts::PI * t as f64 / epochs as f64;
                min_lr + 0.5 * (lr - min_lr) * (1.0 + turn.cos())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deit_trains_two_epochs_at_the_first_value_and_lags_by_one() {
        // timm 1.0.31: CosineLRScheduler(t_initial=20, lr_min=1e-5, warmup_lr_init=1e-6, warmup_t=5), base 1.125e-5, with
        // step(epoch) at the end of each epoch: the values that epochs 0 to 19 trained at.
        let expected = [
            1e-06,
            1e-06,
            3.0499999999999996e-06,
            5.0999999999999995e-06,
            7.149999999999999e-06,
            9.2e-06,
            1.1066941738241594e-05,
            1.0992365782682796e-05,
            1.0908744062337217e-05,
            1.0818135621484343e-05,
            1.0722771540650145e-05,
            1.0625e-05,
            1.0527228459349857e-05,
            1.0431864378515659e-05,
            1.0341255937662785e-05,
            1.0257634217317205e-05,
            1.0183058261758408e-05,
            1.011936437851566e-05,
            1.0068120922382272e-05,
            1.003058967731553e-05,
        ];
        let schedule = Schedule::PerEpoch { lr: 1.125e-5, min_lr: 1e-5, warmup_lr: 1e-6, warmup: 5, epochs: 20 };
        for (epoch, expected) in expected.into_iter().enumerate() {
            let found = schedule.lr(Position { step: 0, epoch: epoch as u64 });
            assert!((found / expected - 1.0f64).abs() < 1e-12, "{epoch}: {found} {expected}");
        }
    }
}
