//! Tests the parts of the video protocol against Pillow, OpenCV, NumPy and PyTorch: `tests/fixtures/video.json`, written by
//! `tools/oracle/video_fixture.py`.

use data::Image;
use data::augment::resize_nearest;
use serde_json::Value;

use super::affinity::{Field, Known, Patches, carry};
use super::frame::resize_as_opencv;
use super::score::agreement;
use super::soft::{Upsampled, one_hot};

fn fixture() -> Value {
    serde_json::from_str(include_str!("../../tests/fixtures/video.json")).unwrap()
}

/// u(stream, i) of `tools/oracle/vit_hash.py`.
fn uniform(stream: u64, i: usize) -> f64 {
    let mut z = ((stream << 32) + i as u64).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 * 2f64.powi(-52) - 1.0
}

fn rolling(values: impl IntoIterator<Item = u32>) -> u64 {
    values.into_iter().fold(0u32, |h, value| h.wrapping_mul(31).wrapping_add(value)).into()
}

fn of_bytes(bytes: &[u8]) -> u64 {
    rolling(bytes.iter().map(|&byte| u32::from(byte)))
}

fn number(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

fn pair(value: &Value) -> (usize, usize) {
    (number(&value[0]), number(&value[1]))
}

#[test]
fn the_nearest_pixel_is_pillows() {
    for case in fixture()["nearest"].as_array().unwrap() {
        let (from, to) = (number(&case["from"]), number(&case["to"]));
        // The number of each pixel in two channels, of both directions.
        let pixels: Vec<u8> = (0..from).flat_map(|i| [(i >> 8) as u8, i as u8]).collect();
        let across = resize_nearest(&Image::from_pixels(from, 1, 2, pixels.clone()), (1, to));
        let down = resize_nearest(&Image::from_pixels(1, from, 2, pixels), (to, 1));
        assert_eq!(across.pixels, down.pixels);
        let places = across.pixels.chunks(2).map(|pixel| u32::from(pixel[0]) << 8 | u32::from(pixel[1]));
        assert_eq!(Some(rolling(places)), case["hash"].as_u64(), "{from} to {to}");
    }
}

#[test]
fn frames_are_resized_as_by_opencv_byte_for_byte() {
    for case in fixture()["bilinear"].as_array().unwrap() {
        let ((height, width), to) = (pair(&case["from"]), pair(&case["to"]));
        let mut pixels = Vec::new();
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            let byte =
                |c: usize| ((3 * x * x + 5 * y * y + 7 * x * y + 11 * c) as u32).wrapping_mul(2_654_435_761) >> 24;
            pixels.extend((0..3).map(|c| byte(c) as u8));
        }
        let resized = resize_as_opencv(&Image::from_pixels(width, height, 3, pixels), to);
        assert_eq!(Some(of_bytes(&resized.pixels)), case["hash"].as_u64(), "{height}x{width} to {to:?}");
    }
}

#[test]
fn j_and_f_are_those_of_numpy_and_opencv() {
    for case in fixture()["agreement"].as_array().unwrap() {
        let (h, w) = pair(&case["size"]);
        let draw = |disks: [(usize, usize, usize); 2]| {
            let mut labels = Image::black(w, h, 1);
            for (label, (row, column, radius)) in (1u8..).zip(disks) {
                for (at, pixel) in labels.pixels.iter_mut().enumerate() {
                    let (y, x) = ((at / w).abs_diff(row), (at % w).abs_diff(column));
                    *pixel = if y * y + x * x < radius * radius { label } else { *pixel };
                }
            }
            labels
        };
        let truth = draw([(h / 2, w / 3, h / 4), (h / 3, 2 * w / 3, h / 5)]);
        let result = draw([(h / 2 + 3, w / 3 - 2, h / 4 - 2), (h / 3 - 1, 2 * w / 3 + 4, h / 5)]);
        for object in [1u8, 2] {
            let (j, f) = agreement(&truth, &result, object);
            let want = |key: &str| case[key][usize::from(object) - 1].as_f64().unwrap();
            assert!((j - want("j")).abs() < 1e-12 && (f - want("f")).abs() < 1e-12, "{h}x{w}: {j} {f}");
        }
    }
}

#[test]
fn labels_are_carried_through_frames_as_by_pytorch() {
    let fixture = &fixture()["propagation"];
    let (grid, width, size) = ((6, 9), 24, (25, 38));
    let count = grid.0 * grid.1;
    let features = |t: u64| {
        let value = |i: usize| uniform(20, i) + 0.5 * uniform(21 + t, i);
        Patches::new((0..count * width).map(value).collect::<Vec<f64>>(), width)
    };
    let label = |y: usize, x: usize| u8::from(x > 12) + u8::from(y > 9 && x > 20);
    let pixels = (0..size.0).flat_map(|y| (0..size.1).map(move |x| label(y, x))).collect();
    let first = Image::from_pixels(size.1, size.0, 1, pixels);
    let (shares, labels) = one_hot(&first, grid);
    assert_eq!(labels, 3);
    let mut masks = vec![of_bytes(&first.pixels)];
    let labels_of_first = shares.iter().map(|&share| f64::from(share)).collect();
    let mut known = vec![Known { patches: features(0), labels: labels_of_first }];
    let field = Field { grid, reach: 2, most: 5 };
    for t in 1..4 {
        let patches = features(t);
        // The first frame, and the two before this one.
        let context: Vec<&Known<f64>> = known[..1].iter().chain(known[1..].iter().rev().take(2).rev()).collect();
        let carried = carry(field, &context, &patches, labels);
        let mask = Upsampled::new(&carried, grid, labels, 4).labels(size);
        masks.push(of_bytes(&mask.pixels));
        known.push(Known { patches, labels: carried });
    }
    for (patch, want) in fixture["soft"].as_array().unwrap().iter().enumerate() {
        for label in 0..labels {
            let found = known[3].labels[patch * labels + label];
            assert!((found - want[label].as_f64().unwrap()).abs() < 1e-12, "patch {patch}: {found} {want}");
        }
    }
    let want: Vec<u64> = fixture["masks"].as_array().unwrap().iter().map(|hash| hash.as_u64().unwrap()).collect();
    assert_eq!(masks, want);
}
