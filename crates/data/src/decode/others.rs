//! PNG, WebP, BMP, GIF and TIFF through the `image` crate, and their many pixel layouts to RGB.

use super::{DecodeError, DecodeLimits, to_rgb};
use crate::Image;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};
use std::io::{Cursor, ErrorKind};

pub(super) fn decode(
    bytes: &[u8],
    name: &'static str,
    format: ImageFormat,
    limits: &DecodeLimits,
) -> Result<Image, DecodeError> {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut allowed = Limits::no_limits();
    allowed.max_alloc = Some(limits.memory);
    reader.limits(allowed.clone());
    let decoder = reader.into_decoder().map_err(|e| convert(name, e))?;
    let (width, height) = decoder.dimensions();
    limits.check(width.into(), height.into())?;
    allowed.reserve(decoder.total_bytes()).map_err(|e| convert(name, e))?;
    let decoded = DynamicImage::from_decoder(decoder).map_err(|e| convert(name, e))?;
    let (width, height) = (decoded.width() as usize, decoded.height() as usize);
    let pixels = match decoded {
        DynamicImage::ImageRgb8(image) => image.into_raw(),
        DynamicImage::ImageLuma8(image) => gray::<1, _>(&image.into_raw(), |v| v),
        DynamicImage::ImageLumaA8(image) => gray::<2, _>(&image.into_raw(), |v| v),
        DynamicImage::ImageRgba8(image) => color::<4, _>(&image.into_raw(), |v| v),
        DynamicImage::ImageLuma16(image) => gray::<1, _>(&image.into_raw(), high_byte),
        DynamicImage::ImageLumaA16(image) => gray::<2, _>(&image.into_raw(), high_byte),
        DynamicImage::ImageRgb16(image) => color::<3, _>(&image.into_raw(), high_byte),
        DynamicImage::ImageRgba16(image) => color::<4, _>(&image.into_raw(), high_byte),
        other => {
            return Err(DecodeError::Unsupported { format: name, reason: format!("{:?} pixels", other.color()) });
        }
    };
    Ok(Image::from_pixels(width, height, 3, pixels))
}

fn high_byte(v: u16) -> u8 {
    (v >> 8) as u8
}

/// The first of every `N` values, three times.
fn gray<const N: usize, T: Copy>(values: &[T], byte: impl Fn(T) -> u8) -> Vec<u8> {
    to_rgb(values.as_chunks::<N>().0, |p| [byte(p[0]); 3])
}

/// The first three of every `N` values: alpha is dropped, not blended.
fn color<const N: usize, T: Copy>(values: &[T], byte: impl Fn(T) -> u8) -> Vec<u8> {
    to_rgb(values.as_chunks::<N>().0, |p| [byte(p[0]), byte(p[1]), byte(p[2])])
}

fn convert(format: &'static str, error: ImageError) -> DecodeError {
    match error {
        ImageError::Limits(limit) => DecodeError::TooMuchMemory { format, reason: limit.to_string() },
        ImageError::Unsupported(what) => DecodeError::Unsupported { format, reason: what.to_string() },
        ImageError::IoError(e) if e.kind() == ErrorKind::UnexpectedEof => DecodeError::Truncated { format },
        other => DecodeError::Damaged { format, reason: other.to_string() },
    }
}
