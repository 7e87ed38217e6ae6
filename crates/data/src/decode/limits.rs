//! How much a file may ask for.
//!
//! A header of a few bytes can claim any size, and good compression turns a small file into a large image. What one file may
//! take therefore grows with the file: 2^26 pixels (a photograph of 67 megapixels) in 480 MiB are always allowed, more where
//! the file has a byte for every 16 pixels, which is far below what photographs have. So a file of 5 MB ends as an image or as
//! an error within 512 MiB, and in about two seconds on one core.
//!
//! A JPEG is the exception. A progressive one takes up to twelve bytes for a pixel, and telephones write 50 megapixels into few
//! megabytes: with more than 2 MB it may take 768 MiB, which are 67 megapixels of that kind.

use super::DecodeError;

/// Pixels that every file may have.
const PIXELS_OF_ANY: u64 = 1 << 26;
/// Pixels for each byte of the file, above that. The smallest photographs have about three.
const PIXELS_PER_BYTE: u64 = 16;
/// Bytes that decoding any file may take.
const MEMORY_OF_ANY: u64 = 480 << 20;
/// Bytes of memory for each byte of the file, above that: enough for a progressive JPEG, which takes twelve bytes for a pixel,
/// of one bit a pixel.
const MEMORY_PER_BYTE: u64 = 96;
/// The same for a JPEG, up to the largest that every file may hold: a pixel then has three eighths of a bit or more.
const MEMORY_PER_BYTE_OF_JPEG: u64 = 256;
const MEMORY_OF_ANY_JPEG: u64 = 12 * PIXELS_OF_ANY;

/// Pixels of a side. Filters that resize an image take memory for each of them, and time for each row however short.
const SIDE: u64 = 1 << 20;

/// Upper bounds on an image, whatever the size of its file. They are checked before memory is allocated.
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
    /// The bounds on a file of this many bytes.
    pub(super) fn of_file(&self, bytes: usize) -> Bounds {
        let bytes = bytes as u64;
        Bounds {
            pixels: self.pixels.min(PIXELS_OF_ANY.max(bytes.saturating_mul(PIXELS_PER_BYTE))),
            memory: self.memory.min(MEMORY_OF_ANY.max(bytes.saturating_mul(MEMORY_PER_BYTE))),
            taken: 0,
        }
    }

    /// The bounds on a JPEG of this many bytes.
    pub(super) fn of_jpeg(&self, bytes: usize) -> Bounds {
        let bounds = self.of_file(bytes);
        let more = MEMORY_OF_ANY_JPEG.min((bytes as u64).saturating_mul(MEMORY_PER_BYTE_OF_JPEG));
        Bounds { memory: self.memory.min(bounds.memory.max(more)), ..bounds }
    }

    /// The bounds on pixels that are stored as they are: nothing can grow.
    pub(super) fn of_pixels(&self) -> Bounds {
        Bounds { pixels: self.pixels, memory: self.memory, taken: 0 }
    }
}

/// The bounds on one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Width times height.
    pub pixels: u64,
    /// Bytes of memory, the image itself included.
    pub memory: u64,
    /// Of these, what is spoken for.
    taken: u64,
}

impl Bounds {
    /// Refuses a size that is nothing or too much.
    pub fn check(&self, width: u64, height: u64) -> Result<(), DecodeError> {
        if width == 0 || height == 0 {
            return Err(DecodeError::Empty { width, height });
        }
        if width.saturating_mul(height) > self.pixels {
            return Err(DecodeError::TooManyPixels { width, height, limit: self.pixels });
        }
        if width.max(height) > SIDE {
            return Err(DecodeError::TooLong { width, height, limit: SIDE });
        }
        Ok(())
    }

    /// Bytes that are not spoken for.
    pub fn left(&self) -> u64 {
        self.memory - self.taken
    }

    /// These bounds with `need` bytes more spoken for; an error where there are not as many.
    pub fn take(&self, format: &'static str, need: u64) -> Result<Bounds, DecodeError> {
        let taken = self.taken.saturating_add(need);
        if taken > self.memory {
            let reason = format!("it needs {}", text::bytes(taken));
            return Err(DecodeError::TooMuchMemory { format, limit: self.memory, reason });
        }
        Ok(Bounds { taken, ..*self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_may_hold_67_megapixels_and_a_large_one_more() {
        let limits = DecodeLimits::default();
        assert_eq!(limits.of_file(40), Bounds { pixels: 1 << 26, memory: 480 << 20, taken: 0 });
        assert!(limits.of_file(5_000_000).memory < 500 << 20);
        assert_eq!(limits.of_file(10_000_000).pixels, 160_000_000);
        assert_eq!(limits.of_file(1 << 30), Bounds { pixels: 1 << 28, memory: 4 << 30, taken: 0 });
        let few = DecodeLimits { pixels: 9, memory: 99, ..limits };
        assert_eq!(few.of_file(1 << 30), few.of_pixels());
    }

    #[test]
    fn a_progressive_jpeg_of_50_megapixels_needs_three_megabytes() {
        let limits = DecodeLimits::default();
        assert_eq!(limits.of_jpeg(1_900_000), limits.of_file(1_900_000));
        assert!(limits.of_jpeg(3_000_000).take("JPEG", 12 * 50_000_000).is_ok());
        assert_eq!(limits.of_jpeg(5_000_000).memory, 768 << 20);
        assert_eq!(limits.of_jpeg(50_000_000), limits.of_file(50_000_000));
        let few = DecodeLimits { memory: 99, ..limits };
        assert_eq!(few.of_jpeg(5_000_000).memory, 99);
    }

    #[test]
    fn a_side_of_a_million_pixels_is_allowed_and_of_two_million_not() {
        let bounds = DecodeLimits::default().of_file(1);
        assert!(bounds.check(1, 1_000_000).is_ok());
        let error = bounds.check(2_000_000, 1).unwrap_err().to_string();
        assert!(error.contains("2000000 x 1 pixels") && error.contains("1,048,576"), "{error}");
    }

    #[test]
    fn memory_that_is_not_there_is_refused_with_the_need_and_the_bound() {
        let limits = DecodeLimits { memory: 5 << 20, ..DecodeLimits::default() };
        let bounds = limits.of_pixels().take("GIF", 1 << 20).unwrap();
        assert_eq!(bounds.left(), 4 << 20);
        let error = bounds.take("GIF", 6 << 20).unwrap_err().to_string();
        assert!(error.contains("7.0 MiB") && error.contains("5.0 MiB"), "{error}");
    }
}
