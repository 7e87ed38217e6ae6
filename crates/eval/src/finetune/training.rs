//! Fine-tuning as the loop of [`train`] sees it: a batch becomes mixed images with soft targets, and a step.

use std::sync::Arc;
use std::time::Duration;

use data::augment::RandAugment;
use data::supervised::{Erasing, Mixing, TrainingBatch, Treatment};
use data::views::MultiCrop;
use data::{Decoding, LoaderConfig, Source};
use model::weights::describe;
use model::{ConfigError, DropPath, Layout, VitConfig};
use random::{Key, Purpose};
use rayon::prelude::*;
use tensor::ops::{PixelData, Pixels};
use tensor::{Device, ParamSet};
use train::feed::Fed;
use train::reduce::{Alone, Reduce};
use train::run::{Record, RunFolder};
use train::state::{SavedState, State, StateError};
use train::step::StepReport;
use train::{Condition, LoopOptions, Monitor, Position, StepError, StepRecord, TrainError, Trainable, Trainer};

use super::recipe::FineTuneRecipe;
use super::schedule::Schedule;
use super::tuner::Tuner;
use crate::input::InputSpec;
use crate::normalization::Normalization;

/// Batches prepared ahead.
const PREFETCH: usize = 4;
/// Share of the images that may be unreadable.
const BAD_SHARE: f64 = 0.05;
/// Records of the log in an epoch, about.
const RECORDS: u64 = 10;
/// Time between two checkpoints.
const SAVE_EVERY: Duration = Duration::from_secs(600);

/// What a fine-tuning is made of.
pub struct Parts<'a> {
    /// Where it computes.
    pub device: &'a Device,
    /// The backbone.
    pub config: &'a VitConfig,
    /// The values that it begins with, by their names.
    pub backbone: (&'a Layout, &'a ParamSet),
    /// How it sees pixels.
    pub normalization: &'a Normalization,
    /// What it sees of an image.
    pub input: InputSpec,
    /// The settings.
    pub recipe: &'a FineTuneRecipe,
    /// Labelled images.
    pub train: Arc<dyn Source>,
    /// Threads that read images.
    pub workers: usize,
}

/// A fine-tuning that could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum FineTuneError {
    /// The network.
    #[error(transparent)]
    Network(#[from] ConfigError),
    /// The run.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// An image without a label.
    #[error("{name} has no label, and fine-tuning learns labels")]
    NoLabel {
        /// The image.
        name: String,
    },
}

/// What is fine-tuned.
pub struct FineTuning {
    tuner: Tuner,
    recipe: FineTuneRecipe,
    schedule: Schedule,
    normalization: Normalization,
    train: Arc<dyn Source>,
    reduce: Alone,
    last: StepReport,
    description: Vec<(&'static str, String)>,
}

/// Opens or creates the run in `folder`.
pub fn open(
    parts: Parts<'_>,
    folder: RunFolder,
    monitor: &mut dyn Monitor,
) -> Result<Trainer<FineTuning>, FineTuneError> {
    let Parts { device, config, backbone, normalization, input, recipe, train, workers } = parts;
    if let Some(index) = (0..train.len()).find(|&index| train.label(index).is_none()) {
        return Err(FineTuneError::NoLabel { name: train.name(index) });
    }
    let classes = train.class_names().len();
    let mut tuner = Tuner::new(device, config.clone(), classes, recipe)?;
    tuner.begin_with(backbone.0, backbone.1);
    let loader = LoaderConfig {
        batch_size: recipe.batch_size,
        seed: recipe.seed,
        workers,
        prefetch: PREFETCH,
        views: MultiCrop {
            global_scale: (recipe.least_crop, 1.0),
            rand_augment: (recipe.magnitude > 0.0)
                .then(|| RandAugment { magnitude: recipe.magnitude, ..RandAugment::default() }),
            repeats: recipe.repeats,
            ..MultiCrop::supervised(input.size)
        },
        channels: config.channels,
        decoding: Decoding::Exact,
        orientation: input.orientation,
        max_bad_share: BAD_SHARE,
        ..LoaderConfig::default()
    };
    let steps = (train.len() / recipe.batch_size) as u64;
    let options = LoopOptions {
        loader,
        epochs: recipe.epochs,
        log_every: (steps / RECORDS).max(1),
        evaluate_every: 1,
        evaluate_start: false,
        save_every: SAVE_EVERY,
        patience: None,
    };
    let training = FineTuning {
        tuner,
        schedule: Schedule::new(recipe, steps),
        recipe: recipe.clone(),
        normalization: normalization.clone(),
        train: train.clone(),
        reduce: Alone,
        last: StepReport::default(),
        description: description(config, input, normalization),
    };
    Ok(Trainer::open(training, options, folder, train, monitor)?)
}

/// What weights say of a network of this shape that sees images so: the keys of a weight file.
pub fn description(config: &VitConfig, input: InputSpec, normalization: &Normalization) -> Vec<(&'static str, String)> {
    let seen = input.metadata();
    let shape = describe(config).into_iter().filter(|(key, _)| seen.iter().all(|(other, _)| other != key));
    shape.chain(seen.clone()).chain(normalization.metadata()).collect()
}

impl FineTuning {
    /// The network.
    pub fn tuner(&self) -> &Tuner {
        &self.tuner
    }

    /// How it sees pixels.
    pub fn normalization(&self) -> &Normalization {
        &self.normalization
    }

    /// What its weights say of it.
    pub fn description(&self) -> &[(&'static str, String)] {
        &self.description
    }

    /// Adds up the gradient of a batch, some images at a time; the mean loss.
    fn compute_gradient(&mut self, fed: &Fed, at: Position) -> Result<f64, StepError> {
        let Self { tuner, recipe, normalization, train, .. } = self;
        let treatment = Treatment {
            seed: recipe.seed,
            step: at.step,
            repeats: recipe.repeats,
            mean: &normalization.mean,
            deviation: &normalization.deviation,
            erasing: Erasing { probability: recipe.erase },
            mixing: Mixing { mixup: recipe.mixup, cutmix: recipe.cutmix, ..Mixing::default() },
            mixed_together: recipe.mixed_together,
        };
        let batch = TrainingBatch::new(&fed.batch, &treatment);
        let (images, classes, group) = (fed.batch.samples.len(), tuner.classes(), &fed.batch.groups[0]);
        let label = |sample: u64| train.label(sample as usize).unwrap_or(0) as usize;
        tuner.clear();
        let mut loss = 0.0;
        for start in (0..images).step_by(recipe.images_at_once) {
            let part = start..images.min(start + recipe.images_at_once);
            // Images keep their order on any number of threads.
            let made = || part.clone().into_par_iter().map(|image| batch.image(image)).collect::<Vec<_>>();
            let made: Vec<Vec<f32>> = tuner.device().run(made);
            let values: Vec<f64> = made.iter().flatten().map(|&value| f64::from(value)).collect();
            let mut targets = vec![0.0; part.len() * classes];
            for (image, target) in part.clone().zip(targets.chunks_exact_mut(classes)) {
                batch.target(image, label, recipe.smoothing, target);
            }
            let key = Key::new(recipe.seed, Purpose::DropPath).epoch(at.epoch);
            let key = |image: usize| key.sample(fed.batch.keys[image]).view(batch.repetition(image) as u32);
            let depth = tuner.vit().config().depth;
            let drop_path =
                (recipe.drop_path > 0.0).then(|| DropPath::draw(recipe.drop_path, depth, part.clone().map(key)));
            let pixels = Pixels {
                count: part.len(),
                height: group.height,
                width: group.width,
                channels: group.channels,
                data: PixelData::Values(&values),
            };
            loss += tuner.add_gradient(&[pixels], &targets, drop_path.as_ref(), 1.0 / images as f64)?;
        }
        Ok(loss)
    }
}

impl Trainable for FineTuning {
    fn device(&self) -> &Device {
        self.tuner.device()
    }

    fn reduce(&mut self) -> &mut dyn Reduce {
        &mut self.reduce
    }

    fn step(&mut self, fed: &Fed, at: Position) -> Result<f64, StepError> {
        let loss = self.compute_gradient(fed, at);
        let lr = self.schedule.lr(at);
        self.last = self.tuner.complete(loss, lr, &mut self.reduce)?;
        Ok(self.last.loss)
    }

    fn describe(&mut self, _: &Fed, at: Position, record: Record) -> Result<StepRecord, StepError> {
        let record = record.number("loss", self.last.loss).number("gradient_norm", self.last.gradient.norm);
        let record = record.number("lr", self.schedule.lr(at));
        Ok(StepRecord { record, verdict: None, condition: Condition::Healthy })
    }

    fn save<'a>(&'a self, state: &mut State<'a>) {
        self.tuner.save(state);
    }

    fn restore(&mut self, saved: &SavedState<'_>) -> Result<(), StateError> {
        self.tuner.restore(saved)
    }
}
