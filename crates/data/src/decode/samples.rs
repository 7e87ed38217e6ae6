//! From the samples that a decoder writes to an image: one way for all formats but JPEG.
//!
//! Memory is checked before it is taken, and where a file has the channels that are wanted they are decoded in place.

use super::limits::Bounds;
use super::{DecodeError, channels, make_room};
use crate::Image;

/// Where the high byte of a 16-bit sample lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HighByte {
    First,
    /// As this machine stores numbers.
    Native,
}

/// What a decoder writes.
pub(super) struct Layout {
    pub format: &'static str,
    pub width: usize,
    pub height: usize,
    /// Samples of a pixel.
    pub channels: usize,
    /// For samples of 16 bits, where the high byte is, which is the one that is kept.
    pub wide: Option<HighByte>,
}

impl Layout {
    /// Whether the samples are those of the image, so that they can be decoded in place.
    fn is_image(&self, want: usize) -> bool {
        self.channels == want && self.wide.is_none()
    }

    /// Bytes of all samples.
    fn stored(&self) -> u64 {
        let of_pixel = self.channels << usize::from(self.wide.is_some());
        self.width as u64 * self.height as u64 * of_pixel as u64
    }

    /// Bytes of the samples and of the image with `want` channels that is made of them.
    pub fn need(&self, want: usize) -> u64 {
        let image = self.width as u64 * self.height as u64 * want as u64;
        self.stored() + if self.is_image(want) { 0 } else { image }
    }
}

/// Has `fill` write all samples into a buffer of their size, and brings them to `want` channels of 8 bits.
pub(super) fn read(
    layout: &Layout,
    bounds: &Bounds,
    want: usize,
    scratch: &mut Vec<u8>,
    image: &mut Image,
    fill: impl FnOnce(&mut [u8]) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let Layout { format, width, height, channels, wide } = *layout;
    bounds.take(format, layout.need(want))?;
    let in_place = layout.is_image(want);
    let buffer = if in_place { &mut image.pixels } else { &mut *scratch };
    // Zeros, not what the image before left there: some formats may leave pixels out.
    let size = layout.stored() as usize;
    make_room(format, buffer, size)?;
    buffer.resize(size, 0);
    fill(buffer)?;
    if !in_place {
        if let Some(high) = wide {
            keep_high_bytes(scratch, high);
        }
        channels::convert(format, scratch, channels, want, &mut image.pixels)?;
    }
    (image.width, image.height, image.channels) = (width, height, want);
    Ok(())
}

/// Moves the high byte of each 16-bit sample to the front, and drops the rest.
fn keep_high_bytes(samples: &mut Vec<u8>, high: HighByte) {
    let offset = usize::from(high == HighByte::Native && cfg!(target_endian = "little"));
    let count = samples.len() / 2;
    for i in 0..count {
        samples[i] = samples[2 * i + offset];
    }
    samples.truncate(count);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DecodeLimits;

    fn bounds() -> Bounds {
        DecodeLimits { pixels: 100, memory: 100, file_bytes: 100 }.of_pixels()
    }

    #[test]
    fn the_high_byte_of_wide_samples_is_kept() {
        let mut image = Image::black(1, 1, 1);
        for (high, bytes) in [
            (HighByte::First, [1, 9, 2, 9]),
            (HighByte::Native, [0x109u16, 0x209].map(u16::to_ne_bytes).concat().try_into().unwrap()),
        ] {
            let layout = Layout { format: "PNG", width: 2, height: 1, channels: 1, wide: Some(high) };
            read(&layout, &bounds(), 1, &mut Vec::new(), &mut image, |buffer| {
                buffer.copy_from_slice(&bytes);
                Ok(())
            })
            .unwrap();
            assert_eq!((image.width, image.pixels.as_slice()), (2, &[1, 2][..]), "{high:?}");
        }
    }

    #[test]
    fn pixels_that_a_decoder_leaves_out_are_black_and_not_those_of_the_image_before() {
        let mut image = Image::from_pixels(2, 1, 3, vec![7; 6]);
        let mut scratch = vec![7; 100];
        for channels in [3, 4] {
            let layout = Layout { format: "BMP", width: 2, height: 2, channels, wide: None };
            read(&layout, &bounds(), 3, &mut scratch, &mut image, |_| Ok(())).unwrap();
            assert_eq!(image.pixels, [0; 12]);
        }
    }

    #[test]
    fn memory_is_refused_before_it_is_taken() {
        let layout = Layout { format: "BMP", width: 10, height: 10, channels: 4, wide: None };
        let fill = |_: &mut [u8]| unreachable!("nothing may be decoded");
        let error = read(&layout, &bounds(), 3, &mut Vec::new(), &mut Image::black(1, 1, 3), fill).unwrap_err();
        assert!(matches!(error, DecodeError::TooMuchMemory { limit: 100, .. }), "{error}");
    }
}
