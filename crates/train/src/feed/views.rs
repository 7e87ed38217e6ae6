//! Views as a device takes them: as bytes of the host, or sent to a GPU, which finishes what the loader has left to do.

use data::augment::blur::BoxKernel;
use data::augment::hue_shift;
use data::views::{Adjustment, Finish, Jitter, MultiCrop};
use data::{CropGroup, LoaderConfig, normalization};
use tensor::ops::{BoxBlur, ColorStep, PixelData, Pixels, ViewEdit};
use tensor::{Device, UploadedPixels};

/// Whether a device can finish all views of a loader.
pub(super) fn can_finish(device: &Device, config: &LoaderConfig) -> bool {
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
pub(super) fn pixels<'a>(group: &'a CropGroup, sent: Option<&'a UploadedPixels>, count: usize) -> Pixels<'a> {
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
