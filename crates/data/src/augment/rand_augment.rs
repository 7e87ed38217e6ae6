//! RandAugment as timm has it (`rand-m9-mstd0.5-inc1`): fifteen operations whose strength grows with a magnitude from 0 to 10.
//!
//! Parameters are plain data ([`Operation`]), drawn first and applied after. An operation at a given magnitude is timm's and
//! Pillow's byte for byte (`tests/rand_augment.rs`); which one is drawn comes from the keyed stream of the view.

use crate::Image;
use crate::augment;
use crate::source::RGB;
use crate::transform::normalization;
use random::Stream;

/// One operation with its parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation {
    /// See [`augment::autocontrast`].
    AutoContrast,
    /// See [`augment::equalize`].
    Equalize,
    /// See [`augment::invert`].
    Invert,
    /// By an angle in degrees.
    Rotate(f64),
    /// Bits that are kept.
    Posterize(u32),
    /// Values from here on are inverted; 256 for none.
    Solarize(u32),
    /// What is added to values below 128.
    SolarizeAdd(u8),
    /// Factor of saturation.
    Color(f64),
    /// Factor of contrast.
    Contrast(f64),
    /// Factor of brightness.
    Brightness(f64),
    /// Factor of sharpness.
    Sharpness(f64),
    /// Columns for each row.
    ShearX(f64),
    /// Rows for each column.
    ShearY(f64),
    /// Share of the width.
    TranslateX(f64),
    /// Share of the height.
    TranslateY(f64),
}

/// Strongest magnitude.
const MOST: f64 = 10.0;

impl Operation {
    /// How many there are.
    pub const COUNT: usize = 15;

    /// Operation `number` of the fifteen at a magnitude from 0 to 10. Where there are two directions, `negated` says which.
    ///
    /// # Panics
    /// When there is none of this number.
    pub fn at(number: usize, magnitude: f64, negated: bool) -> Self {
        let level = magnitude / MOST;
        let signed = |value: f64| if negated { -value } else { value };
        // 1 changes nothing, so the strength is the distance from there.
        let factor = || (1.0 + signed(level * 0.9)).max(0.1);
        match number {
            0 => Self::AutoContrast,
            1 => Self::Equalize,
            2 => Self::Invert,
            3 => Self::Rotate(signed(level * 30.0)),
            4 => Self::Posterize(4 - (level * 4.0) as u32),
            5 => Self::Solarize(256 - ((level * 256.0) as u32).min(256)),
            6 => Self::SolarizeAdd(((level * 110.0) as u8).min(128)),
            7 => Self::Color(factor()),
            8 => Self::Contrast(factor()),
            9 => Self::Brightness(factor()),
            10 => Self::Sharpness(factor()),
            11 => Self::ShearX(signed(level * 0.3)),
            12 => Self::ShearY(signed(level * 0.3)),
            13 => Self::TranslateX(signed(level * 0.45)),
            14 => Self::TranslateY(signed(level * 0.45)),
            _ => panic!("there are {} operations, and none of number {number}", Self::COUNT),
        }
    }

    /// Applies it. Saturation leaves images that are not RGB as they are. What a geometric operation uncovers has the mean
    /// colour of the normalisation: (124, 116, 104) for RGB.
    pub fn apply(self, image: &mut Image) {
        let fill = || fill_color(image.channels);
        *image = match self {
            Self::Rotate(degrees) => augment::rotate(image, degrees, &fill()),
            Self::ShearX(factor) => augment::shear_x(image, factor, &fill()),
            Self::ShearY(factor) => augment::shear_y(image, factor, &fill()),
            Self::TranslateX(share) => augment::translate_x(image, share, &fill()),
            Self::TranslateY(share) => augment::translate_y(image, share, &fill()),
            in_place => return in_place.apply_in_place(image),
        };
    }

    fn apply_in_place(self, image: &mut Image) {
        match self {
            Self::AutoContrast => augment::autocontrast(image),
            Self::Equalize => augment::equalize(image),
            Self::Invert => augment::invert(image),
            Self::Posterize(bits) => augment::posterize(image, bits),
            Self::Solarize(threshold) => {
                if let Ok(threshold) = u8::try_from(threshold) {
                    augment::solarize(image, threshold);
                }
            }
            Self::SolarizeAdd(add) => augment::solarize_add(image, add),
            Self::Color(factor) if image.channels == RGB => augment::saturation(image, factor),
            Self::Contrast(factor) => augment::contrast(image, factor),
            Self::Brightness(factor) => augment::brightness(image, factor),
            Self::Sharpness(factor) => augment::sharpness(image, factor),
            // Of the rest, saturation needs colours and the others a second image.
            _ => {}
        }
    }
}

/// The colour that normalisation makes zero, as bytes.
fn fill_color(channels: usize) -> Vec<u8> {
    normalization(channels).0.iter().map(|mean| (255.0 * mean).round_ties_even() as u8).collect()
}

/// How operations are drawn. The default is `rand-m9-mstd0.5-inc1`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandAugment {
    /// Mean of the magnitude.
    pub magnitude: f64,
    /// Its standard deviation.
    pub deviation: f64,
    /// Probability with which a drawn operation is applied.
    pub probability: f64,
}

impl Default for RandAugment {
    fn default() -> Self {
        Self { magnitude: 9.0, deviation: 0.5, probability: 0.5 }
    }
}

/// The operations on one view, in their order; none in the place of one that was drawn and is not applied.
pub type Operations = [Option<Operation>; 2];

impl RandAugment {
    /// Draws two operations with replacement. Every draw is made whether or not it is used.
    pub fn draw(&self, stream: &mut Stream) -> Operations {
        [(); 2].map(|()| {
            let number = stream.below(Operation::COUNT as u64) as usize;
            let applied = stream.chance(self.probability);
            let magnitude = (self.magnitude + self.deviation * stream.normal()).clamp(0.0, MOST);
            let operation = Operation::at(number, magnitude, stream.chance(0.5));
            applied.then_some(operation)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::{Key, Purpose};
    use std::collections::HashMap;

    #[test]
    fn all_operations_are_drawn_equally_often_with_magnitudes_around_nine() {
        let (mut counts, mut angles) = (HashMap::new(), Vec::new());
        let draws = 40_000;
        for sample in 0..draws {
            let mut stream = Key::new(3, Purpose::View).sample(sample).stream();
            for operation in RandAugment::default().draw(&mut stream).into_iter().flatten() {
                *counts.entry(std::mem::discriminant(&operation)).or_insert(0) += 1;
                if let Operation::Rotate(degrees) = operation {
                    angles.push(degrees);
                }
            }
        }
        // Two draws, each applied half of the time.
        let expected = draws as f64 / 15.0;
        assert_eq!(counts.len(), Operation::COUNT);
        assert!(counts.values().all(|&n| (f64::from(n) - expected).abs() < 5.0 * expected.sqrt()), "{counts:?}");
        let n = angles.len() as f64;
        let left = angles.iter().filter(|&&a| a < 0.0).count() as f64 / n;
        let mean = angles.iter().map(|a| a.abs()).sum::<f64>() / n / 3.0;
        // A few above 10 are cut off there.
        assert!((left - 0.5).abs() < 0.05 && (mean - 8.995).abs() < 0.05, "{left} {mean}");
        let square = angles.iter().map(|a| (a.abs() / 3.0 - mean).powi(2)).sum::<f64>() / n;
        assert!((square.sqrt() - 0.49).abs() < 0.03, "{square}");
    }

    #[test]
    fn the_extremes_of_every_operation_have_the_published_values() {
        assert_eq!(Operation::at(4, 9.9, false), Operation::Posterize(1));
        assert_eq!(Operation::at(4, 10.0, false), Operation::Posterize(0));
        assert_eq!(
            (Operation::at(5, 0.0, true), Operation::at(5, 10.0, true)),
            (Operation::Solarize(256), Operation::Solarize(0))
        );
        assert_eq!(Operation::at(6, 10.0, false), Operation::SolarizeAdd(110));
        assert_eq!(
            (Operation::at(8, 10.0, true), Operation::at(8, 10.0, false)),
            (Operation::Contrast(0.1), Operation::Contrast(1.9))
        );
        assert_eq!(Operation::at(3, 9.0, true), Operation::Rotate(-27.0));
        assert_eq!(fill_color(3), [124, 116, 104]);
    }

    #[test]
    fn grey_images_take_all_operations() {
        for number in 0..Operation::COUNT {
            let mut image = Image::from_pixels(7, 5, 1, (0..35).map(|i| (i * 7) as u8).collect());
            Operation::at(number, 9.0, false).apply(&mut image);
            assert_eq!((image.width, image.height, image.channels, image.pixels.len()), (7, 5, 1, 35), "{number}");
        }
    }
}
