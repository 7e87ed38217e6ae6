//! Maps of labels as pictures: a PNG whose palette gives every label a colour of its own.
//!
//! The colours are those of PASCAL VOC and DAVIS: label 0 is black, and the bits of a label go to red, green and blue in turn,
//! the lowest to their highest bits, so that neighbouring labels differ most.

use crate::Image;
use crate::sheet::SheetError;
use png::{BitDepth, ColorType, Encoder};

/// The colour of a label.
pub fn color(label: u8) -> [u8; 3] {
    let mut color = [0; 3];
    for bit in 0..8 {
        // Three bits of the label at a time, one for each channel.
        color[bit % 3] |= (label >> bit & 1) << (7 - bit / 3);
    }
    color
}

/// Encodes a map of labels, an image of one channel, as a PNG with a palette.
///
/// # Panics
/// When the image has more than one channel.
pub fn to_png(labels: &Image) -> Result<Vec<u8>, SheetError> {
    assert_eq!(labels.channels, 1, "a map of labels");
    let refused = |reason: String| SheetError::Png { reason };
    let side = |n: usize| u32::try_from(n).map_err(|error| refused(error.to_string()));
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, side(labels.width)?, side(labels.height)?);
    encoder.set_color(ColorType::Indexed);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_palette((0..=255).flat_map(color).collect::<Vec<u8>>());
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(&labels.pixels)?;
        writer.finish()
    });
    written.map_err(|error| refused(error.to_string()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{DecodeLimits, decode, decode_labels};

    #[test]
    fn the_colours_are_those_of_pascal_voc() {
        // Background, aeroplane, bicycle, bird, ..., tv monitor; and the border of objects.
        let known = [(0, [0, 0, 0]), (1, [128, 0, 0]), (2, [0, 128, 0]), (3, [128, 128, 0]), (8, [64, 0, 0])];
        for (label, rgb) in known.into_iter().chain([(20, [0, 64, 128]), (255, [224, 224, 192])]) {
            assert_eq!(color(label), rgb, "{label}");
        }
        let all: std::collections::BTreeSet<[u8; 3]> = (0..=255).map(color).collect();
        assert_eq!(all.len(), 256);
    }

    #[test]
    fn what_is_written_is_read_as_labels_and_as_colours() {
        let labels = Image::from_pixels(3, 2, 1, vec![0, 1, 2, 20, 255, 0]);
        let png = to_png(&labels).unwrap();
        assert_eq!(decode_labels(&png, &DecodeLimits::default()).unwrap(), labels);
        let colors = decode(&png, &DecodeLimits::default()).unwrap();
        assert_eq!(colors.pixels, labels.pixels.iter().flat_map(|&label| color(label)).collect::<Vec<u8>>());
    }
}
