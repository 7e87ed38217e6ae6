//! WebP, BMP, GIF and TIFF through the `image` crate.

use super::limits::Bounds;
use super::{DecodeError, samples, webp};
use crate::Image;
use image::{ColorType, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};
use std::io::{Cursor, ErrorKind};

pub(super) fn decode(
    bytes: &[u8],
    format: &'static str,
    kind: ImageFormat,
    bounds: &Bounds,
    want: usize,
    scratch: &mut Vec<u8>,
    image: &mut Image,
) -> Result<(), DecodeError> {
    // A WebP decoder takes memory for what its frames claim, so these are looked at first.
    let of_frames = if kind == ImageFormat::WebP { webp::check(bytes)? } else { 0 };
    let convert = |error| match convert(format, error, bounds) {
        DecodeError::Damaged { .. } if is_cut_short(bytes, kind) => DecodeError::Truncated { format },
        other => other,
    };
    let mut reader = ImageReader::with_format(Cursor::new(bytes), kind);
    reader.limits(limits(bounds.memory));
    let mut decoder = reader.into_decoder().map_err(convert)?;
    let (width, height) = decoder.dimensions();
    bounds.check(width.into(), height.into())?;
    let (channels, is_wide) = match decoder.color_type() {
        ColorType::L8 => (1, false),
        ColorType::La8 => (2, false),
        ColorType::Rgb8 => (3, false),
        ColorType::Rgba8 => (4, false),
        ColorType::L16 => (1, true),
        ColorType::La16 => (2, true),
        ColorType::Rgb16 => (3, true),
        ColorType::Rgba16 => (4, true),
        other => return Err(DecodeError::Unsupported { format, reason: format!("{other:?} pixels") }),
    };
    let layout = samples::Layout {
        format,
        width: width as usize,
        height: height as usize,
        channels,
        wide: is_wide.then_some(samples::HighByte::Native),
    };
    let pixels = u64::from(width) * u64::from(height);
    let inside = match kind {
        // It hands over a copy of what it has decoded.
        ImageFormat::Tiff => decoder.total_bytes(),
        // Indices of colours.
        ImageFormat::Gif => pixels,
        _ => of_frames,
    };
    let bounds = &bounds.take(format, inside)?;
    // For what is neither the image nor what it is made from. The frame of a GIF may be larger than its screen: four bytes
    // for a pixel of it count, and one that does not.
    let left = bounds.left().saturating_sub(layout.need(want));
    let allowed = if kind == ImageFormat::Tiff { inside + left } else { left / 5 * 4 };
    decoder.set_limits(limits(allowed)).map_err(convert)?;
    samples::read(&layout, bounds, want, scratch, image, |buffer| decoder.read_image(buffer).map_err(convert))
}

/// Whether a file that cannot be decoded ends before it says it does. Decoders call that damage of one kind or another.
fn is_cut_short(bytes: &[u8], kind: ImageFormat) -> bool {
    match kind {
        ImageFormat::WebP => webp::is_cut_short(bytes),
        // The byte that ends every GIF.
        ImageFormat::Gif => bytes.last() != Some(&0x3b),
        _ => false,
    }
}

fn limits(memory: u64) -> Limits {
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(memory);
    limits
}

fn convert(format: &'static str, error: ImageError, bounds: &Bounds) -> DecodeError {
    match error {
        ImageError::Limits(limit) => {
            DecodeError::TooMuchMemory { format, limit: bounds.memory, reason: limit.to_string() }
        }
        ImageError::Unsupported(what) => DecodeError::Unsupported { format, reason: what.to_string() },
        ImageError::IoError(e) if e.kind() == ErrorKind::UnexpectedEof => DecodeError::Truncated { format },
        other => DecodeError::Damaged { format, reason: other.to_string() },
    }
}
