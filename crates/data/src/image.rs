//! The one image type: 8 bits a channel, channels interleaved, rows from the top.

use std::fmt;

/// An 8-bit image, height x width x channels, without padding between rows.
///
/// The fields are open because every operation of this crate is a loop over them. Whoever fills them by hand keeps
/// `pixels.len() == width * height * channels` and all three sizes above zero.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Bytes in a pixel: 3 for RGB.
    pub channels: usize,
    /// Bytes of all rows, top row first.
    pub pixels: Vec<u8>,
}

impl Image {
    /// A black image.
    ///
    /// # Panics
    /// When a size is zero.
    pub fn black(width: usize, height: usize, channels: usize) -> Self {
        Self::from_pixels(width, height, channels, vec![0; width * height * channels])
    }

    /// An image of these bytes.
    ///
    /// # Panics
    /// When a size is zero or the number of bytes is not their product: a mistake of the caller, never of a file.
    pub fn from_pixels(width: usize, height: usize, channels: usize, pixels: Vec<u8>) -> Self {
        assert!(width > 0 && height > 0 && channels > 0, "an image has no side of zero: {width}x{height}x{channels}");
        assert_eq!(pixels.len(), width * height * channels, "bytes of a {width}x{height}x{channels} image");
        Self { width, height, channels, pixels }
    }

    /// Changes the size and keeps the allocation. The pixels are unspecified until they are overwritten.
    ///
    /// # Panics
    /// When a size is zero.
    pub(crate) fn reshape(&mut self, width: usize, height: usize, channels: usize) {
        assert!(width > 0 && height > 0 && channels > 0, "an image has no side of zero: {width}x{height}x{channels}");
        (self.width, self.height, self.channels) = (width, height, channels);
        self.pixels.resize(width * height * channels, 0);
    }

    /// Bytes in a row.
    pub fn stride(&self) -> usize {
        self.width * self.channels
    }

    /// The bytes of row `y`.
    pub fn row(&self, y: usize) -> &[u8] {
        let stride = self.stride();
        &self.pixels[y * stride..(y + 1) * stride]
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({}x{}x{})", self.width, self.height, self.channels)
    }
}
