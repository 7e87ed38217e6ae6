//! The chunks of a WebP file: what its frames claim, before a decoder takes memory for it, and its EXIF data.

use super::DecodeError;

const FORMAT: &str = "WebP";

/// Bytes of the file's header, and of a chunk's.
const HEADER: usize = 12;
const CHUNK_HEADER: usize = 8;
/// In the flags of an extended file: it has a chunk of EXIF data.
const HAS_EXIF: u8 = 0x08;

/// What decoders hold for each pixel, beside the image itself, at most. The planes of a lossy frame take 1.5 bytes, its alpha
/// channel 5 while it is decoded.
const LOSSY: u64 = 2;
const ALPHA: u64 = 5;
/// Four channels, of which an image without alpha takes three.
const LOSSLESS: u64 = 4;
/// The canvas of an animation, and the frame that is drawn on it.
const ANIMATION: u64 = 8;

/// The chunks that follow one another in `bytes`, each with its name. Ends where they do not fit.
fn chunks(mut bytes: &[u8]) -> impl Iterator<Item = (&[u8; 4], &[u8])> {
    std::iter::from_fn(move || {
        let (name, rest) = bytes.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length) as usize;
        let body = &rest[..length.min(rest.len())];
        // Chunks are padded to an even length.
        bytes = rest.get(length.saturating_add(length & 1)..).unwrap_or_default();
        Some((name, body))
    })
}

/// Refuses a file with a frame larger than its canvas. Returns the memory that a decoder needs beside the image itself.
pub(super) fn check(bytes: &[u8]) -> Result<u64, DecodeError> {
    let mut size = None;
    let (mut pixels, mut of_pixel) = (0, 0);
    for (name, body) in chunks(bytes.get(HEADER..).unwrap_or_default()) {
        match name {
            b"VP8X" => size = size.or(canvas(body)),
            b"ANMF" => {
                // Only the first frame is decoded, and its chunks follow a header of 16 bytes.
                let frame = chunks(body.get(16..).unwrap_or_default());
                (pixels, of_pixel) = frame.map(|(name, body)| cost(name, body)).fold((0, ANIMATION), combine);
                break;
            }
            _ => (pixels, of_pixel) = combine((pixels, of_pixel), cost(name, body)),
        }
    }
    let canvas = size.unwrap_or(pixels);
    // The decoder would notice too, but only after it has decoded the frame.
    if pixels > canvas {
        let reason = format!("a frame of {pixels} pixels on a canvas of {canvas}");
        return Err(DecodeError::Damaged { format: FORMAT, reason });
    }
    Ok(canvas.saturating_mul(of_pixel))
}

fn combine((pixels, bytes): (u64, u64), (more, other): (u64, u64)) -> (u64, u64) {
    (pixels.max(more), bytes + other)
}

/// Pixels of a frame, and bytes for each of them.
fn cost(name: &[u8; 4], body: &[u8]) -> (u64, u64) {
    let short = |at: usize| body.get(at..at + 2).map_or(0, |b| u64::from(u16::from_le_bytes([b[0], b[1]])));
    match name {
        // Three bytes of flags and three of signature, then both sides in 14 bits.
        b"VP8 " => ((short(6) & 0x3fff) * (short(8) & 0x3fff), LOSSY),
        // A byte of signature, then both sides less one in 14 bits.
        b"VP8L" => {
            let bits = short(1) | short(3) << 16;
            (((bits & 0x3fff) + 1) * ((bits >> 14 & 0x3fff) + 1), LOSSLESS)
        }
        b"ALPH" => (0, ALPHA),
        _ => (0, 0),
    }
}

/// Pixels of the canvas. Its sides less one lie in 24 bits each, behind four bytes of flags.
fn canvas(body: &[u8]) -> Option<u64> {
    let side = |at: usize| {
        let b = body.get(at..at + 3)?;
        Some(1 + u64::from(u32::from_le_bytes([b[0], b[1], b[2], 0])))
    };
    Some(side(4)? * side(7)?)
}

/// Whether there are fewer bytes than the header says.
pub(super) fn is_cut_short(bytes: &[u8]) -> bool {
    let length = bytes.get(4..8).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    bytes.len() < CHUNK_HEADER.saturating_add(length as usize)
}

/// The EXIF data, where the file says that it has some.
pub(super) fn exif(bytes: &[u8]) -> Option<&[u8]> {
    let bytes = bytes.get(HEADER..)?;
    // Its flags stand at the front, so that other files cost nothing.
    if !bytes.starts_with(b"VP8X") || bytes.get(CHUNK_HEADER)? & HAS_EXIF == 0 {
        return None;
    }
    chunks(bytes).find(|(name, _)| *name == b"EXIF").map(|(_, body)| body)
}
