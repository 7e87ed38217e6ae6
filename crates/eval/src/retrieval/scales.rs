//! An image at a smaller scale, as PyTorch's `interpolate(scale_factor=s, mode="bilinear", align_corners=False)` makes it: two
//! taps in each direction whatever the scale, at places that follow from the scale that was asked for rather than from the
//! sizes, and single precision throughout.

use data::Image;

use crate::normalization::Normalization;

/// The normalised values of an image, channel by channel.
pub(super) struct Planes {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// channels x height x width.
    pub values: Vec<f64>,
}

/// The image at this scale below one, normalised before it is interpolated as the protocol does. None where nothing is left.
pub(super) fn scaled(image: &Image, scale: f64, normalization: &Normalization) -> Option<Planes> {
    let side = |side: usize| Some((side as f64 * scale).floor() as usize).filter(|&side| side > 0);
    let (height, width) = (side(image.height)?, side(image.width)?);
    let (rows, columns) = (taps(image.height, height, scale), taps(image.width, width, scale));
    let mut values = Vec::with_capacity(image.channels * height * width);
    for channel in 0..image.channels {
        let (mean, deviation) = (normalization.mean[channel], normalization.deviation[channel]);
        let level = |row: &[u8], x: usize| (f32::from(row[x * image.channels + channel]) / 255.0 - mean) / deviation;
        for &(top, bottom, down) in &rows {
            let (top, bottom) = (image.row(top), image.row(bottom));
            for &(left, right, across) in &columns {
                let along = |row: &[u8]| (1.0 - across) * level(row, left) + across * level(row, right);
                values.push(f64::from((1.0 - down) * along(top) + down * along(bottom)));
            }
        }
    }
    Some(Planes { height, width, values })
}

/// For each of `count` places the two neighbours among `side`, and the weight of the second.
fn taps(side: usize, count: usize, scale: f64) -> Vec<(usize, usize, f32)> {
    let step = (1.0 / scale) as f32;
    let tap = |place: usize| {
        // Rounded once, as compilers of PyTorch do it.
        let at = step.mul_add(place as f32 + 0.5, -0.5).max(0.0);
        let first = (at as usize).min(side - 1);
        (first, (first + 1).min(side - 1), at - first as f32)
    };
    (0..count).map(tap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn an_image_is_interpolated_as_pytorch_does() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/retrieval/expected.json");
        let expected: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        for case in expected["interpolated"].as_array().unwrap() {
            let number = |value: &Value| value.as_u64().unwrap() as usize;
            let (height, width) = (number(&case["height"]), number(&case["width"]));
            let level = |i: usize| {
                let (y, x, c) = (i / 3 / width, i / 3 % width, i % 3);
                (37 * y + 101 * x + 61 * c + 13 * y * x) as u8
            };
            let image = Image::from_pixels(width, height, 3, (0..height * width * 3).map(level).collect());
            let scale = case["scale"].as_f64().unwrap();
            let ours = scaled(&image, scale, &Normalization::usual(3)).unwrap();
            assert_eq!([ours.height, ours.width], [0, 1].map(|axis| number(&case["shape"][axis])));
            let theirs = case["values"].as_array().unwrap();
            assert_eq!(ours.values.len(), theirs.len());
            for (ours, theirs) in ours.values.iter().zip(theirs) {
                let theirs = theirs.as_f64().unwrap();
                assert!((ours - theirs).abs() < 2e-6, "{ours} {theirs}");
            }
        }
        assert!(scaled(&Image::black(1, 9, 3), 0.5, &Normalization::usual(3)).is_none());
    }
}
