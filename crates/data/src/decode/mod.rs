//! Bytes of an image file to 8-bit RGB, as Pillow's `Image.open(..).convert("RGB")` gives it.
//!
//! The format is read from the content, not the name: data sets are full of PNGs called `.jpg`. Grey becomes three
//! equal channels, palettes are looked up, alpha is dropped without blending, animations give their first frame, and
//! neither EXIF orientation nor colour profiles are applied. A network of one channel sees Pillow's `convert("L")`
//! instead, and one of any other number what the file has.
//!
//! One deliberate difference: 16-bit greyscale keeps its high byte, as 16-bit colour does. Pillow saturates it, so
//! that almost every such image turns white.
//!
//! A file is untrusted: sizes are checked before memory is taken, and whatever a decoder does ends as a
//! [`DecodeError`].

mod bands;
mod channels;
mod jpeg;
mod others;

use crate::Image;
use crate::source::RGB;
use std::panic::{AssertUnwindSafe, catch_unwind};
use thiserror::Error;

/// Upper bounds on an image, checked before memory is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Width times height.
    pub pixels: u64,
    /// Bytes a decoder may hold at once, the image itself included. A progressive JPEG takes up to 12 a pixel.
    pub memory: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self { pixels: 1 << 28, memory: 4 << 30, file_bytes: 1 << 30 }
    }
}

impl DecodeLimits {
    fn check(&self, width: u64, height: u64) -> Result<(), DecodeError> {
        if width == 0 || height == 0 {
            return Err(DecodeError::Empty { width, height });
        }
        if width.saturating_mul(height) > self.pixels {
            return Err(DecodeError::TooManyPixels { width, height, limit: self.pixels });
        }
        Ok(())
    }
}

/// Why an image could not be decoded.
#[derive(Debug, Error)]
pub enum DecodeError {
    /// No bytes at all.
    #[error("the file is empty")]
    NoBytes,
    /// No known signature at the start.
    #[error("not an image in a known format ({}); it starts with {start:02x?}", FORMATS)]
    UnknownFormat {
        /// The first bytes.
        start: Vec<u8>,
    },
    /// The header promises more than the limits allow.
    #[error("{width} x {height} pixels are more than the limit of {limit}")]
    TooManyPixels {
        /// Width in the header.
        width: u64,
        /// Height in the header.
        height: u64,
        /// [`DecodeLimits::pixels`].
        limit: u64,
    },
    /// More memory would be needed than the limits allow.
    #[error("decoding this {format} takes more memory than allowed: {reason}")]
    TooMuchMemory {
        /// The format of the content.
        format: &'static str,
        /// What the decoder said.
        reason: String,
    },
    /// A side is zero.
    #[error("the header says {width} x {height} pixels: there is nothing to see")]
    Empty {
        /// Width in the header.
        width: u64,
        /// Height in the header.
        height: u64,
    },
    /// The data ends before the image does.
    #[error("the {format} data is cut short: was the file copied or downloaded completely?")]
    Truncated {
        /// The format of the content.
        format: &'static str,
    },
    /// The data contradicts itself.
    #[error("damaged {format} data: {reason}")]
    Damaged {
        /// The format of the content.
        format: &'static str,
        /// What the decoder said.
        reason: String,
    },
    /// Another number of channels than the network takes.
    #[error("{format} data with {have} channel(s) where {want} are wanted")]
    Channels {
        /// The format of the content.
        format: &'static str,
        /// Channels there are.
        have: usize,
        /// Channels wanted.
        want: usize,
    },
    /// A valid file of a kind that is not supported.
    #[error("{format} of an unsupported kind ({reason}); convert it to 8-bit PNG or JPEG")]
    Unsupported {
        /// The format of the content.
        format: &'static str,
        /// The feature.
        reason: String,
    },
}

/// The formats, as messages list them.
pub(crate) const FORMATS: &str = "JPEG, PNG, WebP, BMP, GIF, TIFF";

/// File name extensions of those formats, in lower case.
pub(crate) const EXTENSIONS: [&str; 10] = ["jpg", "jpeg", "jpe", "jfif", "png", "webp", "bmp", "gif", "tif", "tiff"];

/// The reduced sizes at which a JPEG can be decoded: its 8x8 blocks are turned into fewer pixels, which is faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Every pixel.
    None,
    /// Sides by two.
    Half,
    /// Sides by four.
    Quarter,
    /// Sides by eight.
    Eighth,
}

impl Reduction {
    /// All of them, strongest first.
    pub const ALL: [Reduction; 4] = [Reduction::Eighth, Reduction::Quarter, Reduction::Half, Reduction::None];

    /// What sides are divided by; the result is rounded up.
    pub fn divisor(self) -> usize {
        match self {
            Reduction::None => 1,
            Reduction::Half => 2,
            Reduction::Quarter => 4,
            Reduction::Eighth => 8,
        }
    }
}

/// Decodes files to images with a fixed number of channels. Reuses its buffers.
pub struct Decoder {
    limits: DecodeLimits,
    channels: usize,
    /// Pixels before their channels are converted.
    scratch: Vec<u8>,
}

impl Decoder {
    /// A decoder to images with this number of channels.
    pub fn new(limits: DecodeLimits, channels: usize) -> Self {
        Self { limits, channels, scratch: Vec::new() }
    }

    /// Decodes a whole file into `image`, which is overwritten.
    pub fn decode(&mut self, bytes: &[u8], image: &mut Image) -> Result<(), DecodeError> {
        self.decode_reduced(bytes, &mut |_, _| Reduction::None, image).map(|_| ())
    }

    /// As [`Self::decode`], at a reduced size where the format decodes that faster. `reduce` is called with height and width at
    /// most once, and returns the reduction that is acceptable. Returns the reduction that was applied.
    pub fn decode_reduced(
        &mut self,
        bytes: &[u8],
        reduce: &mut dyn FnMut(usize, usize) -> Reduction,
        image: &mut Image,
    ) -> Result<Reduction, DecodeError> {
        if bytes.is_empty() {
            return Err(DecodeError::NoBytes);
        }
        let Some(format) = Format::of(bytes) else {
            return Err(DecodeError::UnknownFormat { start: bytes[..bytes.len().min(8)].to_vec() });
        };
        let mut wanted = Reduction::None;
        let decoded = self.guarded(
            bytes,
            format,
            &mut |height, width| {
                wanted = reduce(height, width);
                wanted
            },
            image,
        );
        if decoded.is_ok() || wanted == Reduction::None {
            return decoded;
        }
        // The limits apply to the full size: whether an image is readable must not depend on the reduction.
        self.guarded(bytes, format, &mut |_, _| Reduction::None, image)
    }

    /// Decodes, and turns a panic into an error: decoders of damaged data are the code most likely to hit a bounds check.
    /// That costs one image, not the run.
    fn guarded(
        &mut self,
        bytes: &[u8],
        format: Format,
        reduce: &mut dyn FnMut(usize, usize) -> Reduction,
        image: &mut Image,
    ) -> Result<Reduction, DecodeError> {
        let Self { limits, channels, scratch } = self;
        let whole = |()| Reduction::None;
        let decoded = catch_unwind(AssertUnwindSafe(|| match format {
            Format::Jpeg => jpeg::decode(bytes, limits, *channels, reduce, scratch, image),
            Format::Other(_, image::ImageFormat::Tiff) if !matches!(channels, 1 | 3) => {
                bands::decode(bytes, limits, *channels, image).map(whole)
            }
            Format::Other(name, format) => others::decode(bytes, name, format, limits, *channels, image).map(whole),
        }));
        decoded.unwrap_or_else(|_| {
            Err(DecodeError::Damaged { format: format.name(), reason: "the decoder gave up on it".to_owned() })
        })
    }

    /// Brings pixels of `(height, width, channels)` to the number of channels that is wanted.
    pub fn convert(
        &mut self,
        pixels: &[u8],
        (height, width, have): (usize, usize, usize),
        image: &mut Image,
    ) -> Result<(), DecodeError> {
        self.limits.check(width as u64, height as u64)?;
        let size = [height, width, have].iter().try_fold(1usize, |n, &side| n.checked_mul(side));
        if size != Some(pixels.len()) {
            let reason = format!("{} bytes for {width} x {height} x {have}", pixels.len());
            return Err(DecodeError::Damaged { format: RAW, reason });
        }
        channels::convert(RAW, pixels, have, self.channels, &mut image.pixels)?;
        (image.width, image.height, image.channels) = (width, height, self.channels);
        Ok(())
    }
}

/// What to call pixels that come without a format around them.
const RAW: &str = "raw pixel";

/// Decodes a whole file to RGB.
pub fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<Image, DecodeError> {
    let mut image = Image::black(1, 1, RGB);
    Decoder::new(*limits, RGB).decode(bytes, &mut image)?;
    Ok(image)
}

/// A format by its signature.
#[derive(Clone, Copy)]
enum Format {
    Jpeg,
    Other(&'static str, image::ImageFormat),
}

impl Format {
    fn of(bytes: &[u8]) -> Option<Self> {
        use image::ImageFormat as F;
        let riff = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
        Some(match bytes {
            [0xff, 0xd8, 0xff, ..] => Format::Jpeg,
            [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Format::Other("PNG", F::Png),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Format::Other("GIF", F::Gif),
            [b'B', b'M', ..] => Format::Other("BMP", F::Bmp),
            [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => Format::Other("TIFF", F::Tiff),
            _ if riff => Format::Other("WebP", F::WebP),
            _ => return None,
        })
    }

    fn name(&self) -> &'static str {
        match self {
            Format::Jpeg => "JPEG",
            Format::Other(name, _) => name,
        }
    }
}
