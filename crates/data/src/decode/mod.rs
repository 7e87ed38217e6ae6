//! Bytes of an image file to 8-bit RGB, as Pillow's `Image.open(..).convert("RGB")` gives it.
//!
//! The format is read from the content, not the name: data sets are full of PNGs called `.jpg`. Grey becomes three
//! equal channels, palettes are looked up, alpha is dropped without blending, animations give their first frame, and
//! colour profiles are not applied. A network of one channel sees Pillow's `convert("L")` instead, and one of any other
//! number what the file has. Photographs are turned upright as their EXIF data says (Pillow's `exif_transpose`), unless
//! [`Orientation::AsStored`] is asked for.
//!
//! One deliberate difference: 16-bit greyscale keeps its high byte, as 16-bit colour does. Pillow saturates it, so
//! that almost every such image turns white.
//!
//! A file is untrusted: sizes are checked before memory is taken, and whatever a decoder does ends as a
//! [`DecodeError`].

mod bands;
mod channels;
mod error;
mod exif;
mod jpeg;
mod labels;
mod limits;
mod orientation;
mod others;
mod png;
mod samples;
mod tiff_jpeg;
mod webp;

pub use error::DecodeError;
pub use labels::{decode_labels, decode_labels_into};
pub use limits::DecodeLimits;
pub use orientation::Orientation;

use crate::Image;
use crate::source::RGB;
use orientation::Turn;
use std::panic::{AssertUnwindSafe, catch_unwind};

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

/// Bytes of buffers that are kept from image to image: an image of 32 megapixels, and what only some images need.
const KEPT_IMAGE: usize = 96 << 20;
const KEPT_SCRATCH: usize = 24 << 20;

/// Decodes files to images with a fixed number of channels. Reuses its buffers.
pub struct Decoder {
    limits: DecodeLimits,
    channels: usize,
    orientation: Orientation,
    /// Whether the last image was turned.
    turned: bool,
    /// Pixels before their channels are converted, or before they are turned.
    scratch: Vec<u8>,
}

impl Decoder {
    /// A decoder to upright images with this number of channels.
    pub fn new(limits: DecodeLimits, channels: usize) -> Self {
        Self { limits, channels, orientation: Orientation::Upright, turned: false, scratch: Vec::new() }
    }

    /// The same with images of this orientation.
    pub fn oriented(self, orientation: Orientation) -> Self {
        Self { orientation, ..self }
    }

    /// Whether the last image was turned upright.
    pub fn turned(&self) -> bool {
        self.turned
    }

    /// Decodes a whole file into `image`, which is overwritten.
    pub fn decode(&mut self, bytes: &[u8], image: &mut Image) -> Result<(), DecodeError> {
        self.decode_reduced(bytes, &mut |_, _| Reduction::None, image).map(|_| ())
    }

    /// As [`Self::decode`], at a reduced size where the format decodes that faster. `reduce` is called with height and width
    /// of the upright image at most once, and returns the reduction that is acceptable. Returns the reduction that was applied.
    pub fn decode_reduced(
        &mut self,
        bytes: &[u8],
        reduce: &mut dyn FnMut(usize, usize) -> Reduction,
        image: &mut Image,
    ) -> Result<Reduction, DecodeError> {
        self.turned = false;
        // A single huge image must not be paid for until the end of the run.
        for (buffer, kept) in [(&mut self.scratch, KEPT_SCRATCH), (&mut image.pixels, KEPT_IMAGE)] {
            if buffer.capacity() > kept {
                *buffer = Vec::new();
            }
        }
        if bytes.is_empty() {
            return Err(DecodeError::NoBytes);
        }
        let Some(format) = Format::of(bytes) else {
            return Err(DecodeError::UnknownFormat { start: bytes[..bytes.len().min(8)].to_vec() });
        };
        let turn = match self.orientation {
            Orientation::Upright => format.turn(bytes),
            Orientation::AsStored => Turn::NONE,
        };
        let mut wanted = Reduction::None;
        let mut reduction = self.guarded(
            bytes,
            format,
            turn,
            &mut |height, width| {
                wanted = if turn.swaps_sides() { reduce(width, height) } else { reduce(height, width) };
                wanted
            },
            image,
        );
        if reduction.is_err() && wanted != Reduction::None {
            // The limits apply to the full size: whether an image is readable must not depend on the reduction.
            reduction = self.guarded(bytes, format, turn, &mut |_, _| Reduction::None, image);
        }
        self.turned = turn != Turn::NONE && reduction.is_ok();
        reduction
    }

    /// Decodes, and turns a panic into an error: decoders of damaged data are the code most likely to hit a bounds check.
    /// That costs one image, not the run.
    fn guarded(
        &mut self,
        bytes: &[u8],
        format: Format,
        turn: Turn,
        reduce: &mut dyn FnMut(usize, usize) -> Reduction,
        image: &mut Image,
    ) -> Result<Reduction, DecodeError> {
        let Self { limits, channels: want, scratch, .. } = self;
        let bounds = &match format {
            Format::Jpeg => limits.of_jpeg(bytes.len()),
            _ => limits.of_file(bytes.len()),
        };
        let whole = |()| Reduction::None;
        let decoded = catch_unwind(AssertUnwindSafe(|| {
            if let Format::Other(_, image::ImageFormat::Tiff) = format {
                tiff_jpeg::check(bytes)?;
            }
            let reduction = match format {
                Format::Jpeg => jpeg::decode(bytes, bounds, *want, reduce, scratch, image)?,
                Format::Png => png::decode(bytes, bounds, *want, scratch, image).map(whole)?,
                Format::Other(_, image::ImageFormat::Tiff) if !matches!(want, 1 | 3) => {
                    bands::decode(bytes, bounds, *want, image).map(whole)?
                }
                Format::Other(name, kind) => {
                    others::decode(bytes, name, kind, bounds, *want, scratch, image).map(whole)?
                }
            };
            turn.apply(format.name(), image, scratch)?;
            Ok(reduction)
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
        self.turned = false;
        self.limits.of_pixels().check(width as u64, height as u64)?;
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

/// Empties a buffer and makes room in it. Memory that the system does not have costs one image, not the run.
fn make_room(format: &'static str, buffer: &mut Vec<u8>, bytes: usize) -> Result<(), DecodeError> {
    buffer.clear();
    buffer.try_reserve_exact(bytes).map_err(|error| DecodeError::NoMemory { format, reason: error.to_string() })
}

/// What to call pixels that come without a format around them.
const RAW: &str = "raw pixel";

/// Decodes a whole file to RGB.
pub fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<Image, DecodeError> {
    let mut image = Image::black(1, 1, RGB);
    Decoder::new(*limits, RGB).decode(bytes, &mut image)?;
    Ok(image)
}

/// The format of a file that begins so, if it is one that is read; 32 bytes tell.
pub(crate) fn format_of(start: &[u8]) -> Option<&'static str> {
    let is_bmp_header = || matches!(start.get(14..18), Some([12 | 40 | 52 | 56 | 64 | 108 | 124, 0, 0, 0]));
    Format::of(start)
        // Many a text begins with the two letters of a BMP.
        .filter(|format| !matches!(format, Format::Other(_, image::ImageFormat::Bmp)) || is_bmp_header())
        .map(|format| format.name())
}

/// A format by its signature.
#[derive(Clone, Copy)]
enum Format {
    Jpeg,
    Png,
    Other(&'static str, image::ImageFormat),
}

impl Format {
    fn of(bytes: &[u8]) -> Option<Self> {
        use image::ImageFormat as F;
        let riff = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
        Some(match bytes {
            [0xff, 0xd8, 0xff, ..] => Format::Jpeg,
            [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Format::Png,
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
            Format::Png => "PNG",
            Format::Other(name, _) => name,
        }
    }
    /// How the file says that it has to be turned to be upright.
    fn turn(&self, bytes: &[u8]) -> Turn {
        let exif = match self {
            Format::Jpeg => exif::of_jpeg(bytes),
            Format::Png => exif::of_png(bytes),
            Format::Other(_, image::ImageFormat::WebP) => webp::exif(bytes),
            // EXIF data is the beginning of a TIFF file.
            Format::Other(_, image::ImageFormat::Tiff) => Some(bytes),
            Format::Other(..) => None,
        };
        exif.and_then(exif::orientation).map_or(Turn::NONE, Turn::of_exif)
    }
}
