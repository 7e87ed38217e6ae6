//! Views that are cut out by the loader and finished on a GPU beside those that the loader finishes itself: the same
//! bytes. Runs where `DINO_VMF_TEST_GPU` is set (`tools/gpu-test`), and is skipped elsewhere.

mod gpu_device;

use std::collections::HashSet;
use std::sync::Arc;

use data::{CropGroup, Image, Loader, LoaderConfig, MultiCrop, Source, Split, augment};
use gpu_device::gpu;
use tensor::ops::{BoxBlur, ColorStep, PixelData, Pixels, ViewEdit, patchify};
use tensor::{CudaPrecision, Device, UploadedPixels};
use train::feed::upload;

/// The bytes of views on a GPU, by way of patches of one pixel.
fn bytes(device: &Device, sent: &UploadedPixels, count: usize, (height, width): (usize, usize)) -> Vec<u8> {
    let data = PixelData::Uploaded { pixels: sent, first: 0, mean: &[0.0; 3], deviation: &[1.0 / 255.0; 3] };
    let values = patchify(device, &[Pixels { count, height, width, channels: 3, data }], 1).to_f32();
    device.finish().unwrap();
    values.into_iter().map(|value| value.round() as u8).collect()
}

fn batches(source: &Arc<dyn Source>, config: LoaderConfig) -> Vec<Vec<CropGroup>> {
    let mut loader = Loader::start(source.clone(), config, 0, 0, 2).unwrap();
    std::iter::from_fn(|| loader.next().unwrap()).map(|batch| batch.groups).collect()
}

#[test]
fn a_gpu_finishes_views_as_the_loader_does() {
    let Some(device) = gpu(CudaPrecision::F32) else { return };
    let source = data::open("synthetic:train=24,size=60", Split::Train, 0).unwrap();
    // Sides that are no multiple of anything, one that does not fit into a block's shared memory eight rows at a time,
    // and boxes as wide as the image.
    let mut orders = HashSet::new();
    for (global_size, local_size, blur_sigma) in [
        ((224, 224), (96, 96), (0.1, 2.0)),
        ((37, 29), (1, 3), (0.1, 2.0)),
        ((9, 1500), (1500, 9), (0.1, 2.0)),
        ((50, 50), (21, 64), (2.0, 30.0)),
    ] {
        let views = MultiCrop { global_size, local_size, local_crops: 2, blur_sigma, ..MultiCrop::dino() };
        let config = |finish| LoaderConfig { batch_size: 8, views: views.clone(), finish, ..LoaderConfig::default() };
        let (expected, cut) = (batches(&source, config(true)), batches(&source, config(false)));
        assert_eq!(expected.len(), 6);
        for (expected, cut) in expected.iter().flatten().zip(cut.iter().flatten()) {
            let size = (cut.height, cut.width);
            let found = bytes(&device, &upload(&device, cut).unwrap(), cut.count, size);
            let differ = found.iter().zip(&expected.pixels).filter(|(a, b)| a != b).count();
            assert_eq!(differ, 0, "of {} bytes, views of {size:?}", found.len());
            assert!(cut.pixels != expected.pixels, "nothing was left to do");
            orders.extend(
                cut.finish.iter().filter_map(|finish| finish.jitter).map(|jitter| format!("{:?}", jitter.order)),
            );
        }
    }
    assert_eq!(orders.len(), 24, "all orders of the colour steps");
}

/// More views than a grid's second and third side have blocks.
#[test]
fn a_gpu_finishes_very_many_views() {
    let Some(device) = gpu(CudaPrecision::F32) else { return };
    let (count, edit) = (70_000, ViewEdit { solarize_from: Some(128), ..ViewEdit::default() });
    let blur = Some(BoxBlur { radius: 0, inner: 1 << 23, outer: 1 << 22 });
    let edits: Vec<ViewEdit> = (0..count).map(|i| ViewEdit { blur: blur.filter(|_| i % 2 == 1), ..edit }).collect();
    // Flat views, which no blur changes.
    let flat: Vec<u8> = (0..count).flat_map(|i| [(i % 251) as u8; 12]).collect();
    let sent = device.upload_views(&flat, (2, 2), &edits).unwrap();
    let expected: Vec<u8> = flat.iter().map(|&v| if v < 128 { v } else { 255 - v }).collect();
    assert!(bytes(&device, &sent, count, (2, 2)) == expected);
}

#[test]
fn a_gpu_turns_the_hue_of_every_colour_as_the_loader_does() {
    let Some(device) = gpu(CudaPrecision::F32) else { return };
    const SIDE: usize = 4096;
    let colors: Vec<u8> = (0..1u32 << 24).flat_map(|i| [i as u8, (i >> 8) as u8, (i >> 16) as u8]).collect();
    for turn in [0.0, 0.1, -0.1, 0.49] {
        let mut image = Image::from_pixels(SIDE, SIDE, 3, colors.clone());
        augment::hue(&mut image, turn);
        let nothing = ColorStep::Brightness(1.0);
        let hue = ColorStep::Hue(augment::hue_shift(turn));
        let edit = ViewEdit { colors: Some([nothing, hue, nothing, nothing]), ..ViewEdit::default() };
        let sent = device.upload_views(&colors, (SIDE, SIDE), &[edit]).unwrap();
        assert!(bytes(&device, &sent, 1, (SIDE, SIDE)) == image.pixels, "a turn of {turn}");
    }
}
