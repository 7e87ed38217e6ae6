//! What a network sees of an image: the input size, and whether the whole image or its centre.

use std::collections::BTreeMap;

use data::Orientation;
use data::augment::Filter;
use data::transform::EvalTransform;

use crate::error::EvalError;
use crate::prepare::Preparation;

/// What a network sees of an image. Weight files carry it in their metadata, so that features do not depend on what
/// their user remembers of the training.
///
/// ```
/// use eval::{InputSpec, Preparation};
/// // Trained on crops of 224 pixels from photographs whose shorter side is typically 375 pixels.
/// let photographs = InputSpec::for_training((224, 224), 375);
/// assert_eq!(photographs.preparation(), Preparation::Cover((224, 224)));
/// // Trained on CIFAR: 32 pixels are all there is.
/// assert!(InputSpec::for_training((32, 32), 32).whole);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputSpec {
    /// Height and width of the network's input in pixels.
    pub size: (usize, usize),
    /// Whether the whole image is resized to `size`, rather than a centre crop taken. Images no larger than `size` are
    /// shown whole: enlarging them for a centre crop, as is done with photographs, would only lose their borders.
    pub whole: bool,
    /// Whether photographs are turned upright.
    pub orientation: Orientation,
}

/// Keys of a safetensors file's metadata.
const SIZE: &str = "image_size";
const PART: &str = "image_part";
const ORIENTATION: &str = "image_orientation";
const WHOLE: &str = "whole";
const CENTER: &str = "center";

impl InputSpec {
    /// The input of a network trained on global crops of this (height, width), from images whose shorter side has a
    /// median of `median_short_side` pixels.
    pub fn for_training(global_size: (usize, usize), median_short_side: usize) -> Self {
        let whole = median_short_side <= global_size.0.min(global_size.1);
        Self { size: global_size, whole, orientation: Orientation::Upright }
    }

    /// DINO's evaluation input at any size: the centre 224 pixels of an image resized to 256, or the same ratio.
    pub const fn center(size: (usize, usize)) -> Self {
        Self { size, whole: false, orientation: Orientation::Upright }
    }

    /// The same of images of this orientation.
    pub fn oriented(self, orientation: Orientation) -> Self {
        Self { orientation, ..self }
    }

    /// The same part of the image at another (height, width); unchanged where none is given.
    pub fn with_size(self, size: Option<(usize, usize)>) -> Self {
        Self { size: size.unwrap_or(self.size), ..self }
    }

    /// Scaled down, aspect kept, until the longer side has at most `side` pixels. Never enlarged.
    pub fn at_most(self, side: usize) -> Self {
        let (height, width) = self.size;
        let scale = (side as f64 / height.max(width) as f64).min(1.0);
        let scaled = |n: usize| ((n as f64 * scale).round() as usize).max(1);
        Self { size: (scaled(height), scaled(width)), ..self }
    }

    /// The resize and crop that turn an image into this input.
    pub fn preparation(&self) -> Preparation {
        let (height, width) = self.size;
        match self.whole {
            false => Preparation::Cover(self.size),
            true if height == width => {
                Preparation::Transform(EvalTransform { resize_short: height, crop: self.size, filter: Filter::Bicubic })
            }
            true => Preparation::Stretch(self.size),
        }
    }

    /// Keys and values for the metadata of a weight file.
    pub fn metadata(&self) -> [(&'static str, String); 3] {
        let (height, width) = self.size;
        [
            (SIZE, format!("{height}x{width}")),
            (PART, if self.whole { WHOLE } else { CENTER }.to_owned()),
            (ORIENTATION, self.orientation.name().to_owned()),
        ]
    }

    /// Reads the metadata of a weight file. None where they do not say which part of an image is meant, as in files of
    /// other programs; an error where they do and it cannot be read, because another input would give other features.
    pub fn from_metadata(metadata: &BTreeMap<String, String>) -> Result<Option<Self>, EvalError> {
        let Some(part) = metadata.get(PART) else { return Ok(None) };
        let wrong = |key, value: &str, expected: &str| {
            Err(EvalError::Metadata { key, value: value.to_owned(), expected: expected.to_owned() })
        };
        let side = |text: &str| text.parse().ok().filter(|&n| n > 0);
        let text = metadata.get(SIZE).map_or("", String::as_str);
        let size = text.split_once('x').and_then(|(height, width)| Some((side(height)?, side(width)?)));
        let Some(size) = size else { return wrong(SIZE, text, "height and width in pixels, like 224x224") };
        let whole = match part.as_str() {
            WHOLE => true,
            CENTER => false,
            other => return wrong(PART, other, "`whole` or `center`"),
        };
        let orientation = match metadata.get(ORIENTATION).map(|name| (name, Orientation::of_name(name))) {
            // Written before there was a choice.
            None => Orientation::AsStored,
            Some((_, Some(orientation))) => orientation,
            Some((name, None)) => return wrong(ORIENTATION, name, "`upright` or `as stored`"),
        };
        Ok(Some(Self { size, whole, orientation }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_images_are_shown_whole_and_photographs_as_dino_does() {
        let small = InputSpec::for_training((48, 48), 48);
        assert_eq!((small.size, small.whole), ((48, 48), true));
        let photographs = InputSpec::for_training((224, 224), 500);
        assert_eq!(photographs, InputSpec::center((224, 224)));
        assert_eq!(photographs.preparation(), Preparation::Cover((224, 224)));
        assert!(!InputSpec::for_training((32, 64), 33).whole, "the shorter side of the input decides");
        let image = data::Image::from_pixels(48, 48, 3, (0..48 * 48 * 3).map(|i| (i % 251) as u8).collect());
        assert_eq!(small.preparation().apply(&image).unwrap(), image, "a small image keeps its pixels");
    }

    #[test]
    fn metadata_round_trips_and_malformed_metadata_is_an_error() {
        let whole = InputSpec { whole: true, ..InputSpec::center((48, 32)) };
        for spec in [whole, whole.oriented(Orientation::AsStored), InputSpec::center((224, 224))] {
            let metadata = spec.metadata().map(|(key, value)| (key.to_owned(), value)).into_iter().collect();
            assert_eq!(InputSpec::from_metadata(&metadata).unwrap(), Some(spec));
        }
        for (size, part) in [("48x0", "whole"), ("48", "center"), ("48x48", "left half")] {
            let wrong = [("image_size", size), ("image_part", part)].map(|(k, v)| (k.to_owned(), v.to_owned()));
            let error = InputSpec::from_metadata(&wrong.into_iter().collect()).unwrap_err();
            assert!(matches!(error, EvalError::Metadata { .. }), "{error}");
        }
        assert_eq!(InputSpec::from_metadata(&BTreeMap::new()).unwrap(), None);
    }

    #[test]
    fn a_file_from_before_there_was_a_choice_was_trained_on_images_as_they_are_stored() {
        let old = [("image_size", "48x48"), ("image_part", "whole")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let spec = InputSpec::from_metadata(&old.into_iter().collect()).unwrap().unwrap();
        assert_eq!(spec.orientation, Orientation::AsStored);
    }

    #[test]
    fn an_input_is_scaled_down_but_never_up() {
        assert_eq!(InputSpec::center((224, 112)).at_most(64).size, (64, 32));
        assert_eq!(InputSpec::center((48, 48)).at_most(64).size, (48, 48));
    }
}
