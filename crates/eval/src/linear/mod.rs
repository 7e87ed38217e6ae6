//! Linear probes: a linear classifier on frozen features, trained by SGD, as DINO and iBOT judge a backbone.
//!
//! Cross-entropy, SGD with momentum 0.9 and no weight decay, the learning rate falling along a cosine from epoch to epoch,
//! weights drawn from N(0, 0.01^2), biases zero. Every learning rate has a classifier of its own; all of them are trained side by
//! side from the same beginning, on the same batches, so that a pass over the data serves all: their logits are one
//! product [batch, width] x [width, rates * classes].
//!
//! Features come from a file, the same in every epoch ([`probe`]), or from images of which the network sees another random
//! view in every epoch ([`probe_images`]), as in the published protocols. What a feature is (the class token, those of the last
//! four blocks, the class token with the mean of the patches) is the caller's choice.

mod heads;
mod images;
mod options;
mod stored;

use std::ops::ControlFlow;

use crate::error::EvalError;

pub use images::{ProbeImages, probe_images};
pub use options::LinearOptions;
pub use stored::probe;

use heads::{Heads, Right};

/// The classifiers after an epoch, one number for each learning rate.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearEpoch {
    /// From 1.
    pub epoch: usize,
    /// Mean cross-entropy of the training images as they were met; NaN where it diverged.
    pub losses: Vec<f64>,
    /// Per cent of the test images whose class has the largest logit.
    pub top1: Vec<f64>,
    /// Per cent whose class is among the five largest.
    pub top5: Vec<f64>,
}

/// The best of a learning rate over all epochs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateResult {
    /// The learning rate for a batch of 256, as it was given.
    pub rate: f64,
    /// The first epoch of the best top-1, from 1.
    pub epoch: usize,
    /// Top-1 there, in per cent.
    pub top1: f64,
    /// Top-5 there.
    pub top5: f64,
    /// Top-1 after the last epoch.
    pub last_top1: f64,
}

/// What came out of a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearResult {
    /// All epochs.
    pub epochs: Vec<LinearEpoch>,
    /// The best of each learning rate, in the order given.
    pub rates: Vec<RateResult>,
    /// The best of all: what is reported. Of equals the earlier epoch, then the earlier rate.
    pub best: RateResult,
}

/// How far a probe is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearProgress<'a> {
    /// The epoch that is being trained, from 1.
    pub epoch: usize,
    /// Epochs there are.
    pub epochs: usize,
    /// Training images of this epoch so far.
    pub images: usize,
    /// Training images there are.
    pub total: usize,
    /// The epoch before this one.
    pub last: Option<&'a LinearEpoch>,
}

/// Whoever watches a probe, and may end it.
pub type Watch<'a> = &'a mut dyn FnMut(LinearProgress<'_>) -> ControlFlow<()>;

/// Calls the watcher.
fn tell(watch: Watch<'_>, progress: LinearProgress<'_>) -> Result<(), EvalError> {
    match watch(progress) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(EvalError::Stopped),
    }
}

/// An epoch from the sums over its training images and what was right of its test images.
fn epoch(epoch: usize, losses: &[f64], trained: usize, right: &[Right], tested: usize) -> LinearEpoch {
    let percent = |right: usize| 100.0 * right as f64 / tested as f64;
    LinearEpoch {
        epoch,
        losses: losses.iter().map(|sum| sum / trained as f64).collect(),
        top1: right.iter().map(|right| percent(right.top1)).collect(),
        top5: right.iter().map(|right| percent(right.top5)).collect(),
    }
}

/// The result of all epochs; an error without any.
fn result(epochs: Vec<LinearEpoch>, options: &LinearOptions) -> Result<LinearResult, EvalError> {
    let of_rate = |(i, &rate): (usize, &f64)| {
        // The first of the best: a later one has to be better.
        let better = |best: Option<RateResult>, e: &LinearEpoch| match best {
            Some(best) if e.top1[i] <= best.top1 => Some(RateResult { last_top1: e.top1[i], ..best }),
            _ => Some(RateResult { rate, epoch: e.epoch, top1: e.top1[i], top5: e.top5[i], last_top1: e.top1[i] }),
        };
        epochs.iter().fold(None, better)
    };
    let rates: Vec<RateResult> = options.rates.iter().enumerate().filter_map(of_rate).collect();
    let best = rates.iter().copied().reduce(|best, other| {
        let is_better = other.top1 > best.top1 || other.top1 == best.top1 && other.epoch < best.epoch;
        if is_better { other } else { best }
    });
    match best {
        Some(best) => Ok(LinearResult { epochs, rates, best }),
        None => Err(EvalError::Empty { which: "training" }),
    }
}

#[cfg(test)]
mod tests;
