//! JPEG, byte for byte as Pillow with libjpeg-turbo decodes it (accurate integer IDCT, smooth chroma upsampling).
//!
//! Like Pillow, damage inside the compressed data is tolerated (libjpeg warns and goes on) and a file that ends early is
//! not: half an image in grey teaches nothing.

use super::{DecodeError, DecodeLimits, to_rgb};
use crate::Image;
use libjpeg_turbo_rs::{self as turbo, DecodeWarning, Decoder, FrameHeader, JpegError, PixelFormat};

const FORMAT: &str = "JPEG";

/// Real progressive files have about ten scans. Thousands of them are an attack on the decoder's time.
const MAX_SCANS: usize = 512;

pub(super) fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<Image, DecodeError> {
    let mut decoder = Decoder::new(bytes).map_err(convert)?;
    let header = decoder.header();
    let (width, height) = (header.width(), header.height());
    limits.check(width as u64, height as u64)?;
    check_components(header)?;
    let cmyk = header.components.len() == 4;
    decoder.set_output_format(if cmyk { PixelFormat::Cmyk } else { PixelFormat::Rgb });
    decoder.set_lenient(true);
    decoder.set_limits(turbo::DecodeLimits {
        max_pixels: limits.pixels,
        max_scans: MAX_SCANS,
        max_memory: Some(limits.memory),
        ..Default::default()
    });
    let decoded = decoder.decode_image().map_err(convert)?;
    if decoded.warnings.iter().any(|w| matches!(w, DecodeWarning::TruncatedData { .. })) {
        return Err(DecodeError::Truncated { format: FORMAT });
    }
    let pixels = if cmyk { inverted_cmyk_to_rgb(&decoded.data) } else { decoded.data };
    if pixels.len() != width * height * 3 {
        return Err(damaged(format!("{} bytes for {width} x {height} pixels", pixels.len())));
    }
    Ok(Image::from_pixels(width, height, 3, pixels))
}

/// Turns away layouts that no encoder writes and that the decoder was not built for.
fn check_components(header: &FrameHeader) -> Result<(), DecodeError> {
    if header.precision != 8 {
        return Err(unsupported(format!("{} bits a sample", header.precision)));
    }
    let sampling: Vec<_> = header.components.iter().map(|c| (c.horizontal_sampling, c.vertical_sampling)).collect();
    match sampling[..] {
        [_] | [_, _, _] => Ok(()),
        // CMYK, or YCCK with its two chroma planes reduced alike.
        [c, m, y, k] if c == k && m == y && (c == m || (m == (1, 1) && c.0 <= 2 && c.1 <= 2)) => Ok(()),
        _ => Err(unsupported(format!("{} components sampled {sampling:?}", sampling.len()))),
    }
}

/// Adobe's inverted CMYK, the only kind in use, to RGB by Pillow's formula.
fn inverted_cmyk_to_rgb(cmyk: &[u8]) -> Vec<u8> {
    to_rgb(cmyk.as_chunks::<4>().0, |&[c, m, y, light]| {
        [c, m, y].map(|v| {
            // light - round(ink * light / 255), the division by 255 done with shifts.
            let product = u32::from(255 - v) * u32::from(light) + 128;
            (u32::from(light) - (((product >> 8) + product) >> 8)) as u8
        })
    })
}

fn convert(error: JpegError) -> DecodeError {
    match error {
        JpegError::UnexpectedEof => DecodeError::Truncated { format: FORMAT },
        JpegError::Unsupported(reason) => unsupported(reason),
        JpegError::LimitExceeded { .. } | JpegError::AllocationFailed { .. } => {
            DecodeError::TooMuchMemory { format: FORMAT, reason: error.to_string() }
        }
        other => damaged(other.to_string()),
    }
}

fn damaged(reason: String) -> DecodeError {
    DecodeError::Damaged { format: FORMAT, reason }
}

fn unsupported(reason: String) -> DecodeError {
    DecodeError::Unsupported { format: FORMAT, reason }
}
