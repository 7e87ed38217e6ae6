//! How fast a recipe trains here: some steps on the real images, thrown away afterwards.

use std::sync::Arc;
use std::time::{Duration, Instant};

use data::Source;
use tensor::Device;
use train::feed::Feed;
use train::{Position, TrainError, Trainable};

use crate::learner::LearnError;
use crate::memory::{MemoryNeed, plan_and_reserve};
use crate::method;
use crate::pretraining::{PretrainError, Pretraining};
use crate::recipe::Recipe;
use crate::setup::{PREFETCH, learner_options, loader_config};

/// After this many steps a trial is over in any case.
const MOST_STEPS: u64 = 200;

/// Seconds that a step of this recipe takes, images read from `source` as they are in training. The trial is over after
/// `long_enough`, or after one step beside the first where that takes longer.
pub fn seconds_per_step(
    device: &Device,
    recipe: &Recipe,
    source: Arc<dyn Source>,
    long_enough: Duration,
) -> Result<f64, PretrainError> {
    let (options, method) = (learner_options(recipe).map_err(LearnError::from)?, method::of(recipe));
    let (batch, drop_path) = (recipe.batch_size(), recipe.drop_path());
    let need = MemoryNeed { options: &options, method: &*method, batch, drop_path, evaluated: None };
    plan_and_reserve(device, &need)?;
    // As many epochs as the most steps need.
    let epochs = MOST_STEPS.div_ceil(recipe.steps_per_epoch()) + 1;
    let mut feed = Feed::start(source, loader_config(recipe), device, (0, 0), epochs).map_err(TrainError::from)?;
    let mut trained = Pretraining::new(device, recipe, &*method, &options)?;
    // Batches that were made ahead while the network was built cost nothing and say nothing.
    let mut taken = 0;
    let mut begun = Instant::now();
    for step in 0..MOST_STEPS + PREFETCH as u64 {
        let Some(fed) = feed.next_batch().map_err(TrainError::from)? else { break };
        // As the steps are once heads have warmed up: those before are cheaper.
        let step_of_run = recipe.backbone_held_steps() + step;
        let at = Position { step: step_of_run, epoch: step_of_run / recipe.steps_per_epoch() };
        trained.step(&fed, at).map_err(TrainError::from)?;
        feed.recycle(fed);
        taken += 1;
        // A slow machine's loader has long made the next batches when its first step is done.
        let is_warm = step == 0 || (step < PREFETCH as u64 && begun.elapsed() < long_enough);
        if is_warm {
            (taken, begun) = (0, Instant::now());
        } else if begun.elapsed() >= long_enough {
            break;
        }
    }
    device.finish().map_err(LearnError::from)?;
    Ok(begun.elapsed().as_secs_f64() / taken.max(1) as f64)
}
