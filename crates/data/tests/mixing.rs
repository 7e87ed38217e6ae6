//! Mixup, cutmix and smoothed targets from given draws, against timm: images to the bit, targets as far as f32 goes.
//!
//! tools/oracle/mixing.py wrote the results.

mod support;

use data::supervised::{Mix, smoothed};
use data::transform::normalize_chw;
use support::{cases, crc32, make_image};

const LABELS: [usize; 4] = [0, 3, 3, 1];

#[test]
fn batches_are_mixed_as_timm_mixes_them() {
    let cases = cases("mixing");
    assert!(cases.len() >= 40);
    for mut case in cases {
        let (height, width, cut, drawn) = (case.whole(), case.whole(), case.flag(), case.number());
        let center = (case.whole(), case.whole());
        let mix = if cut { Mix::cut(drawn, center, (height, width)) } else { Mix::Blend(drawn) };
        let images: Vec<Vec<f32>> =
            (0..4).map(|seed| normalize_chw(&make_image("noise", seed, width, height))).collect();
        let mut bytes = Vec::new();
        for (i, image) in images.iter().enumerate() {
            let mut mixed = image.clone();
            mix.apply(&mut mixed, &images[3 - i], (height, width));
            bytes.extend(mixed.iter().flat_map(|v| v.to_le_bytes()));
        }
        assert_eq!(crc32(&bytes), case.whole() as u64, "{height}x{width}, {mix:?}");
        for (i, expected) in case.value().as_array().unwrap().iter().enumerate() {
            let mut target = [0.0; 5];
            smoothed(&mut target, LABELS[i], 0.1, mix.share());
            smoothed(&mut target, LABELS[3 - i], 0.1, 1.0 - mix.share());
            for (found, expected) in target.iter().zip(expected.as_array().unwrap()) {
                assert!((found - expected.as_f64().unwrap()).abs() < 3e-7, "{mix:?}: {target:?} {expected}");
            }
        }
    }
}
