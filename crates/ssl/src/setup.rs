//! From a checked recipe to the parts that a run is made of.

use std::time::Duration;

use data::LoaderConfig;
use data::views::MultiCrop;
use model::{ConfigError, Extras, HeadConfig, VitConfig};
use tensor::ops::AdamW;
use train::optimizer::OptimizerOptions;
use train::reduce::{Share, Wire};
use train::{LoopOptions, Patience};

use crate::layer_decay::BackboneLearning;
use crate::learner::LearnerOptions;
use crate::recipe::{Begin, GradientWire, MethodName, OnCollapse, Recipe};

/// Batches prepared ahead.
pub(crate) const PREFETCH: usize = 4;

/// The part of a run for which a collapse must last before it ends the run, as a divisor: nobody has seen one pass that did.
const PART_OF_RUN: u64 = 10;
/// And the records that must have told of it.
const RECORDS: u64 = 3;

/// The backbone of a recipe.
pub fn vit_config(recipe: &Recipe) -> Result<VitConfig, ConfigError> {
    let size = recipe.global_size();
    let config = VitConfig::new(recipe.arch(), recipe.patch_size(), (size.height, size.width), recipe.channels())?;
    let extras = Extras {
        registers: recipe.registers(),
        layer_scale: recipe.layer_scale(),
        interpolation: recipe.positions(),
        norm_epsilon: recipe.norm_epsilon(),
    };
    Ok(VitConfig { extras, ..config })
}

/// The head of a recipe.
pub fn head_config(recipe: &Recipe) -> HeadConfig {
    HeadConfig {
        inputs: recipe.arch().dim(),
        hidden: recipe.head_hidden(),
        bottleneck: recipe.head_bottleneck(),
        prototypes: recipe.out_dim(),
        layers: recipe.head_layers(),
        batch_norm: recipe.head_batch_norm(),
    }
}

/// The learner of a recipe.
pub fn learner_options(recipe: &Recipe) -> Result<LearnerOptions, ConfigError> {
    Ok(LearnerOptions {
        vit: vit_config(recipe)?,
        optimizer: OptimizerOptions {
            adam: AdamW { beta1: recipe.adam_beta1(), beta2: recipe.adam_beta2(), epsilon: recipe.adam_eps() },
            clip: recipe.clip_grad(),
            pull: recipe.pull(),
        },
        start: recipe.start(),
        backbone: BackboneLearning { lr: recipe.backbone_lr(), layer_decay: recipe.layer_decay() },
        seed: recipe.seed(),
        accumulate: recipe.accumulate(),
        checkpoint_activations: recipe.checkpoint_activations(),
        wire: match recipe.gradient_wire() {
            GradientWire::Exact => Wire::Exact,
            GradientWire::Bf16 => Wire::Bf16,
        },
        share: Share::WHOLE,
    })
}

/// The loader of a recipe. Views are finished by it.
pub fn loader_config(recipe: &Recipe) -> LoaderConfig {
    let size = |s: crate::recipe::Size| (s.height, s.width);
    let scale = |s: crate::recipe::Interval| (s.low, s.high);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    LoaderConfig {
        batch_size: recipe.batch_size(),
        shard: Default::default(),
        seed: recipe.seed(),
        workers: if recipe.workers() == 0 { cores } else { recipe.workers() },
        prefetch: PREFETCH,
        views: MultiCrop {
            global_size: size(recipe.global_size()),
            local_size: size(recipe.local_size()),
            local_crops: recipe.local_crops(),
            global_scale: scale(recipe.global_scale()),
            local_scale: scale(recipe.local_scale()),
            blur_sigma: (recipe.blur_sigma() / 20.0, recipe.blur_sigma()),
            ..match recipe.method() {
                MethodName::Dino | MethodName::Ibot => MultiCrop::dino(),
                MethodName::Msn => MultiCrop::msn(),
            }
        },
        channels: recipe.channels(),
        decoding: recipe.decoding(),
        orientation: recipe.orientation(),
        finish: true,
        max_bad_share: recipe.max_bad_share(),
    }
}

/// The loop of a recipe.
pub fn loop_options(recipe: &Recipe) -> LoopOptions {
    LoopOptions {
        loader: loader_config(recipe),
        epochs: recipe.epochs() as u64,
        log_every: recipe.log_every() as u64,
        evaluate_every: recipe.knn_every() as u64,
        // What was given may be lost; what was drawn has nothing to lose.
        evaluate_start: recipe.begin() != Begin::Drawn && recipe.knn_every() > 0,
        save_every: Duration::from_secs_f64(recipe.checkpoint_minutes() * 60.0),
        patience: (recipe.on_collapse() != OnCollapse::Continue)
            .then(|| Patience { steps: recipe.total_steps().div_ceil(PART_OF_RUN), records: RECORDS }),
    }
}
