//! JPEG data inside a TIFF: its strips and tiles have a size of their own, which decides what decoding takes.
//!
//! The TIFF decoder hands them to a JPEG decoder that takes memory and time for whatever they claim, and then keeps the part
//! that fits. So they are looked at first.

use super::{DecodeError, exif};
use std::io::Cursor;
use tiff::decoder::{ChunkType, Decoder};
use tiff::tags::Tag;

const FORMAT: &str = "TIFF";
/// Compression by JPEG, as the tag says it today.
const JPEG: u32 = 7;
/// JPEG data is made of blocks of up to this side, and may be padded to them.
const BLOCK: u64 = 16;

/// Refuses a TIFF with JPEG data larger than the strip or tile that it is for. What cannot be parsed is left to the decoder.
pub(super) fn check(bytes: &[u8]) -> Result<(), DecodeError> {
    let Some(Chunks { places, width, height }) = chunks(bytes) else { return Ok(()) };
    let padded = |side: u32| u64::from(side).next_multiple_of(BLOCK);
    for (offset, length) in places {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let end = start.saturating_add(usize::try_from(length).unwrap_or(usize::MAX)).min(bytes.len());
        let Some((jpeg_width, jpeg_height)) = size(&bytes[start..end]) else { continue };
        if u64::from(jpeg_width) > padded(width) || u64::from(jpeg_height) > padded(height) {
            let reason = format!("JPEG data of {jpeg_width} x {jpeg_height} pixels in a part of {width} x {height}");
            return Err(DecodeError::Damaged { format: FORMAT, reason });
        }
    }
    Ok(())
}

/// The strips or tiles of a TIFF.
struct Chunks {
    /// Offset and length of each.
    places: Vec<(u64, u64)>,
    width: u32,
    height: u32,
}

/// The strips or tiles of a TIFF with JPEG data.
fn chunks(bytes: &[u8]) -> Option<Chunks> {
    let mut decoder = Decoder::new(Cursor::new(bytes)).ok()?;
    if decoder.get_tag_u32(Tag::Compression).ok()? != JPEG {
        return None;
    }
    let (offsets, lengths) = match decoder.get_chunk_type() {
        ChunkType::Strip => (Tag::StripOffsets, Tag::StripByteCounts),
        ChunkType::Tile => (Tag::TileOffsets, Tag::TileByteCounts),
    };
    let (offsets, lengths) = (decoder.get_tag_u64_vec(offsets).ok()?, decoder.get_tag_u64_vec(lengths).ok()?);
    let (width, height) = decoder.chunk_dimensions();
    Some(Chunks { places: offsets.into_iter().zip(lengths).collect(), width, height })
}

/// Width and height in the frame header of JPEG data.
fn size(jpeg: &[u8]) -> Option<(u16, u16)> {
    let is_frame = |marker: u8| matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc);
    let (_, body) = exif::segments(jpeg).find(|(marker, _)| is_frame(*marker))?;
    // A byte for the bits of a sample comes first.
    let &[_, h0, h1, w0, w1, ..] = body else { return None };
    Some((u16::from_be_bytes([w0, w1]), u16::from_be_bytes([h0, h1])))
}
