//! Linear classifiers side by side: one for each learning rate, in one weight matrix.

use random::{Key, Purpose, StableHash};
use rayon::prelude::*;
use tensor::ops::{self, Affine};
use tensor::{Device, Tensor};

use crate::error::EvalError;
use crate::neighbors::Place;

/// Standard deviation of initial weights.
const DEVIATION: f64 = 0.01;
/// Classes of a top-5 prediction.
const TOP5: usize = 5;
/// Weights of all classifiers: 4 GiB, and as much again for their velocities.
const MOST_WEIGHTS: usize = 1 << 30;
/// Logits of a block of test images, at most: 16 MiB.
const BLOCK_VALUES: usize = 1 << 22;

/// The classifiers. Weights are [rates * classes, width], those of a rate one after another.
pub(super) struct Heads {
    device: Device,
    host: Device,
    classes: usize,
    rates: usize,
    momentum: f64,
    weight: Tensor,
    bias: Tensor,
    weight_velocity: Tensor,
    bias_velocity: Tensor,
    no_shift: Tensor,
}

/// How many images a classifier is right on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Right {
    /// With its first guess.
    pub(super) top1: usize,
    /// With one of the first five.
    pub(super) top5: usize,
}

impl Heads {
    /// So many classifiers with the same initial weights, so that only their learning rates tell them apart.
    pub(super) fn new(
        place: Place<'_>,
        (width, classes, rates): (usize, usize, usize),
        momentum: f64,
        seed: u64,
    ) -> Result<Self, EvalError> {
        let most = MOST_WEIGHTS / width.saturating_mul(classes).max(1);
        if rates > most {
            let expected = format!("at most {most} for {classes} classes and features of {width} values");
            return Err(EvalError::Setting { setting: "learning rates", value: format!("{rates} of them"), expected });
        }
        let mut name = StableHash::new();
        name.write(b"linear.weight");
        let mut stream = Key::new(seed, Purpose::Init).sample(name.finish()).stream();
        let initial: Vec<f64> = (0..classes * width).map(|_| DEVIATION * stream.normal()).collect();
        Ok(Self::from_weights(place, &initial, (width, classes, rates), momentum))
    }

    /// The same with these initial weights [classes, width].
    pub(super) fn from_weights(
        place: Place<'_>,
        initial: &[f64],
        (width, classes, rates): (usize, usize, usize),
        momentum: f64,
    ) -> Self {
        let (host, device) = place.devices();
        let weight = device.exact_from_f64(&[rates * classes, width], &initial.repeat(rates));
        let bias = device.zeros_exact(&[rates * classes]);
        Self {
            classes,
            rates,
            momentum,
            weight_velocity: weight.zeros_like(),
            bias_velocity: bias.zeros_like(),
            weight,
            bias,
            no_shift: device.zeros_exact(&[classes]),
            device: device.clone(),
            host: host.clone(),
        }
    }

    /// One step of every classifier on a batch; `learning_rates` has one for each. Returns the sum of the cross-entropies of the
    /// batch, by classifier.
    pub(super) fn step(
        &mut self,
        features: &[f32],
        labels: &[u32],
        learning_rates: &[f64],
    ) -> Result<Vec<f64>, EvalError> {
        let (images, outputs) = (labels.len(), self.rates * self.classes);
        let x = self.batch(features, images);
        // A row for each image and classifier.
        let rows = [images * self.rates, self.classes];
        let mut logits = ops::linear(&x, &Affine::new(&self.weight, &self.bias)).reshaped(&rows);
        // The distribution that is all of an image's class, for each image; its classifiers share it.
        let mut one_hot = vec![0.0; images * self.classes];
        labels.iter().enumerate().for_each(|(image, &label)| one_hot[image * self.classes + label as usize] = 1.0);
        let one_hot = self.device.exact_from_f64(&[images, self.classes], &one_hot);
        let targets: Vec<Vec<usize>> = (0..rows[0]).map(|row| vec![row / self.rates]).collect();
        let weights = vec![1.0 / images as f64; rows[0]];
        let losses = ops::cross_entropy(&mut logits, 1.0, &self.no_shift, &one_hot, &targets, &weights);
        let gradient = logits.reshaped(&[images, outputs]);
        // The gradient is added to what momentum left of the velocity.
        ops::linear_backward_weight(&x, &gradient, 0..outputs, &mut self.weight_velocity, &mut self.bias_velocity);
        let rates = self.device.exact_from_f64(&[self.rates], learning_rates);
        ops::momentum_step(&mut self.weight, &mut self.weight_velocity, &rates, self.momentum);
        ops::momentum_step(&mut self.bias, &mut self.bias_velocity, &rates, self.momentum);
        self.device.check()?;
        let mut sums = vec![0.0; self.rates];
        losses.iter().enumerate().for_each(|(row, loss)| sums[row % self.rates] += loss);
        Ok(sums)
    }

    /// How many images every classifier is right on. Of equal logits that of the lower class counts as larger, and a NaN as
    /// larger than all.
    pub(super) fn judge(&self, features: &[f32], labels: &[u32]) -> Result<Vec<Right>, EvalError> {
        let (width, outputs) = (self.weight.columns(), self.rates * self.classes);
        let rows = (BLOCK_VALUES / outputs).clamp(1, 4096);
        let mut right = vec![Right::default(); self.rates];
        for (features, labels) in features.chunks(rows * width).zip(labels.chunks(rows)) {
            let x = self.batch(features, labels.len());
            let logits = ops::linear(&x, &Affine::new(&self.weight, &self.bias));
            let values = logits.as_f32();
            self.device.finish()?;
            let of_image = |(logits, &label): (&[f32], &u32)| -> Vec<Right> {
                logits.chunks_exact(self.classes).map(|logits| judge(logits, label as usize)).collect()
            };
            let judged: Vec<Vec<Right>> =
                self.host.run(|| values.par_chunks(outputs).zip(labels.par_iter()).map(of_image).collect());
            for (sum, one) in judged.iter().flat_map(|image| image.iter().enumerate()) {
                right[sum].top1 += one.top1;
                right[sum].top5 += one.top5;
            }
        }
        Ok(right)
    }

    fn batch(&self, features: &[f32], images: usize) -> Tensor {
        self.device.from_f32(&[images, self.weight.columns()], features)
    }

    /// Weights [rates * classes, width] and biases.
    #[cfg(test)]
    pub(super) fn parameters(&self) -> (Vec<f64>, Vec<f64>) {
        (self.weight.to_f64(), self.bias.to_f64())
    }
}

/// Whether one classifier is right on one image.
fn judge(logits: &[f32], label: usize) -> Right {
    let own = logits[label];
    let is_before = |(class, &logit): (usize, &f32)| {
        class != label && (logit > own || logit.is_nan() || logit == own && class < label)
    };
    let before = logits.iter().enumerate().filter(|&other| is_before(other)).count();
    let among = |most: usize| usize::from(!own.is_nan() && before < most);
    Right { top1: among(1), top5: among(TOP5) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_lower_class_and_a_nan_is_never_right() {
        let right = |logits: &[f32], label| {
            let Right { top1, top5 } = judge(logits, label);
            (top1, top5)
        };
        assert_eq!([0, 1, 2].map(|label| right(&[1.0, 1.0, 0.0], label)), [(1, 1), (0, 1), (0, 1)]);
        assert_eq!(right(&[0.0; 7], 4), (0, 1));
        assert_eq!(right(&[0.0; 7], 5), (0, 0));
        assert_eq!(right(&[f32::NAN, 1.0], 0), (0, 0));
        assert_eq!(right(&[f32::NAN, 1.0], 1), (0, 1));
        assert_eq!(right(&[f32::NAN; 9], 3), (0, 0));
    }
}
