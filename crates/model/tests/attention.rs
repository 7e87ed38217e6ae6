//! The attention of class tokens against timm's: `tests/fixtures/attention.json`, written by
//! `tools/oracle/attention_fixture.py`.

mod common;

use common::{Crops, TINY, device, random_weights};
use model::{Arch, Extras, Layout, Vit, VitConfig};
use serde_json::Value;
use tensor::ops::{PixelData, Pixels};
use tensor::{ParamId, Precision};

/// u(stream, i) of `tools/oracle/vit_hash.py`.
fn hash(stream: u64, i: usize) -> f64 {
    let mut z = (stream << 32 | i as u64).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    (z >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

#[test]
fn the_class_token_looks_where_timms_does() {
    let fixture: Value = serde_json::from_str(include_str!("fixtures/attention.json")).unwrap();
    for (precision, tolerance) in [(Precision::F64, 1e-9), (Precision::F32, 1e-5)] {
        let device = device(precision, 2);
        let mut layout = Layout::default();
        let vit = Vit::new(&mut layout, "", VitConfig::new(Arch::Tiny, 16, (224, 224), 3).unwrap());
        let mut weights = layout.zeros(&device);
        for (q, spec) in layout.specs().iter().enumerate() {
            let (offset, scale) = match spec.name.as_str() {
                name if name.ends_with("bias") => (0.0, 0.1),
                name if name.contains("norm") => (1.0, 0.2),
                "cls_token" | "pos_embed" => (0.0, 0.5),
                _ => (0.0, (3.0 / spec.shape[1..].iter().product::<usize>() as f64).sqrt()),
            };
            let tensor = &mut weights[ParamId(q)];
            let values: Vec<f64> = (0..tensor.len()).map(|i| offset + scale * hash(q as u64, i)).collect();
            tensor.copy_from_f64(&values);
        }
        // Both sizes in one batch.
        let cases = fixture["cases"].as_array().unwrap();
        let size = |case: &Value, key: &str| case[key].as_u64().unwrap() as usize;
        let values: Vec<Vec<f64>> = cases
            .iter()
            .map(|case| {
                let count = 2 * 3 * size(case, "height") * size(case, "width");
                let stream = 1_000_000 + size(case, "number") as u64;
                (0..count).map(|i| 2.0 * hash(stream, i)).collect()
            })
            .collect();
        let images: Vec<Pixels<'_>> = cases
            .iter()
            .zip(&values)
            .map(|(case, values)| {
                let (height, width) = (size(case, "height"), size(case, "width"));
                Pixels { count: 2, height, width, channels: 3, data: PixelData::Values(values) }
            })
            .collect();
        let attentions = vit.class_attention(&weights, &device, &images).unwrap();
        assert_eq!(attentions.len(), 4);
        for (case, pair) in cases.iter().zip(attentions.chunks(2)) {
            let second = &pair[1];
            assert_eq!(second.grid, (size(case, "height") / 16, size(case, "width") / 16));
            assert_eq!(second.heads().len(), 3);
            for (head, want) in second.heads().zip(case["weights"].as_array().unwrap()) {
                let want: Vec<f64> = want.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
                assert_eq!(head.len(), want.len());
                let largest = want.iter().copied().fold(0.0, f64::max);
                for (found, want) in head.iter().zip(&want) {
                    assert!((found - want).abs() <= tolerance * largest, "{precision:?}: {found} {want}");
                }
            }
        }
    }
}

#[test]
fn what_looks_at_registers_is_left_out() {
    let device = device(Precision::F64, 1);
    for registers in [0, 3] {
        let mut layout = Layout::default();
        let config = VitConfig { extras: Extras { registers, ..Extras::NONE }, ..TINY };
        let vit = Vit::new(&mut layout, "", config);
        let weights = random_weights(&layout, &device, 5);
        let crops = Crops::new(1);
        let attentions = vit.class_attention(&weights, &device, &crops.pixels()).unwrap();
        assert_eq!(attentions.iter().map(|a| a.grid).collect::<Vec<_>>(), [(2, 2), (2, 2), (2, 2), (3, 2), (3, 2)]);
        for attention in &attentions {
            assert_eq!(attention.heads().len(), 2);
            for head in attention.heads() {
                assert!(head.iter().all(|&weight| weight > 0.0) && head.iter().sum::<f64>() < 1.0, "{head:?}");
            }
            let mean = attention.mean();
            assert!((mean[1] - (attention.weights[1] + attention.weights[mean.len() + 1]) / 2.0).abs() < 1e-15);
        }
    }
}
