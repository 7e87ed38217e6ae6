//! How good a fine-tuned network is: top-1 and top-5 accuracy on held-out images, after every epoch.

use std::ops::ControlFlow;
use std::sync::Arc;

use data::Source;
use data::augment::Filter;
use data::transform::EvalTransform;
use tensor::ops::{PixelData, Pixels};
use train::run::{RunError, RunReader};
use train::{Evaluation, Evaluator};

use super::recipe::Kind;
use super::training::FineTuning;
use crate::error::EvalError;
use crate::input::InputSpec;
use crate::prepare::Preparation;
use crate::reading::{ReadOptions, ReadProgress, for_each_batch};

/// Keys of the log.
const TOP1: &str = "top1";
const TOP5: &str = "top5";

/// Accuracies in per cent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accuracy {
    /// Images whose class has the largest logit; of equal ones, the class of the lowest number counts.
    pub top1: f64,
    /// Images whose class is among the five largest.
    pub top5: f64,
    /// Images that were judged.
    pub images: usize,
}

/// Held-out images, and how they are seen.
pub struct Judge<'a> {
    test: Arc<dyn Source>,
    preparation: Preparation,
    read: ReadOptions,
    progress: &'a dyn Fn(ReadProgress),
}

impl<'a> Judge<'a> {
    /// A judge of networks that see images so, by the rules of a recipe. `progress` is called after each batch of images.
    pub fn new(
        test: Arc<dyn Source>,
        kind: Kind,
        input: InputSpec,
        read: ReadOptions,
        progress: &'a dyn Fn(ReadProgress),
    ) -> Result<Self, EvalError> {
        let unlabelled = (0..test.len()).filter(|&index| test.label(index).is_none()).count();
        if unlabelled > 0 || test.is_empty() {
            return Err(EvalError::NoLabels { which: "test", unlabelled, images: test.len() });
        }
        let read = ReadOptions { orientation: input.orientation, ..read };
        Ok(Self { test, preparation: preparation(kind, input), read, progress })
    }

    /// What a network is worth. An evaluation is not interrupted: an epoch that was trained and not judged would be missing
    /// from the log of a run that goes on.
    pub fn accuracy(&self, trained: &FineTuning) -> Result<Accuracy, EvalError> {
        let tuner = trained.tuner();
        let channels = tuner.vit().config().channels;
        let (mean, deviation) = (&trained.normalization().mean, &trained.normalization().deviation);
        let read = ReadOptions { channels, ..self.read };
        let ((height, width), mut images, mut first, mut five) = (self.preparation.size(), 0, 0, 0);
        let mut go_on = |done| {
            (self.progress)(done);
            ControlFlow::Continue(())
        };
        for_each_batch(&*self.test, &self.preparation, &read, &mut go_on, |batch| {
            let data = PixelData::Bytes { pixels: &batch.pixels, mean, deviation };
            let pixels = Pixels { count: batch.indices.len(), height, width, channels, data };
            let logits = tuner.logits(&[pixels])?.to_f32();
            tuner.device().finish()?;
            for (row, &index) in logits.chunks_exact(tuner.classes()).zip(&batch.indices) {
                if !row.iter().all(|z| z.is_finite()) {
                    return Err(EvalError::NotFinite { name: self.test.name(index) });
                }
                let rank = self.test.label(index).and_then(|label| rank(row, label as usize));
                images += 1;
                first += usize::from(rank == Some(0));
                five += usize::from(rank.is_some_and(|rank| rank < 5));
            }
            Ok(())
        })?;
        let share = |count: usize| 100.0 * count as f64 / images.max(1) as f64;
        Ok(Accuracy { top1: share(first), top5: share(five), images })
    }
}

/// Resize and centre crop: bicubic for DeiT, as for features; bilinear for BEiT, in iBOT's copy of it. What is not square is
/// resized as for features in both.
fn preparation(kind: Kind, input: InputSpec) -> Preparation {
    match (kind, input.preparation()) {
        (Kind::Beit, Preparation::Transform(transform)) => {
            Preparation::Transform(EvalTransform { filter: Filter::Bilinear, ..transform })
        }
        (Kind::Beit, Preparation::Cover((height, width))) if height == width => {
            let resize_short = (height as f64 * 256.0 / 224.0).round() as usize;
            Preparation::Transform(EvalTransform { resize_short, crop: (height, width), filter: Filter::Bilinear })
        }
        (_, usual) => usual,
    }
}

/// How many classes stand before one, by their logits and then by their numbers; none where there is no such class.
fn rank(logits: &[f32], class: usize) -> Option<usize> {
    let own = *logits.get(class)?;
    let before = |(other, &z): (usize, &f32)| z > own || (z == own && other < class);
    Some(logits.iter().enumerate().filter(|&entry| before(entry)).count())
}

impl Evaluator<FineTuning> for Judge<'_> {
    fn evaluate(&mut self, trained: &FineTuning, _: u64) -> Evaluation {
        match self.accuracy(trained) {
            Ok(Accuracy { top1, top5, images }) => Evaluation {
                numbers: vec![(TOP1.to_owned(), top1), (TOP5.to_owned(), top5)],
                words: format!("top-1 {top1:.2} %, top-5 {top5:.2} % of {}", text::count(images, "test image")),
            },
            Err(error) => Evaluation { numbers: Vec::new(), words: format!("not judged: {error}") },
        }
    }
}

/// The best top-1 in the log of a run, its epoch from 1 on, and the last one with its top-5.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// The highest top-1, in per cent.
    pub top1: f64,
    /// The first epoch that had it.
    pub epoch: u64,
    /// Top-1 after the last epoch that was judged.
    pub last_top1: f64,
    /// Its top-5.
    pub last_top5: f64,
    /// That epoch.
    pub last_epoch: u64,
}

/// The best of a run, from its log; none where no epoch was judged.
pub fn best(run: &RunReader) -> Result<Option<Best>, RunError> {
    let mut best: Option<Best> = None;
    run.each_record(|record| {
        let number = |key: &str| record.get(key).and_then(serde_json::Value::as_f64);
        let epoch = record.get("epoch").and_then(serde_json::Value::as_u64);
        let (Some(top1), Some(top5), Some(epoch)) = (number(TOP1), number(TOP5), epoch) else { return };
        let epoch = epoch + 1;
        let new = Best { top1, epoch, last_top1: top1, last_top5: top5, last_epoch: epoch };
        best = Some(match best {
            Some(before) if before.top1 >= top1 => Best { top1: before.top1, epoch: before.epoch, ..new },
            _ => new,
        });
    })?;
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beit_resizes_bilinearly_and_deit_as_for_features() {
        let input = InputSpec::center((224, 224));
        let transform = EvalTransform { resize_short: 256, crop: (224, 224), filter: Filter::Bilinear };
        assert_eq!(preparation(Kind::Beit, input), Preparation::Transform(transform));
        assert_eq!(preparation(Kind::Deit, input), input.preparation());
        let whole = InputSpec { whole: true, ..InputSpec::center((32, 32)) };
        let small = EvalTransform { resize_short: 32, crop: (32, 32), filter: Filter::Bilinear };
        assert_eq!(preparation(Kind::Beit, whole), Preparation::Transform(small));
    }

    #[test]
    fn of_equal_logits_the_lower_class_comes_first() {
        let logits = [0.5, 2.0, 2.0, -1.0];
        assert_eq!([0, 1, 2, 3, 4].map(|class| rank(&logits, class)), [Some(2), Some(0), Some(1), Some(3), None]);
    }
}
