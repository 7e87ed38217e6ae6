//! PNG, with every layout of its pixels.
//!
//! Chunks beside the image (colour profiles, texts) are passed over: compressed ones of a few kilobytes can hold gigabytes.

use super::limits::Bounds;
use super::{DecodeError, samples};
use crate::Image;
use png::{BitDepth, ColorType, Decoder, DecodingError, Limits, Transformations};
use std::io::{Cursor, ErrorKind};

pub(super) const FORMAT: &str = "PNG";

/// The most that a byte of deflate data grows to: a match of 258 bytes takes at least two bits.
const DEFLATE_MOST: u64 = 1032;

/// Memory for the decoder's own buffers: some rows, and the window of deflate.
const BESIDE: u64 = 1 << 20;

pub(super) fn decode(
    bytes: &[u8],
    bounds: &Bounds,
    want: usize,
    scratch: &mut Vec<u8>,
    image: &mut Image,
) -> Result<(), DecodeError> {
    let mut decoder = open(bytes, bounds);
    // Palettes are looked up, and samples of less than 8 bits brought to 8. Those of 16 stay.
    decoder.set_transformations(Transformations::EXPAND);
    let (width, height) = header(&mut decoder, bytes, bounds)?;
    let convert = |error| convert(error, bounds);
    let mut reader = decoder.read_info().map_err(convert)?;
    let (color, depth) = reader.output_color_type();
    let channels = match color {
        ColorType::Grayscale => 1,
        ColorType::GrayscaleAlpha => 2,
        ColorType::Rgb => 3,
        ColorType::Rgba => 4,
        ColorType::Indexed => {
            return Err(DecodeError::Damaged { format: FORMAT, reason: "its palette is missing".to_owned() });
        }
    };
    let layout = samples::Layout {
        format: FORMAT,
        width,
        height,
        channels,
        wide: (depth == BitDepth::Sixteen).then_some(samples::HighByte::First),
    };
    samples::read(&layout, &bounds.take(FORMAT, beside(width))?, want, scratch, image, |buffer| {
        reader.next_frame(buffer).map(|_| ()).map_err(convert)
    })
}

/// A decoder that takes no more than it may, and passes over what is not the image.
pub(super) fn open<'a>(bytes: &'a [u8], bounds: &Bounds) -> Decoder<Cursor<&'a [u8]>> {
    let allowed = Limits { bytes: bounds.memory.try_into().unwrap_or(usize::MAX) };
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), allowed);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder
}

/// Width and height that the header says, if the file may have as many pixels and is long enough for them.
pub(super) fn header(
    decoder: &mut Decoder<Cursor<&[u8]>>,
    bytes: &[u8],
    bounds: &Bounds,
) -> Result<(usize, usize), DecodeError> {
    let header = decoder.read_header_info().map_err(|error| convert(error, bounds))?;
    let (width, height) = header.size();
    bounds.check(width.into(), height.into())?;
    let packed = header.raw_row_length_from_width(width) as u64 * u64::from(height);
    if packed > DEFLATE_MOST * bytes.len() as u64 {
        return Err(DecodeError::Truncated { format: FORMAT });
    }
    Ok((width as usize, height as usize))
}

/// Bytes that decoding takes beside the samples of an image so wide.
pub(super) fn beside(width: usize) -> u64 {
    width as u64 * 16 + BESIDE
}

pub(super) fn convert(error: DecodingError, bounds: &Bounds) -> DecodeError {
    match error {
        DecodingError::LimitsExceeded => DecodeError::TooMuchMemory {
            format: FORMAT,
            limit: bounds.memory,
            reason: "a chunk or a row is too large".to_owned(),
        },
        DecodingError::IoError(e) if e.kind() == ErrorKind::UnexpectedEof => DecodeError::Truncated { format: FORMAT },
        other => DecodeError::Damaged { format: FORMAT, reason: other.to_string() },
    }
}
