//! Every operation and whole views against Pillow and torchvision, byte for byte, on 320 random images and parameters each.
//!
//! tools/oracle/augment_many.py draws the same cases and wrote the checksums.

mod support;

use data::Image;
use data::augment::{self, Filter};
use data::transform::{EvalTransform, normalize_chw, thumbnail};
use data::views::{Adjustment, Finish, Jitter, ViewParams, apply};
use support::draws::Draws;
use support::{checksums, crc32};

fn in_place(d: &mut Draws, operation: impl Fn(&mut Image, &mut Draws)) -> Vec<u8> {
    let mut image = d.image();
    operation(&mut image, d);
    image.pixels
}

fn resize(d: &mut Draws, filter: Filter) -> Vec<u8> {
    let image = d.image();
    let size = d.width_first(230);
    augment::resize(&image, size, filter).pixels
}

fn eval_transform(d: &mut Draws) -> Vec<u8> {
    let image = d.image();
    let (long, short) = (image.width.max(image.height), image.width.min(image.height));
    let (resize_short, crop) = if long < 8 * short { (256, 224) } else { (24, 20) };
    let filter = if d.chance(0.5) { Filter::Bicubic } else { Filter::Bilinear };
    EvalTransform { resize_short, crop: (crop, crop), filter }.apply(&image).pixels
}

fn view(d: &mut Draws, side: usize, blur_p: f64, solarize_p: f64) -> Vec<u8> {
    let image = d.image();
    let crop = d.rect(&image);
    let (flip, jittered, grayscale) = (d.chance(0.5), d.chance(0.8), d.chance(0.2));
    let mut order = [Adjustment::Brightness, Adjustment::Contrast, Adjustment::Saturation, Adjustment::Hue];
    for i in [3, 2, 1] {
        order.swap(i, d.whole(0, i));
    }
    let (brightness, contrast) = (d.uniform(0.6, 1.4), d.uniform(0.6, 1.4));
    let (saturation, hue) = (d.uniform(0.8, 1.2), d.uniform(-0.1, 0.1));
    let (blurred, sigma, solarized) = (d.chance(blur_p), d.uniform(0.1, 2.0), d.chance(solarize_p));
    let params = ViewParams {
        crop,
        size: (side, side),
        filter: Filter::Bicubic,
        flip,
        operations: Default::default(),
        finish: Finish {
            jitter: jittered.then_some(Jitter { order, brightness, contrast, saturation, hue }),
            grayscale,
            blur_sigma: blurred.then_some(sigma),
            solarize_threshold: solarized.then_some(128),
        },
    };
    apply(&image, &params).pixels
}

fn run(operation: &str, d: &mut Draws) -> Vec<u8> {
    match operation {
        "brightness" => in_place(d, |image, d| augment::brightness(image, d.uniform(0.0, 2.0))),
        "contrast" => in_place(d, |image, d| augment::contrast(image, d.uniform(0.0, 2.0))),
        "saturation" => in_place(d, |image, d| augment::saturation(image, d.uniform(0.0, 2.0))),
        "hue" => in_place(d, |image, d| augment::hue(image, d.uniform(-0.5, 0.5))),
        "grayscale" => in_place(d, |image, _| augment::grayscale(image)),
        "flip" => in_place(d, |image, _| augment::flip_horizontal(image)),
        "solarize" => in_place(d, |image, d| augment::solarize(image, d.whole(0, 255) as u8)),
        "blur" => in_place(d, |image, d| augment::gaussian_blur(image, d.uniform(0.0, 4.0))),
        "normalize" => normalize_chw(&d.image()).iter().flat_map(|v| v.to_le_bytes()).collect(),
        "resize_bilinear" => resize(d, Filter::Bilinear),
        "resize_bicubic" => resize(d, Filter::Bicubic),
        "resize_lanczos" => resize(d, Filter::Lanczos),
        "resized_crop" => {
            let image = d.image();
            let (rect, size) = (d.rect(&image), (d.whole(1, 230), d.whole(1, 230)));
            augment::resize_crop(&image, rect, size, Filter::Bicubic).pixels
        }
        "center_crop" => {
            let image = d.image();
            let size = (d.whole(1, 230), d.whole(1, 230));
            augment::center_crop(&image, size).pixels
        }
        "eval_transform" => eval_transform(d),
        "thumbnail" => {
            let image = d.image();
            let size = d.width_first(230);
            thumbnail(&image, size).pixels
        }
        "reduce" => {
            let image = d.image();
            let factors = d.width_first(9);
            augment::reduce(&image, factors).pixels
        }
        "view_global1" => view(d, 224, 1.0, 0.0),
        "view_global2" => view(d, 224, 0.1, 0.2),
        "view_local" => view(d, 96, 0.5, 0.0),
        other => panic!("no operation is called {other}"),
    }
}

#[test]
fn every_operation_gives_the_bytes_of_pillow_and_torchvision() {
    let operations = checksums("many.txt");
    assert_eq!(operations.len(), 20);
    for (k, (operation, sums)) in operations.into_iter().enumerate() {
        assert!(sums.len() >= 300);
        for (n, expected) in sums.into_iter().enumerate() {
            let bytes = run(&operation, &mut Draws(((k as u64) << 32) + n as u64));
            assert_eq!(crc32(&bytes), expected, "{operation}, case {n}");
        }
    }
}
