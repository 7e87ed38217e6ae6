//! The resize and crop between an image file and a network's input.

use data::Image;
use data::augment::{Filter, resize};
use data::transform::EvalTransform;

use crate::error::EvalError;

/// A transform from an image of any size to one of a fixed size.
///
/// ```
/// use data::transform::EvalTransform;
/// use eval::Preparation;
/// // A square network of 224 pixels gets DINO's own transform: shorter side to 256, centre 224.
/// let image = data::Image::black(300, 200, 3);
/// let ours = Preparation::Cover((224, 224)).apply(&image).unwrap();
/// assert_eq!(ours, EvalTransform::default().apply(&image));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparation {
    /// This transform as it is.
    Transform(EvalTransform),
    /// The centre, (height, width), of the image resized (bicubic) to cover 256/224 of that size: DINO's transform for
    /// networks of other sizes, without black borders also where height and width differ.
    Cover((usize, usize)),
    /// The whole image, resized (bicubic) to (height, width) whatever its aspect.
    Stretch((usize, usize)),
}

/// Limit on the pixels of the resized image: one of 1 x 50,000 pixels would grow to billions.
const MAX_RESIZED: u128 = 1 << 26;

impl Preparation {
    /// Height and width of the result.
    pub fn size(&self) -> (usize, usize) {
        match *self {
            Preparation::Transform(transform) => transform.crop,
            Preparation::Cover(size) | Preparation::Stretch(size) => size,
        }
    }

    /// Validates its sizes.
    pub(crate) fn check(&self) -> Result<(), EvalError> {
        const SIDES: std::ops::RangeInclusive<usize> = 1..=8192;
        let (height, width) = self.size();
        let short = if let Preparation::Transform(transform) = self { transform.resize_short } else { height };
        for (setting, side) in [("image height", height), ("image width", width), ("shorter side", short)] {
            if !SIDES.contains(&side) {
                let expected = format!("{} to {} pixels", SIDES.start(), SIDES.end());
                return Err(EvalError::Setting { setting, value: side.to_string(), expected });
            }
        }
        Ok(())
    }

    /// Transforms an image. An error, as text for people, where the image is too long and thin to be resized in memory.
    ///
    /// # Panics
    /// When one of its own sizes is zero.
    pub fn apply(&self, image: &Image) -> Result<Image, String> {
        match *self {
            Preparation::Transform(transform) => apply(&transform, image),
            Preparation::Cover(size) => apply(&covering(size, image), image),
            Preparation::Stretch(size) => Ok(resize(image, size, Filter::Bicubic)),
        }
    }
}

fn apply(transform: &EvalTransform, image: &Image) -> Result<Image, String> {
    let (short, long) = (image.height.min(image.width), image.height.max(image.width));
    let side = transform.resize_short as u128;
    if side * (side * long as u128 / short as u128) > MAX_RESIZED {
        let Image { width, height, .. } = image;
        return Err(format!("{width} x {height} pixels: too long and thin to resize the shorter side to {side}"));
    }
    Ok(transform.apply(image))
}

/// The transform under which this image covers 256/224 of the size.
fn covering((height, width): (usize, usize), image: &Image) -> EvalTransform {
    let short = image.height.min(image.width);
    let share = |wanted: usize, side: usize| wanted as f64 * short as f64 / side as f64;
    let needed = share(height, image.height).max(share(width, image.width));
    let resize_short = (needed * 256.0 / 224.0).round().max(1.0) as usize;
    EvalTransform { resize_short, crop: (height, width), filter: Filter::Bicubic }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_square_size_is_covered_by_the_shorter_side_times_256_over_224() {
        for (size, short) in [(224, 256), (48, 55), (32, 37), (96, 110), (480, 549)] {
            for image in [Image::black(50, 50, 3), Image::black(64, 31, 3), Image::black(7, 301, 3)] {
                assert_eq!(covering((size, size), &image).resize_short, short, "{size} {image:?}");
            }
        }
    }

    #[test]
    fn a_wide_size_is_covered_without_borders_and_without_needless_zoom() {
        let white = |width, height| Image::from_pixels(width, height, 3, vec![255; width * height * 3]);
        for (width, height) in [(100, 100), (200, 100), (300, 100), (100, 300), (1000, 999)] {
            let prepared = Preparation::Cover((32, 64)).apply(&white(width, height)).unwrap();
            assert!(prepared.pixels.iter().all(|&p| p == 255), "{width}x{height} has a border");
        }
        assert_eq!(covering((32, 64), &Image::black(200, 100, 3)).resize_short, 37);
        assert_eq!(covering((32, 64), &Image::black(100, 100, 3)).resize_short, 73);
    }

    #[test]
    fn an_image_too_thin_to_resize_is_refused_rather_than_the_memory_taken() {
        let thread = Image::black(1, 60_000, 3);
        assert!(Preparation::Cover((224, 224)).apply(&thread).unwrap_err().contains("1 x 60000 pixels"));
        assert_eq!(Preparation::Stretch((8, 8)).apply(&thread).unwrap().pixels.len(), 192);
    }

    #[test]
    fn a_size_of_zero_is_an_error_before_anything_is_read() {
        let zero = EvalTransform { resize_short: 0, ..Default::default() };
        for preparation in [Preparation::Cover((0, 8)), Preparation::Stretch((8, 0)), Preparation::Transform(zero)] {
            assert!(matches!(preparation.check(), Err(EvalError::Setting { .. })));
        }
    }
}
