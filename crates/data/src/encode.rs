//! Images as small files, for pages and other places where people look at them.

use libjpeg_turbo_rs::{PixelFormat, Subsampling, compress_optimized};

use crate::Image;

/// Images with sides below this keep all of their colour: there are no pixels to spare.
const SMALL: usize = 64;

/// Why there is no file.
#[derive(Debug, thiserror::Error)]
#[error("an image of {width} x {height} pixels could not be written as JPEG: {reason}")]
pub struct EncodeError {
    width: usize,
    height: usize,
    reason: String,
}

/// Encodes an image as JPEG with a quality from 1 to 100: grey of one or two channels, and the first three of more.
pub fn to_jpeg(image: &Image, quality: u8) -> Result<Vec<u8>, EncodeError> {
    let (width, height) = (image.width, image.height);
    let fault = |reason: String| EncodeError { width, height, reason };
    let rgb = to_rgb(image);
    let colors = if width.min(height) < SMALL { Subsampling::S444 } else { Subsampling::S420 };
    compress_optimized(&rgb.pixels, width, height, PixelFormat::Rgb, quality.clamp(1, 100), colors)
        .map_err(|error| fault(error.to_string()))
}

/// An image as people see it, in three channels: grey where it has one or two, the first three of more.
pub fn to_rgb(image: &Image) -> Image {
    let color = |pixel: &[u8]| if let &[r, g, b, ..] = pixel { [r, g, b] } else { [pixel[0]; 3] };
    let pixels = image.pixels.chunks_exact(image.channels).flat_map(color).collect();
    Image::from_pixels(image.width, image.height, 3, pixels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DecodeLimits, decode::decode};

    #[test]
    fn what_is_written_is_read_back_nearly_the_same() {
        for (channels, side) in [(1, 40), (3, 40), (3, 100), (5, 70)] {
            let level = |at: usize| (100.0 + 60.0 * ((at / channels) as f64 * 0.01).sin()) as u8;
            let image = Image::from_pixels(side, side, channels, (0..side * side * channels).map(level).collect());
            let bytes = to_jpeg(&image, 90).unwrap();
            let back = decode(&bytes, &DecodeLimits::default()).unwrap();
            assert_eq!((back.width, back.height, back.channels), (side, side, 3));
            let worst = back.pixels.iter().zip(&to_rgb(&image).pixels).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
            assert!(worst < 24, "{channels} channels of {side} pixels: {worst}");
            assert!(to_jpeg(&image, 20).unwrap().len() < bytes.len());
        }
    }

    #[test]
    fn a_side_that_the_format_does_not_have_is_an_error() {
        let error = to_jpeg(&Image::black(70_000, 1, 3), 80).unwrap_err();
        assert!(error.to_string().starts_with("an image of 70000 x 1 pixels could not be written"), "{error}");
    }
}
