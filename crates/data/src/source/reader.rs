//! Reading image after image into the same memory.

use super::{ReadError, Source, Stored};
use crate::Image;
use crate::decode::{DecodeLimits, Decoder, Reduction};
use std::time::{Duration, Instant};

/// Reads images of any source, one after the other, and takes memory only while they grow. Each thread has its own.
pub struct Reader {
    limits: DecodeLimits,
    bytes: Vec<u8>,
    decoder: Decoder,
    fetching: Duration,
}

impl Reader {
    /// A reader of images with this number of channels: 3 for colour, 1 for grey.
    pub fn new(limits: DecodeLimits, channels: usize) -> Self {
        Self { limits, bytes: Vec::new(), decoder: Decoder::new(limits, channels), fetching: Duration::ZERO }
    }

    /// Reads image `index` into `image`, whose old content is lost, on success or not.
    pub fn read<S: Source + ?Sized>(&mut self, source: &S, index: usize, image: &mut Image) -> Result<(), ReadError> {
        self.read_reduced(source, index, &mut |_, _| Reduction::None, image).map(|_| ())
    }

    /// As [`Self::read`], but smaller where the format can do that for less: see [`Decoder::decode_reduced`].
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
        let start = Instant::now();
        let stored = source.fetch(index, &self.limits, &mut self.bytes);
        self.fetching = start.elapsed();
        let decoded = match stored? {
            Stored::File => self.decoder.decode_reduced(&self.bytes, reduce, image),
            Stored::Pixels { height, width, channels } => {
                self.decoder.convert(&self.bytes, (height, width, channels), image).map(|()| Reduction::None)
            }
        };
        decoded.map_err(|error| ReadError::Decode { name: source.name(index), source: error })
    }

    /// How long the last image took to come from its source; the rest was decoding.
    pub fn fetching(&self) -> Duration {
        self.fetching
    }
}
