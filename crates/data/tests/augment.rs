//! Every operation and whole views against Pillow and torchvision, byte for byte.
//!
//! The expected checksums come from tools/oracle/augment_fixtures.py.

mod support;

use data::augment::{self, Filter, Rect, color, hue};
use data::transform::{EvalTransform, normalize_chw, thumbnail};
use data::views::{Adjustment, Finish, Jitter, ViewParams, apply};
use data::{Image, augment::crop::central_crop};
use support::{Case, cases, crc32};

/// Checks an operation that changes an image in place.
fn in_place(fixture: &str, operation: impl Fn(&mut Image, &mut Case)) {
    for mut case in cases(fixture) {
        let mut image = case.image();
        operation(&mut image, &mut case);
        case.expect(&image.pixels);
    }
}

#[test]
fn brightness_is_that_of_pillow() {
    in_place("brightness", |image, case| augment::brightness(image, case.number()));
}

#[test]
fn contrast_is_that_of_pillow() {
    in_place("contrast", |image, case| augment::contrast(image, case.number()));
}

#[test]
fn saturation_is_that_of_pillow() {
    in_place("saturation", |image, case| augment::saturation(image, case.number()));
}

#[test]
fn hue_is_that_of_torchvision() {
    in_place("hue", |image, case| augment::hue(image, case.number()));
}

#[test]
fn grayscale_is_that_of_torchvision() {
    in_place("grayscale", |image, _| augment::grayscale(image));
}

#[test]
fn a_mirror_image_is_that_of_torchvision() {
    in_place("flip", |image, _| augment::flip_horizontal(image));
}

#[test]
fn solarisation_is_that_of_pillow() {
    in_place("solarize", |image, case| augment::solarize(image, case.whole() as u8));
}

#[test]
fn gaussian_blur_is_that_of_pillow() {
    in_place("blur", |image, case| augment::gaussian_blur(image, case.number()));
}

#[test]
fn blending_agrees_for_every_pair_of_bytes() {
    for mut case in cases("blend") {
        let factor = case.number() as f32;
        let pairs = (0..=255).flat_map(|d| (0..=255).map(move |x| color::blend(d, x, factor)));
        case.expect(&pairs.collect::<Vec<u8>>());
    }
}

#[test]
fn both_hsv_conversions_agree_for_every_colour() {
    for mut case in cases("hsv") {
        let convert = if case.text() == "rgb_to_hsv" { hue::rgb_to_hsv } else { hue::hsv_to_rgb };
        let colours = (0..1u32 << 24).flat_map(|i| convert([(i >> 16) as u8, (i >> 8) as u8, i as u8]));
        case.expect(&colours.collect::<Vec<u8>>());
    }
}

#[test]
fn resizing_is_that_of_pillow_for_every_filter() {
    let filters = [
        ("resize_bilinear", Filter::Bilinear),
        ("resize_bicubic", Filter::Bicubic),
        ("resize_lanczos", Filter::Lanczos),
    ];
    for (fixture, filter) in filters {
        for mut case in cases(fixture) {
            let image = case.image();
            let size = (case.whole(), case.whole());
            case.expect(&augment::resize(&image, size, filter).pixels);
        }
    }
}

fn rect(case: &mut Case) -> Rect {
    Rect { top: case.whole(), left: case.whole(), height: case.whole(), width: case.whole() }
}

#[test]
fn a_resized_crop_is_that_of_torchvision() {
    for mut case in cases("resized_crop") {
        let (image, rect) = (case.image(), rect(&mut case));
        let size = (case.whole(), case.whole());
        case.expect(&augment::resize_crop(&image, rect, size, Filter::Bicubic).pixels);
    }
}

#[test]
fn a_centre_crop_is_that_of_torchvision_with_its_black_borders() {
    for mut case in cases("center_crop") {
        let image = case.image();
        let size = (case.whole(), case.whole());
        case.expect(&augment::center_crop(&image, size).pixels);
    }
}

#[test]
fn the_fallback_of_a_random_crop_is_that_of_torchvision() {
    for mut case in cases("central_fallback") {
        let (width, height) = (case.whole(), case.whole());
        assert_eq!(central_crop(height, width, (3.0 / 4.0, 4.0 / 3.0)), rect(&mut case), "{width} x {height}");
    }
}

#[test]
fn the_evaluation_transform_is_that_of_torchvision() {
    for mut case in cases("eval_transform") {
        let image = case.image();
        let (resize_short, crop) = (case.whole(), case.whole());
        let filter = if case.text() == "bicubic" { Filter::Bicubic } else { Filter::Bilinear };
        let transform = EvalTransform { resize_short, crop: (crop, crop), filter };
        case.expect(&transform.apply(&image).pixels);
    }
}

#[test]
fn block_means_are_those_of_pillow() {
    for mut case in cases("reduce") {
        let image = case.image();
        let factors = (case.whole(), case.whole());
        case.expect(&augment::reduce(&image, factors).pixels);
    }
}

#[test]
fn a_thumbnail_is_that_of_pillow() {
    for mut case in cases("thumbnail") {
        let image = case.image();
        let out = thumbnail(&image, (case.whole(), case.whole()));
        assert_eq!((out.height, out.width), (case.whole(), case.whole()), "{image:?}");
        case.expect(&out.pixels);
    }
}

#[test]
fn normalisation_is_that_of_torchvision_to_the_last_bit() {
    for mut case in cases("normalize") {
        let image = case.image();
        let bytes: Vec<u8> = normalize_chw(&image).iter().flat_map(|v| v.to_le_bytes()).collect();
        case.expect(&bytes);
    }
}

#[test]
fn whole_views_are_those_of_the_dino_recipe_in_torchvision() {
    const STEPS: [Adjustment; 4] =
        [Adjustment::Brightness, Adjustment::Contrast, Adjustment::Saturation, Adjustment::Hue];
    for fixture in ["view_global1", "view_global2", "view_local"] {
        for mut case in cases(fixture) {
            let (image, crop) = (case.image(), rect(&mut case));
            let (side, flip) = (case.whole(), case.flag());
            let order = case.value().as_array().map(|o| [0, 1, 2, 3].map(|i| STEPS[o[i].as_u64().unwrap() as usize]));
            let (brightness, contrast, saturation, hue) = (case.number(), case.number(), case.number(), case.number());
            let grayscale = case.flag();
            let (sigma, threshold) = (case.number(), case.number());
            let params = ViewParams {
                crop,
                size: (side, side),
                filter: Filter::Bicubic,
                flip,
                operations: Default::default(),
                finish: Finish {
                    jitter: order.map(|order| Jitter { order, brightness, contrast, saturation, hue }),
                    grayscale,
                    blur_sigma: (sigma >= 0.0).then_some(sigma),
                    solarize_threshold: (threshold >= 0.0).then_some(threshold as u8),
                },
            };
            case.expect(&apply(&image, &params).pixels);
        }
    }
}

#[test]
fn the_checksum_is_that_of_zlib() {
    assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
}
