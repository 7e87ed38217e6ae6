//! Maps of labels: the PNG files of segmentations, in which the number of a pixel's colour is the object that it shows.
//!
//! Elsewhere a palette is looked up and its colours are the image; here they are only for people.

use super::limits::{Bounds, DecodeLimits};
use super::png::{FORMAT, header, open};
use super::{DecodeError, make_room};
use crate::Image;
use png::{BitDepth, ColorType, Transformations};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Decodes a PNG of labels to an image of one channel: the index of each pixel of a palette image, or the level of a grey
/// one, both of up to 8 bits and as they are stored. A picture in colour holds no labels and is an error.
pub fn decode_labels(bytes: &[u8], limits: &DecodeLimits) -> Result<Image, DecodeError> {
    let mut labels = Image::black(1, 1, 1);
    decode_labels_into(bytes, limits, &mut labels)?;
    Ok(labels)
}

/// The same into `labels`, whose memory is used again. After an error it holds nothing of use.
pub fn decode_labels_into(bytes: &[u8], limits: &DecodeLimits, labels: &mut Image) -> Result<(), DecodeError> {
    if bytes.is_empty() {
        return Err(DecodeError::NoBytes);
    }
    if !bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        return Err(match super::format_of(&bytes[..bytes.len().min(32)]) {
            Some(format) => DecodeError::NoLabels { what: format!("{format} data") },
            None => DecodeError::UnknownFormat { start: bytes[..bytes.len().min(8)].to_vec() },
        });
    }
    // As for every decoder: damage that it does not expect costs this file, not the program.
    catch_unwind(AssertUnwindSafe(|| decode(bytes, &limits.of_file(bytes.len()), labels))).unwrap_or_else(|_| {
        Err(DecodeError::Damaged { format: FORMAT, reason: "the decoder gave up on it".to_owned() })
    })
}

fn decode(bytes: &[u8], bounds: &Bounds, labels: &mut Image) -> Result<(), DecodeError> {
    let mut decoder = open(bytes, bounds);
    decoder.set_transformations(Transformations::IDENTITY);
    let (width, height) = header(&mut decoder, bytes, bounds)?;
    let mut reader = decoder.read_info().map_err(|error| super::png::convert(error, bounds))?;
    let (color, depth) = reader.output_color_type();
    let bits = match (color, depth) {
        (ColorType::Indexed | ColorType::Grayscale, BitDepth::One) => 1,
        (ColorType::Indexed | ColorType::Grayscale, BitDepth::Two) => 2,
        (ColorType::Indexed | ColorType::Grayscale, BitDepth::Four) => 4,
        (ColorType::Indexed | ColorType::Grayscale, BitDepth::Eight) => 8,
        (color, depth) => {
            return Err(DecodeError::NoLabels { what: format!("a PNG of {}", description(color, depth)) });
        }
    };
    let stride = (width * bits).div_ceil(8);
    let bounds = bounds.take(FORMAT, super::png::beside(width))?;
    let stored = bounds.take(FORMAT, (stride as u64 + width as u64) * height as u64)?;
    // As many pixels as there are already keep their memory, which is not even cleared: all of it is overwritten.
    if labels.pixels.len() != width * height {
        make_room(FORMAT, &mut labels.pixels, width * height)?;
    }
    labels.reshape(width, height, 1);
    let failed = |error| super::png::convert(error, &stored);
    if bits == 8 {
        return reader.next_frame(&mut labels.pixels).map(|_| ()).map_err(failed);
    }
    let mut packed = Vec::new();
    make_room(FORMAT, &mut packed, stride * height)?;
    packed.resize(stride * height, 0);
    reader.next_frame(&mut packed).map_err(failed)?;
    for (row, labels) in packed.chunks_exact(stride).zip(labels.pixels.chunks_exact_mut(width)) {
        for (x, label) in labels.iter_mut().enumerate() {
            // The first pixel is in the high bits.
            *label = row[x * bits / 8] >> (8 - bits - x * bits % 8) & ((1 << bits) - 1);
        }
    }
    Ok(())
}

fn description(color: ColorType, depth: BitDepth) -> String {
    let what = match color {
        ColorType::Rgb => "RGB pixels",
        ColorType::Rgba => "RGB pixels with transparency",
        ColorType::GrayscaleAlpha => "grey pixels with transparency",
        ColorType::Grayscale => "grey pixels",
        ColorType::Indexed => "colours of a palette",
    };
    format!("{what} of {} bits", depth as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(color: ColorType, depth: BitDepth, size: (u32, u32), rows: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, size.0, size.1);
        encoder.set_color(color);
        encoder.set_depth(depth);
        if color == ColorType::Indexed {
            encoder.set_palette(vec![9; 3 << (depth as usize)]);
        }
        encoder.write_header().unwrap().write_image_data(rows).unwrap();
        bytes
    }

    fn labels(bytes: &[u8]) -> Result<Image, DecodeError> {
        decode_labels(bytes, &DecodeLimits::default())
    }

    #[test]
    fn an_index_is_a_label_at_every_depth() {
        let whole = file(ColorType::Indexed, BitDepth::Eight, (3, 2), &[0, 1, 255, 7, 8, 9]);
        assert_eq!(labels(&whole).unwrap(), Image::from_pixels(3, 2, 1, vec![0, 1, 255, 7, 8, 9]));
        let halves = file(ColorType::Indexed, BitDepth::Four, (3, 2), &[0x12, 0xf0, 0x34, 0x50]);
        assert_eq!(labels(&halves).unwrap().pixels, [1, 2, 15, 3, 4, 5]);
        let quarters = file(ColorType::Grayscale, BitDepth::Two, (5, 1), &[0b00_01_10_11, 0b10_00_00_00]);
        assert_eq!(labels(&quarters).unwrap().pixels, [0, 1, 2, 3, 2]);
        let bits = file(ColorType::Grayscale, BitDepth::One, (9, 1), &[0b1010_0001, 0b1000_0000]);
        assert_eq!(labels(&bits).unwrap().pixels, [1, 0, 1, 0, 0, 0, 0, 1, 1]);
        let grey = file(ColorType::Grayscale, BitDepth::Eight, (2, 1), &[3, 200]);
        assert_eq!(labels(&grey).unwrap().pixels, [3, 200]);
    }

    #[test]
    fn one_file_after_another_into_the_same_memory() {
        let mut image = Image::black(1, 1, 1);
        let limits = DecodeLimits::default();
        for (width, height, value) in [(5, 4, 9), (4, 5, 3), (2, 2, 8), (5, 4, 1)] {
            let bytes = file(
                ColorType::Indexed,
                BitDepth::Eight,
                (width, height),
                &vec![value; 20][..(width * height) as usize],
            );
            decode_labels_into(&bytes, &limits, &mut image).unwrap();
            assert_eq!(image, labels(&bytes).unwrap());
            assert!(image.pixels.iter().all(|&label| label == value));
        }
        let halves = file(ColorType::Indexed, BitDepth::Four, (3, 2), &[0x12, 0xf0, 0x34, 0x50]);
        decode_labels_into(&halves, &limits, &mut image).unwrap();
        assert_eq!(image.pixels, [1, 2, 15, 3, 4, 5]);
    }

    #[test]
    fn a_picture_in_colour_holds_no_labels_and_says_so() {
        let message = |bytes: &[u8]| labels(bytes).unwrap_err().to_string();
        let said = message(&file(ColorType::Rgb, BitDepth::Eight, (1, 1), &[1, 2, 3]));
        assert!(said.starts_with("a PNG of RGB pixels of 8 bits, where labels are expected"), "{said}");
        let said = message(&file(ColorType::Grayscale, BitDepth::Sixteen, (1, 1), &[1, 2]));
        assert!(said.contains("grey pixels of 16 bits"), "{said}");
        assert!(message(b"\xff\xd8\xff\xe0 and so on").starts_with("JPEG data, where labels are expected"));
        assert!(message(b"no picture").contains("not an image"));
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let whole = file(ColorType::Indexed, BitDepth::Eight, (40, 40), &vec![3; 1600]);
        for length in [0, 5, 20, 40, whole.len() / 2, whole.len() - 16] {
            assert!(labels(&whole[..length]).is_err(), "{length} bytes");
        }
        let mut huge = whole.clone();
        huge[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
        assert!(labels(&huge).is_err());
    }
}
