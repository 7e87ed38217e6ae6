//! Gzip, read without trust: several members in a row, checksums compared, bombs refused.

use flate2::read::MultiGzDecoder;
use std::io::{self, BufReader, Read};

/// What every gzip file starts with.
pub(super) const SIGNATURE: [u8; 2] = [0x1f, 0x8b];

/// Bytes that may come out of anything.
const FREE: u64 = 64 << 20;
/// Beyond those, how many times its size a file may grow. Tar archives of tiny files reach 50, images about 1.
const RATIO: u64 = 200;

/// Unpacks a gzip file.
pub(super) struct Gunzip<R: Read> {
    decoder: MultiGzDecoder<BufReader<Counting<R>>>,
    unpacked: u64,
}

/// Counts what goes through.
struct Counting<R> {
    input: R,
    bytes: u64,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.bytes += count as u64;
        Ok(count)
    }
}

impl<R: Read> Gunzip<R> {
    /// Unpacks what `input` gives.
    pub(super) fn new(input: R) -> Self {
        let input = BufReader::with_capacity(128 << 10, Counting { input, bytes: 0 });
        Self { decoder: MultiGzDecoder::new(input), unpacked: 0 }
    }
}

impl<R: Read> Read for Gunzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.decoder.read(buffer)?;
        self.unpacked += count as u64;
        let packed = self.decoder.get_ref().get_ref().bytes;
        if self.unpacked > FREE && self.unpacked / RATIO > packed {
            let problem = format!("{packed} bytes unpack to more than {} : this is no data set", self.unpacked);
            return Err(io::Error::other(problem));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn unpack(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        Gunzip::new(bytes).read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn members_in_a_row_are_one_text() {
        assert_eq!(unpack(&[packed(b"one "), packed(b"two")].concat()).unwrap(), b"one two");
    }

    #[test]
    fn a_flipped_bit_and_a_missing_end_are_errors() {
        let good = packed(&(0..200u8).collect::<Vec<_>>());
        assert!(unpack(&good[..good.len() - 9]).is_err());
        let mut damaged = good.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 4;
        assert!(unpack(&damaged).is_err());
    }

    #[test]
    fn a_bomb_is_refused_long_before_its_end() {
        let bomb = packed(&vec![0; 100 << 20]);
        let mut input = Gunzip::new(&bomb[..]);
        let error = io::copy(&mut input, &mut io::sink()).unwrap_err();
        assert!(error.to_string().contains("unpack to more than"), "{error}");
        assert!(input.unpacked < 65 << 20);
        // Within the free part anything goes.
        assert_eq!(unpack(&packed(&vec![0; 32 << 20])).unwrap().len(), 32 << 20);
    }
}
