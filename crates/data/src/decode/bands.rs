//! TIFF with any number of bands, for images that are neither grey nor colour: satellites, microscopes.

use super::limits::Bounds;
use super::{DecodeError, channels};
use crate::Image;
use std::io::Cursor;
use tiff::TiffError;
use tiff::decoder::{Decoder, DecodingResult, Limits};

const FORMAT: &str = "TIFF";

/// Decodes a TIFF whose samples are `want` bands of 8 or 16 bits; of 16 the high byte is kept.
pub(super) fn decode(bytes: &[u8], bounds: &Bounds, want: usize, image: &mut Image) -> Result<(), DecodeError> {
    let convert = |error| convert(error, bounds);
    // The samples as they are stored, and a tile of them, beside the image.
    let third = usize::try_from(bounds.memory / 3).unwrap_or(usize::MAX);
    let mut allowed = Limits::default();
    (allowed.decoding_buffer_size, allowed.intermediate_buffer_size) = (third, third);
    let mut decoder = Decoder::new(Cursor::new(bytes)).map_err(convert)?.with_limits(allowed);
    let (width, height) = decoder.dimensions().map_err(convert)?;
    bounds.check(width.into(), height.into())?;
    let have = usize::from(decoder.colortype().map_err(convert)?.num_samples());
    let samples = match decoder.read_image().map_err(convert)? {
        DecodingResult::U8(samples) => samples,
        DecodingResult::U16(samples) => samples.into_iter().map(|v| (v >> 8) as u8).collect(),
        _ => {
            return Err(DecodeError::Unsupported { format: FORMAT, reason: "samples are not 8 or 16 bits".to_owned() });
        }
    };
    let (width, height) = (width as usize, height as usize);
    if have > 1 && samples.len() == width * height {
        let reason = "its bands lie in separate planes".to_owned();
        return Err(DecodeError::Unsupported { format: FORMAT, reason });
    }
    if samples.len() != width * height * have {
        let reason = format!("{} samples for {width} x {height} x {have}", samples.len());
        return Err(DecodeError::Damaged { format: FORMAT, reason });
    }
    channels::convert(FORMAT, &samples, have, want, &mut image.pixels)?;
    (image.width, image.height, image.channels) = (width, height, want);
    Ok(())
}

fn convert(error: TiffError, bounds: &Bounds) -> DecodeError {
    match error {
        TiffError::LimitsExceeded => DecodeError::TooMuchMemory {
            format: FORMAT,
            limit: bounds.memory,
            reason: "its samples, tiles or strips take a third of that".to_owned(),
        },
        TiffError::UnsupportedError(what) => DecodeError::Unsupported { format: FORMAT, reason: what.to_string() },
        TiffError::IoError(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            DecodeError::Truncated { format: FORMAT }
        }
        other => DecodeError::Damaged { format: FORMAT, reason: other.to_string() },
    }
}
