//! PNG, WebP, BMP, GIF and TIFF through the `image` crate, and their many pixel layouts.

use super::{DecodeError, DecodeLimits, channels};
use crate::Image;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};
use std::io::{Cursor, ErrorKind};

pub(super) fn decode(
    bytes: &[u8],
    name: &'static str,
    format: ImageFormat,
    limits: &DecodeLimits,
    want: usize,
    image: &mut Image,
) -> Result<(), DecodeError> {
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
    let (have, pixels) = match decoded {
        DynamicImage::ImageLuma8(image) => (1, image.into_raw()),
        DynamicImage::ImageLumaA8(image) => (2, image.into_raw()),
        DynamicImage::ImageRgb8(image) => (3, image.into_raw()),
        DynamicImage::ImageRgba8(image) => (4, image.into_raw()),
        DynamicImage::ImageLuma16(image) => (1, high_bytes(image.into_raw())),
        DynamicImage::ImageLumaA16(image) => (2, high_bytes(image.into_raw())),
        DynamicImage::ImageRgb16(image) => (3, high_bytes(image.into_raw())),
        DynamicImage::ImageRgba16(image) => (4, high_bytes(image.into_raw())),
        other => {
            return Err(DecodeError::Unsupported { format: name, reason: format!("{:?} pixels", other.color()) });
        }
    };
    channels::convert(name, &pixels, have, want, &mut image.pixels)?;
    (image.width, image.height, image.channels) = (width, height, want);
    Ok(())
}

fn high_bytes(values: Vec<u16>) -> Vec<u8> {
    values.into_iter().map(|v| (v >> 8) as u8).collect()
}

fn convert(format: &'static str, error: ImageError) -> DecodeError {
    match error {
        ImageError::Limits(limit) => DecodeError::TooMuchMemory { format, reason: limit.to_string() },
        ImageError::Unsupported(what) => DecodeError::Unsupported { format, reason: what.to_string() },
        ImageError::IoError(e) if e.kind() == ErrorKind::UnexpectedEof => DecodeError::Truncated { format },
        other => DecodeError::Damaged { format, reason: other.to_string() },
    }
}
