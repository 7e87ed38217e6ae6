//! How images are shown to a trained network.

use std::collections::BTreeMap;

use data::augment::Filter;
use data::transform::EvalTransform;
use eval::Preparation;
use ssl::recipe::Recipe;

/// What a network sees of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// (height, width) in pixels.
    pub size: (usize, usize),
    /// Whether the whole image is shown rather than its centre. So it is for images that are no larger than `size`:
    /// to enlarge them first and cut off the border afterwards, as for photographs, would only lose their edges.
    pub whole: bool,
}

/// Keys of a safetensors file's metadata.
const SIZE: &str = "image_size";
const SHOWN: &str = "image_part";
const WHOLE: &str = "whole";
const CENTER: &str = "center";

impl View {
    /// The view of a network trained by a recipe.
    pub fn of(recipe: &Recipe) -> Self {
        let size = recipe.global_size();
        Self { size: (size.height, size.width), whole: recipe.facts().size().short() <= size.short() }
    }

    /// The usual view of a network for images of this size: 224 pixels out of 256.
    pub fn center(size: (usize, usize)) -> Self {
        Self { size, whole: false }
    }

    /// The same on a square of another side.
    pub fn with_side(self, side: Option<usize>) -> Self {
        Self { size: side.map_or(self.size, |side| (side, side)), ..self }
    }

    /// The same with at most `side` pixels on the longer side.
    pub fn at_most(self, side: usize) -> Self {
        let (height, width) = self.size;
        let scale = (side as f64 / height.max(width) as f64).min(1.0);
        let scaled = |n: usize| ((n as f64 * scale).round() as usize).max(1);
        Self { size: (scaled(height), scaled(width)), ..self }
    }

    /// As the evaluation takes it.
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

    /// What a weights file says about it.
    pub fn metadata(&self) -> [(&'static str, String); 2] {
        let (height, width) = self.size;
        [(SIZE, format!("{height}x{width}")), (SHOWN, if self.whole { WHOLE } else { CENTER }.to_owned())]
    }

    /// From what a weights file says, if it says so.
    pub fn from_metadata(metadata: &BTreeMap<String, String>) -> Option<Self> {
        let (height, width) = metadata.get(SIZE)?.split_once('x')?;
        let size = (height.parse().ok().filter(|&n| n > 0)?, width.parse().ok().filter(|&n| n > 0)?);
        match metadata.get(SHOWN)?.as_str() {
            WHOLE => Some(Self { size, whole: true }),
            CENTER => Some(Self { size, whole: false }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ssl::recipe::{Facts, RawRecipe};

    fn view(side: usize) -> View {
        let facts = Facts { images: 1000, height: side, width: side, labelled: true, fingerprint: 0 };
        View::of(&RawRecipe::default().resolve(&facts).unwrap())
    }

    #[test]
    fn small_images_are_shown_whole_and_photographs_as_dino_does() {
        assert_eq!(view(48), View { size: (48, 48), whole: true });
        assert_eq!(view(500), View { size: (224, 224), whole: false });
        assert_eq!(view(500).preparation(), Preparation::Cover((224, 224)));
        let image = data::Image::from_pixels(48, 48, 3, (0..48 * 48 * 3).map(|i| (i % 251) as u8).collect());
        assert_eq!(view(48).preparation().apply(&image).unwrap(), image, "a small image is left as it is");
    }

    #[test]
    fn a_view_survives_its_file() {
        for view in [View { size: (48, 32), whole: true }, View::center((224, 224))] {
            let metadata = view.metadata().map(|(key, value)| (key.to_owned(), value)).into_iter().collect();
            assert_eq!(View::from_metadata(&metadata), Some(view));
        }
        let wrong = [("image_size", "48x0"), ("image_part", "whole")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(View::from_metadata(&wrong.into_iter().collect()), None);
        assert_eq!(View::from_metadata(&BTreeMap::new()), None);
    }

    #[test]
    fn a_view_is_made_smaller_but_never_larger() {
        assert_eq!(View::center((224, 112)).at_most(64).size, (64, 32));
        assert_eq!(View::center((48, 48)).at_most(64).size, (48, 48));
    }
}
