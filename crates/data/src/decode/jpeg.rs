//! JPEG, byte for byte as Pillow with libjpeg-turbo decodes it (accurate integer IDCT, smooth chroma upsampling).
//!
//! Like Pillow, damage inside the compressed data is tolerated (libjpeg warns and goes on) and a file that ends early is
//! not: half an image in grey teaches nothing.

use super::limits::Bounds;
use super::{DecodeError, Reduction, channels, make_room};
use crate::Image;
use libjpeg_turbo_rs::{self as turbo, DecodeWarning, Decoder, FrameHeader, JpegError, PixelFormat, ScalingFactor};

const FORMAT: &str = "JPEG";

/// Real progressive files have about ten scans. Thousands of them, or hundreds over a large image, are an attack on the
/// decoder's time: every scan goes over all blocks of 8 x 8 samples.
const MAX_SCANS: u64 = 512;
const SCANS_OF_ANY: u64 = 24;
const MAX_BLOCKS_OF_SCANS: u64 = 1 << 26;

/// Decodes to `want` channels. `reduce` is told the height and width and says by how much less will do.
pub(super) fn decode(
    bytes: &[u8],
    bounds: &Bounds,
    want: usize,
    reduce: &mut dyn FnMut(usize, usize) -> Reduction,
    scratch: &mut Vec<u8>,
    image: &mut Image,
) -> Result<Reduction, DecodeError> {
    let convert = |error| convert(error, bounds);
    let mut decoder = Decoder::new(bytes).map_err(convert)?;
    let header = decoder.header();
    let (width, height) = (header.width(), header.height());
    bounds.check(width as u64, height as u64)?;
    check_components(header)?;
    let blocks = (width as u64 * height as u64 / 64 + 1) * header.components.len() as u64;
    let is_lossless = header.is_lossless;
    let (format, have) = match (header.components.len(), want) {
        (4, _) => (PixelFormat::Cmyk, 4),
        (1, 1) => (PixelFormat::Grayscale, 1),
        _ => (PixelFormat::Rgb, 3),
    };
    decoder.set_output_format(format);
    decoder.set_lenient(true);
    decoder.set_limits(turbo::DecodeLimits {
        max_pixels: bounds.pixels,
        max_scans: (MAX_BLOCKS_OF_SCANS / blocks).clamp(SCANS_OF_ANY, MAX_SCANS) as usize,
        max_memory: Some(bounds.memory),
        ..Default::default()
    });
    let mut reduction = reduce(height, width);
    // Lossless JPEG has no blocks to make smaller.
    if is_lossless {
        reduction = Reduction::None;
    }
    let divisor = reduction.divisor();
    decoder.set_scale(ScalingFactor::try_new(1, divisor as u32).map_err(convert)?);
    let (width, height) = (width.div_ceil(divisor), height.div_ceil(divisor));
    let size = width * height * have;
    // Only what is missing: zeroing the buffer anew would cost time with every image.
    if image.pixels.capacity() < size {
        make_room(FORMAT, &mut image.pixels, size)?;
    }
    image.reshape(width, height, have);
    let info = decoder.decode_image_into(&mut image.pixels).map_err(convert)?;
    if info.warnings.iter().any(|w| matches!(w, DecodeWarning::TruncatedData { .. })) {
        return Err(DecodeError::Truncated { format: FORMAT });
    }
    if (info.width, info.height, info.bytes_written) != (width, height, image.pixels.len()) {
        return Err(damaged(format!("{} bytes for {width} x {height} pixels", info.bytes_written)));
    }
    if have == 4 {
        std::mem::swap(&mut image.pixels, scratch);
        inverted_cmyk_to_rgb(scratch, &mut image.pixels);
        image.channels = 3;
    }
    if image.channels != want {
        std::mem::swap(&mut image.pixels, scratch);
        channels::convert(FORMAT, scratch, image.channels, want, &mut image.pixels)?;
        image.channels = want;
    }
    Ok(reduction)
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
fn inverted_cmyk_to_rgb(cmyk: &[u8], rgb: &mut Vec<u8>) {
    let color = |&[c, m, y, light]: &[u8; 4]| {
        [c, m, y].map(|v| {
            // light - round(ink * light / 255), the division by 255 done with shifts.
            let product = u32::from(255 - v) * u32::from(light) + 128;
            (u32::from(light) - (((product >> 8) + product) >> 8)) as u8
        })
    };
    rgb.clear();
    rgb.extend(cmyk.as_chunks::<4>().0.iter().flat_map(color));
}

fn convert(error: JpegError, bounds: &Bounds) -> DecodeError {
    match error {
        JpegError::UnexpectedEof => DecodeError::Truncated { format: FORMAT },
        JpegError::Unsupported(reason) => unsupported(reason),
        JpegError::LimitExceeded { what, .. } if what.contains("scan") => {
            DecodeError::TooMuchWork { format: FORMAT, reason: error.to_string() }
        }
        JpegError::LimitExceeded { .. } => {
            DecodeError::TooMuchMemory { format: FORMAT, limit: bounds.memory, reason: error.to_string() }
        }
        JpegError::AllocationFailed { .. } => DecodeError::NoMemory { format: FORMAT, reason: error.to_string() },
        other => damaged(other.to_string()),
    }
}

fn damaged(reason: String) -> DecodeError {
    DecodeError::Damaged { format: FORMAT, reason }
}

fn unsupported(reason: String) -> DecodeError {
    DecodeError::Unsupported { format: FORMAT, reason }
}
