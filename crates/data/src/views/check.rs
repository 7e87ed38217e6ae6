//! Settings of a recipe that make no sense are found before any work is done.

use super::{GLOBAL_VIEWS, MultiCrop};
use thiserror::Error;

impl MultiCrop {
    /// Says which setting makes no sense.
    pub fn check(&self) -> Result<(), ViewsError> {
        let refuse = |setting, value: String, expected| Err(ViewsError { setting, value, expected });
        for (setting, (height, width)) in [("global_size", self.global_size), ("local_size", self.local_size)] {
            if !(1..=MAX_SIDE).contains(&height) || !(1..=MAX_SIDE).contains(&width) {
                return refuse(setting, format!("{height} x {width}"), "sides from 1 to 16384");
            }
        }
        if !(1..=GLOBAL_VIEWS).contains(&self.global_crops) {
            return refuse("global_crops", self.global_crops.to_string(), "1 or 2");
        }
        if !(1..=MAX_REPEATS).contains(&self.repeats) {
            return refuse("repeats", self.repeats.to_string(), "1 to 64");
        }
        if self.local_crops > MAX_LOCAL_CROPS {
            return refuse("local_crops", self.local_crops.to_string(), "at most 1024");
        }
        for (setting, range) in [("global_scale", self.global_scale), ("local_scale", self.local_scale)] {
            if !(0.0 < range.0 && range.0 <= range.1 && range.1 <= 1.0) {
                return refuse(setting, format!("{range:?}"), "a range within 0 to 1 that does not start at 0");
            }
        }
        for (setting, range, positive) in [("ratio", self.ratio, true), ("blur_sigma", self.blur_sigma, false)] {
            let starts = if positive { range.0 > 0.0 } else { range.0 >= 0.0 };
            if !(starts && range.0 <= range.1 && range.1 <= 100.0) {
                return refuse(setting, format!("{range:?}"), "a range of positive numbers up to 100");
            }
        }
        let probabilities = [
            ("flip_probability", self.flip_probability),
            ("jitter_probability", self.jitter_probability),
            ("grayscale_probability", self.grayscale_probability),
            ("blur_probability.global1", self.blur_probability.global1),
            ("blur_probability.global2", self.blur_probability.global2),
            ("blur_probability.local", self.blur_probability.local),
            ("solarize_probability.global1", self.solarize_probability.global1),
            ("solarize_probability.global2", self.solarize_probability.global2),
            ("solarize_probability.local", self.solarize_probability.local),
        ];
        for (setting, p) in probabilities {
            if !(0.0..=1.0).contains(&p) {
                return refuse(setting, p.to_string(), "a probability from 0 to 1");
            }
        }
        let strengths = [
            ("jitter.brightness", self.jitter.brightness, 100.0),
            ("jitter.contrast", self.jitter.contrast, 100.0),
            ("jitter.saturation", self.jitter.saturation, 100.0),
            ("jitter.hue", self.jitter.hue, 0.5),
        ];
        for (setting, strength, most) in strengths {
            if !(0.0..=most).contains(&strength) {
                return refuse(setting, strength.to_string(), "a strength from 0 to 100, and to 0.5 for hue");
            }
        }
        Ok(())
    }
}

/// Longest side of a view.
const MAX_SIDE: usize = 16384;
/// Most local views of an image.
const MAX_LOCAL_CROPS: usize = 1024;
/// Most times that an image comes in a row.
const MAX_REPEATS: usize = 64;

/// A setting of [`MultiCrop`] that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{setting} = {value}: expected {expected}")]
pub struct ViewsError {
    /// The field.
    pub setting: &'static str,
    /// Its value.
    pub value: String,
    /// What it should be.
    pub expected: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::JitterStrength;

    #[test]
    fn settings_that_make_no_sense_are_named() {
        let dino = MultiCrop::dino();
        let bad = [
            (MultiCrop { global_size: (0, 224), ..dino.clone() }, "global_size"),
            (MultiCrop { local_crops: 5000, ..dino.clone() }, "local_crops"),
            (MultiCrop { global_crops: 0, ..dino.clone() }, "global_crops"),
            (MultiCrop { repeats: 0, ..dino.clone() }, "repeats"),
            (MultiCrop { local_scale: (0.4, 0.05), ..dino.clone() }, "local_scale"),
            (MultiCrop { global_scale: (0.0, 1.0), ..dino.clone() }, "global_scale"),
            (MultiCrop { ratio: (f64::NAN, 1.0), ..dino.clone() }, "ratio"),
            (MultiCrop { blur_sigma: (-0.1, 1.0), ..dino.clone() }, "blur_sigma"),
            (MultiCrop { grayscale_probability: 1.5, ..dino.clone() }, "grayscale_probability"),
            (MultiCrop { jitter: JitterStrength { hue: 0.6, ..dino.jitter }, ..dino.clone() }, "jitter.hue"),
        ];
        for (recipe, setting) in bad {
            assert_eq!(recipe.check().unwrap_err().setting, setting);
        }
        assert_eq!(dino.check(), Ok(()));
        assert_eq!(MultiCrop::msn().check(), Ok(()));
    }
}
