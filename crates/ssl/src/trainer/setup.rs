//! From a checked recipe to the parts that a run is made of.

use data::views::MultiCrop;
use data::{CropGroup, LoaderConfig, normalization};
use model::{ConfigError, HeadConfig, VitConfig};
use tensor::UploadedPixels;
use tensor::ops::{AdamW, PixelData, Pixels};

use crate::learner::LearnerOptions;
use crate::loss::{LossOptions, TEACHER_VIEWS};
use crate::memory::ViewShape;
use crate::optimizer::OptimizerOptions;
use crate::recipe::{Prototypes, Recipe};

/// Batches prepared ahead.
pub(crate) const PREFETCH: usize = 4;

/// The backbone of a recipe.
pub fn vit_config(recipe: &Recipe) -> Result<VitConfig, ConfigError> {
    let size = recipe.global_size();
    VitConfig::new(recipe.arch(), recipe.patch_size(), (size.height, size.width), recipe.channels())
}

/// The learner of a recipe.
pub fn learner_options(recipe: &Recipe) -> Result<LearnerOptions, ConfigError> {
    let vit = vit_config(recipe)?;
    let head = HeadConfig {
        inputs: vit.dim,
        hidden: recipe.head_hidden(),
        bottleneck: recipe.head_bottleneck(),
        prototypes: recipe.out_dim(),
        layers: recipe.head_layers(),
        batch_norm: recipe.head_batch_norm(),
    };
    let loss = LossOptions {
        prototypes: recipe.prototypes(),
        centering: recipe.centering(),
        student_temperature: recipe.student_temp(),
        center_momentum: recipe.center_momentum(),
        center_floor: recipe.center_floor(),
    };
    let optimizer = OptimizerOptions {
        adam: AdamW { beta1: recipe.adam_beta1(), beta2: recipe.adam_beta2(), epsilon: recipe.adam_eps() },
        clip: recipe.clip_grad(),
        train_magnitude: recipe.prototypes() != Prototypes::L2,
        decay_magnitude: recipe.decay_prototype_scale(),
    };
    Ok(LearnerOptions {
        vit,
        head,
        loss,
        optimizer,
        seed: recipe.seed(),
        accumulate: recipe.accumulate(),
        checkpoint_activations: recipe.checkpoint_activations(),
    })
}

/// The loader of a recipe.
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
            ..MultiCrop::default()
        },
        channels: recipe.channels(),
        decoding: recipe.decoding(),
        max_bad_share: recipe.max_bad_share(),
    }
}

/// The groups of views of a step.
pub fn view_shapes(recipe: &Recipe) -> Vec<ViewShape> {
    let shape = |views: usize, size: crate::recipe::Size| ViewShape {
        count: views * recipe.batch_size(),
        height: size.height,
        width: size.width,
        channels: recipe.channels(),
    };
    let mut shapes = vec![shape(TEACHER_VIEWS, recipe.global_size())];
    if recipe.local_crops() > 0 {
        shapes.push(shape(recipe.local_crops(), recipe.local_size()));
    }
    shapes
}

/// A group of views as the network takes them.
pub fn pixels(group: &CropGroup) -> Pixels<'_> {
    first_pixels(group, group.count)
}

/// Those of the first `count` crops of a group; of all, where there are fewer.
pub fn first_pixels(group: &CropGroup, count: usize) -> Pixels<'_> {
    let count = count.min(group.count);
    let (mean, deviation) = normalization(group.channels);
    let pixels = &group.pixels[..count * group.height * group.width * group.channels];
    as_pixels(group, count, PixelData::Bytes { pixels, mean, deviation })
}

/// The same for a group that was sent to a GPU.
pub fn uploaded_pixels<'a>(group: &CropGroup, sent: &'a UploadedPixels) -> Pixels<'a> {
    let (mean, deviation) = normalization(group.channels);
    as_pixels(group, group.count, PixelData::Uploaded { pixels: sent, first: 0, mean, deviation })
}

fn as_pixels<'a>(group: &CropGroup, count: usize, data: PixelData<'a>) -> Pixels<'a> {
    Pixels { count, height: group.height, width: group.width, channels: group.channels, data }
}
