//! From a checked recipe to the parts that a run is made of.

use data::augment::blur::BoxKernel;
use data::augment::hue_shift;
use data::views::{Adjustment, Finish, Jitter, MultiCrop};
use data::{CropGroup, LoaderConfig, normalization};
use model::{ConfigError, HeadConfig, VitConfig};
use tensor::ops::{AdamW, BoxBlur, ColorStep, PixelData, Pixels, ViewEdit};
use tensor::{Device, UploadedPixels};

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
            ..MultiCrop::default()
        },
        channels: recipe.channels(),
        decoding: recipe.decoding(),
        finish: true,
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

/// Whether a device can finish all views of a loader.
pub fn can_finish(device: &Device, config: &LoaderConfig) -> bool {
    let MultiCrop { global_size, local_size, local_crops, .. } = config.views;
    let can_edit = |size| device.can_edit(size, config.channels);
    can_edit(global_size) && (local_crops == 0 || can_edit(local_size))
}

/// Starts sending a group of views to a GPU, which does what the loader has left to do; none for a CPU.
pub fn upload(device: &Device, group: &CropGroup) -> Option<UploadedPixels> {
    if group.finish.is_empty() {
        return device.upload_pixels(&group.pixels);
    }
    let edits: Vec<ViewEdit> = group.finish.iter().map(view_edit).collect();
    device.upload_views(&group.pixels, (group.height, group.width), &edits)
}

/// What is left to do to a view, in the numbers that a GPU needs.
fn view_edit(finish: &Finish) -> ViewEdit {
    let step = |jitter: &Jitter, step: Adjustment| match step {
        Adjustment::Brightness => ColorStep::Brightness(jitter.brightness as f32),
        Adjustment::Contrast => ColorStep::Contrast(jitter.contrast as f32),
        Adjustment::Saturation => ColorStep::Saturation(jitter.saturation as f32),
        Adjustment::Hue => ColorStep::Hue(hue_shift(jitter.hue)),
    };
    let kernel = finish.blur_sigma.and_then(|sigma| BoxKernel::of_gaussian(sigma as f32));
    ViewEdit {
        colors: finish.jitter.map(|jitter| jitter.order.map(|adjustment| step(&jitter, adjustment))),
        grayscale: finish.grayscale,
        blur: kernel.map(|BoxKernel { radius, inner, outer }| BoxBlur { radius: radius as u32, inner, outer }),
        solarize_from: finish.solarize_threshold,
    }
}

/// The first `count` views of a group as the network takes them, or all where there are fewer; those on the GPU where
/// they were sent there.
///
/// # Panics
/// When the views were left to a GPU to finish and not sent to one.
pub fn pixels<'a>(group: &'a CropGroup, sent: Option<&'a UploadedPixels>, count: usize) -> Pixels<'a> {
    let CropGroup { height, width, channels, .. } = *group;
    let count = count.min(group.count);
    let (mean, deviation) = normalization(channels);
    let data = match sent {
        Some(pixels) => PixelData::Uploaded { pixels, first: 0, mean, deviation },
        // A network would train on views without their distortions.
        None if !group.finish.is_empty() => panic!("views that nobody has finished"),
        None => PixelData::Bytes { pixels: &group.pixels[..count * height * width * channels], mean, deviation },
    };
    Pixels { count, height, width, channels, data }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_leaves_views_to_the_loader() {
        let device = Device::cpu(Default::default()).unwrap();
        assert!(!can_finish(&device, &LoaderConfig::default()));
    }

    #[test]
    #[should_panic(expected = "nobody has finished")]
    fn views_without_their_distortions_are_not_trained_on() {
        let group = CropGroup {
            height: 1,
            width: 1,
            channels: 3,
            count: 1,
            pixels: vec![0; 3],
            finish: vec![Finish::default()],
        };
        pixels(&group, None, 1);
    }
}
