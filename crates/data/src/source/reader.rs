//! Reading images one after another with reused buffers.

use super::{ReadError, Source, Stored};
use crate::Image;
use crate::decode::{DecodeLimits, Decoder, Orientation, Reduction};
use std::time::{Duration, Instant};

/// Bytes of the file buffer that are kept from image to image. A single huge file must not be paid for until the end.
const KEPT_BYTES: usize = 64 << 20;

/// Reads and decodes images of any source with buffers that are reused from image to image. One for each thread.
pub struct Reader {
    limits: DecodeLimits,
    bytes: Vec<u8>,
    decoder: Decoder,
    fetch_time: Duration,
}

impl Reader {
    /// A reader of upright images with this number of channels: 3 for colour, 1 for grey.
    pub fn new(limits: DecodeLimits, channels: usize) -> Self {
        Self { limits, bytes: Vec::new(), decoder: Decoder::new(limits, channels), fetch_time: Duration::ZERO }
    }

    /// The same with images of this orientation.
    pub fn oriented(self, orientation: Orientation) -> Self {
        Self { decoder: self.decoder.oriented(orientation), ..self }
    }

    /// Whether the last image was turned upright.
    pub fn turned(&self) -> bool {
        self.decoder.turned()
    }

    /// Reads image `index` into `image`, which is overwritten even if reading fails.
    pub fn read<S: Source + ?Sized>(&mut self, source: &S, index: usize, image: &mut Image) -> Result<(), ReadError> {
        self.read_reduced(source, index, &mut |_, _| Reduction::None, image).map(|_| ())
    }

    /// As [`Self::read`], at a reduced size where the format decodes that faster: see [`Decoder::decode_reduced`].
    pub fn read_reduced<S: Source + ?Sized>(
        &mut self,
        source: &S,
        index: usize,
        reduce: &mut dyn FnMut(usize, usize) -> Reduction,
        image: &mut Image,
    ) -> Result<Reduction, ReadError> {
        if index >= source.len() {
            return Err(ReadError::NoSuchImage { index, len: source.len() });
        }
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
        let start = Instant::now();
        let stored = source.fetch(index, &self.limits, &mut self.bytes);
        self.fetch_time = start.elapsed();
        let decoded = match stored? {
            Stored::File => self.decoder.decode_reduced(&self.bytes, reduce, image),
            Stored::Pixels { height, width, channels } => {
                self.decoder.convert(&self.bytes, (height, width, channels), image).map(|()| Reduction::None)
            }
        };
        decoded.map_err(|error| ReadError::Decode { name: source.name(index), source: error })
    }

    /// The time that fetching the bytes of the last image took, without decoding.
    pub(crate) fn fetch_time(&self) -> Duration {
        self.fetch_time
    }
}
