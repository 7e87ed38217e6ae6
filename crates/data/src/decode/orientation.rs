//! Turning photographs upright. A camera stores pixels as its sensor lay, and in the EXIF data how that was.

use super::{DecodeError, make_room};
use crate::Image;
use crate::augment::flip_horizontal;

/// Whether photographs are turned upright.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Orientation {
    /// As the EXIF data says, where there is any.
    #[default]
    Upright,
    /// Pixels as the file has them: what torchvision's loader gives.
    AsStored,
}

impl Orientation {
    /// Their names in recipes, in the order of the variants.
    pub const NAMES: [&'static str; 2] = ["upright", "as stored"];

    /// The name in recipes.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The variant of this name. On a command line a hyphen is easier to write than a space.
    pub fn of_name(name: &str) -> Option<Self> {
        let name = name.replace('-', " ");
        [Orientation::Upright, Orientation::AsStored].into_iter().find(|orientation| orientation.name() == name)
    }
}

/// What makes an image upright: its sides are exchanged, then it is mirrored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// Rows become columns.
    transpose: bool,
    /// Left and right are exchanged, after that.
    mirror: bool,
    /// Top and bottom are exchanged, after that.
    flip: bool,
}

impl Turn {
    /// Upright as it is.
    pub const NONE: Turn = Turn { transpose: false, mirror: false, flip: false };

    /// By the number of EXIF, 1 to 8.
    pub fn of_exif(number: u8) -> Self {
        let (transpose, mirror, flip) = match number {
            2 => (false, true, false),
            3 => (false, true, true),
            4 => (false, false, true),
            5 => (true, false, false),
            6 => (true, true, false),
            7 => (true, true, true),
            8 => (true, false, true),
            _ => (false, false, false),
        };
        Self { transpose, mirror, flip }
    }

    /// Whether width and height change places.
    pub fn swaps_sides(self) -> bool {
        self.transpose
    }

    /// Turns an image. `scratch` may be overwritten.
    ///
    /// An image that was decoded at a reduced size may lie off by a part of a pixel after this, where its last column or row
    /// stands for fewer pixels than the others: less than half a pixel of any view.
    pub fn apply(self, format: &'static str, image: &mut Image, scratch: &mut Vec<u8>) -> Result<(), DecodeError> {
        if self.transpose {
            let Image { width, height, channels, ref pixels } = *image;
            make_room(format, scratch, pixels.len())?;
            scratch.resize(pixels.len(), 0);
            // The usual numbers of channels as constants, so that a pixel is moved in one piece.
            match channels {
                1 => self.transpose(pixels, width, height, 1, scratch),
                3 => self.transpose(pixels, width, height, 3, scratch),
                n => self.transpose(pixels, width, height, n, scratch),
            }
            std::mem::swap(&mut image.pixels, scratch);
            (image.width, image.height) = (height, width);
            return Ok(());
        }
        if self.mirror {
            flip_horizontal(image);
        }
        if self.flip {
            let stride = image.stride();
            let (top, bottom) = image.pixels.split_at_mut(image.height / 2 * stride);
            for (above, below) in top.chunks_exact_mut(stride).zip(bottom.chunks_exact_mut(stride).rev()) {
                above.swap_with_slice(below);
            }
        }
        Ok(())
    }

    /// Exchanges the sides and mirrors in one pass, in blocks that fit into the cache.
    #[inline(always)]
    fn transpose(self, from: &[u8], width: usize, height: usize, channels: usize, to: &mut [u8]) {
        const BLOCK: usize = 32;
        for top in (0..height).step_by(BLOCK) {
            for left in (0..width).step_by(BLOCK) {
                for x in left..width.min(left + BLOCK) {
                    let row = if self.flip { width - 1 - x } else { x };
                    for y in top..height.min(top + BLOCK) {
                        let column = if self.mirror { height - 1 - y } else { y };
                        let (at, place) = ((y * width + x) * channels, (row * height + column) * channels);
                        to[place..place + channels].copy_from_slice(&from[at..at + channels]);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_be_written_with_a_hyphen() {
        for orientation in [Orientation::Upright, Orientation::AsStored] {
            assert_eq!(Orientation::of_name(orientation.name()), Some(orientation));
        }
        assert_eq!(Orientation::of_name("as-stored"), Some(Orientation::AsStored));
        assert_eq!(Orientation::of_name("sideways"), None);
    }

    #[test]
    fn all_eight_orientations_of_two_by_three_pixels_are_what_exif_says() {
        // a b
        // c d
        // e f
        let rows = ["abcdef", "badcfe", "fedcba", "efcdab", "acebdf", "ecafdb", "fdbeca", "bdface"];
        for (number, row) in (1u8..).zip(rows) {
            for channels in [1, 2, 3, 4, 5] {
                let wide =
                    |text: &str| text.bytes().flat_map(|b| (0..channels).map(move |c| b + 20 * c as u8)).collect();
                let mut image = Image::from_pixels(2, 3, channels, wide("abcdef"));
                Turn::of_exif(number).apply("JPEG", &mut image, &mut vec![1; 3]).unwrap();
                let sides = if number > 4 { (3, 2) } else { (2, 3) };
                let expected = Image::from_pixels(sides.0, sides.1, channels, wide(row));
                assert!(image == expected, "orientation {number}, {channels} channels");
            }
        }
    }

    #[test]
    fn blocks_cover_images_that_are_no_multiple_of_them() {
        let (width, height) = (70, 37);
        let pixel = |x: usize, y: usize| [x as u8, y as u8, 9];
        let pixels = (0..height).flat_map(|y| (0..width).flat_map(move |x| pixel(x, y))).collect();
        let mut image = Image::from_pixels(width, height, 3, pixels);
        Turn::of_exif(6).apply("JPEG", &mut image, &mut Vec::new()).unwrap();
        assert_eq!((image.width, image.height), (37, 70));
        for (x, y) in [(0, 0), (36, 0), (0, 69), (36, 69), (33, 31)] {
            assert_eq!(image.row(y)[3 * x..3 * x + 3], pixel(y, height - 1 - x));
        }
    }
}
