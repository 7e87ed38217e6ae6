//! Gzip, read without trust: several members in a row, checksums compared, bombs refused.

use super::OpenError;
use super::unpacking::Unpacking;
use flate2::bufread::GzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// What every gzip file starts with.
pub(super) const SIGNATURE: [u8; 2] = [0x1f, 0x8b];

/// Bytes that may come out of anything.
const FREE: u64 = 64 << 20;
/// Beyond those, how many times its size a file may grow. Tar archives of tiny files reach 50, images about 1.
const RATIO: u64 = 200;

/// Unpacks a gzip file.
pub(super) struct Gunzip<R: Read> {
    /// Of the member that is being read. There is always one.
    decoder: Option<GzDecoder<BufReader<Counting<R>>>>,
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
        Self { decoder: Some(GzDecoder::new(input)), unpacked: 0 }
    }

    /// Packed bytes that were taken so far.
    fn packed(&self) -> u64 {
        self.decoder.as_ref().map_or(0, |decoder| decoder.get_ref().get_ref().bytes)
    }
}

impl<R: Read> Read for Gunzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(decoder) = &mut self.decoder else { return Ok(0) };
            let count = decoder.read(buffer)?;
            if count == 0 && !buffer.is_empty() && has_more(decoder.get_mut())? {
                self.decoder = self.decoder.take().map(|decoder| GzDecoder::new(decoder.into_inner()));
                continue;
            }
            self.unpacked += count as u64;
            let packed = decoder.get_ref().get_ref().bytes;
            if self.unpacked > FREE && self.unpacked / RATIO > packed {
                let problem = format!("{packed} bytes unpack to more than {} : this is no data set", self.unpacked);
                return Err(io::Error::other(problem));
            }
            return Ok(count);
        }
    }
}

/// Whether another member follows. Zeros, which fill a file up to the block size of a tape, do not count.
fn has_more(input: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = input.fill_buf()?;
        let (zeros, all) = (bytes.iter().take_while(|&&byte| byte == 0).count(), bytes.len());
        input.consume(zeros);
        if zeros < all || all == 0 {
            return Ok(all > 0);
        }
    }
}

/// Unpacks a file into the cache folder. Returns where it will be.
pub(super) fn unpack(file: &Path, unpacking: &mut Unpacking) -> Result<PathBuf, OpenError> {
    let failed = |source| OpenError::Io { path: file.to_path_buf(), source };
    let input = File::open(file).map_err(failed)?;
    // Images hardly shrink, so the packed size is a fair guess.
    unpacking.expect_bytes(input.metadata().map_err(failed)?.len());
    let mut input = Gunzip::new(input);
    let (mut writer, place) = unpacking.create()?;
    let (mut buffer, mut taken) = (vec![0; 256 << 10], 0);
    loop {
        let count = match input.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(refused(file, error)),
        };
        writer.write_all(&buffer[..count]).map_err(|error| unpacking.failed(error))?;
        unpacking.advance(input.packed() - taken);
        taken = input.packed();
    }
    unpacking.finish(writer)?;
    Ok(place)
}

/// The error to report when unpacking failed. What the system refuses has a number; all else is the fault of the data.
pub(super) fn refused(path: &Path, source: io::Error) -> OpenError {
    let path = path.to_path_buf();
    if source.raw_os_error().is_some() {
        return OpenError::Io { path, source };
    }
    let problem = format!("damaged gzip data: {source}. Was the file copied or downloaded completely?");
    OpenError::Format { path, problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};

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
    fn zeros_after_a_member_are_passed_over_and_anything_else_is_damage() {
        let filled = [packed(b"one "), vec![0; 300_000], packed(b"two"), vec![0; 700]].concat();
        assert_eq!(unpack(&filled).unwrap(), b"one two");
        assert!(unpack(&[packed(b"one"), b"\0\0garbage".to_vec()].concat()).is_err());
        assert!(unpack(&[]).is_err(), "nothing is no gzip file");
    }

    #[test]
    fn what_the_system_refuses_is_not_called_damage() {
        let refused = |error: io::Error| refused(Path::new("x.gz"), error).to_string();
        assert!(!refused(io::Error::from_raw_os_error(5)).contains("damaged"));
        assert!(refused(unpack(b"\x1f\x8b\x08").unwrap_err()).contains("damaged gzip data"));
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
