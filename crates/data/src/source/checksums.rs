//! Checksums of what is unpacked into the cache, block by block.
//!
//! A disk that fails or a program that went astray must not turn into other images, nor be blamed on the data. A block is
//! verified when something in it is read for the first time, so that reading in random order stays cheap: the most that
//! is read in vain is the rest of two blocks, once.

use flate2::Crc;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that share a checksum.
const BLOCK: u64 = 64 << 10;

/// The checksums of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BlockSums {
    bytes: u64,
    sums: Vec<u32>,
}

impl BlockSums {
    /// The length of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True where there is a checksum for every block.
    pub(super) fn is_consistent(&self) -> bool {
        self.sums.len() as u64 == self.bytes.div_ceil(BLOCK)
    }
}

/// Hands on what is written, and computes its checksums.
pub(super) struct SummingWriter<W> {
    inner: W,
    sums: BlockSums,
    block: Crc,
}

impl<W: Write> SummingWriter<W> {
    pub(super) fn new(inner: W) -> Self {
        Self { inner, sums: BlockSums::default(), block: Crc::new() }
    }

    /// The checksums of all that was written.
    pub(super) fn finish(mut self) -> (W, BlockSums) {
        if !self.sums.bytes.is_multiple_of(BLOCK) {
            self.sums.sums.push(self.block.sum());
        }
        (self.inner, self.sums)
    }
}

impl<W: Write> Write for SummingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        let mut rest = &bytes[..written];
        while !rest.is_empty() {
            let room = BLOCK - self.sums.bytes % BLOCK;
            let (part, after) = rest.split_at(rest.len().min(room as usize));
            self.block.update(part);
            self.sums.bytes += part.len() as u64;
            if self.sums.bytes.is_multiple_of(BLOCK) {
                self.sums.sums.push(self.block.sum());
                self.block.reset();
            }
            rest = after;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Why something of the cache cannot be used. It comes inside an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("what the cache holds of it is damaged")]
pub(super) struct Damaged;

/// True for the error of a damaged block, and for a file of the cache that is gone or too short. One that another machine
/// has removed from a network file system is a stale handle.
pub(super) fn is_damage(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Damaged>())
        || matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof | io::ErrorKind::StaleNetworkFileHandle
        )
}

/// A file's checksums, and which blocks have been verified.
pub(super) struct Verified {
    sums: Arc<BlockSums>,
    done: Vec<AtomicU64>,
}

impl Verified {
    pub(super) fn new(sums: Arc<BlockSums>) -> Self {
        let done = (0..sums.sums.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { sums, done }
    }

    /// Reads `count` bytes from `offset` into `bytes`, which is overwritten and whose allocation is reused.
    pub(super) fn read(&self, file: &File, offset: u64, count: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
        let end = offset.saturating_add(count);
        if file.metadata()?.len() != self.sums.bytes || end > self.sums.bytes {
            return Err(damaged());
        }
        let blocks = offset / BLOCK..end.div_ceil(BLOCK);
        if blocks.clone().all(|block| self.is_done(block)) || count == 0 {
            bytes.resize(count as usize, 0);
            return super::read_at::fill(file, bytes, offset);
        }
        let (from, to) = (blocks.start * BLOCK, (blocks.end * BLOCK).min(self.sums.bytes));
        bytes.resize((to - from) as usize, 0);
        super::read_at::fill(file, bytes, from)?;
        for (block, content) in blocks.zip(bytes.chunks(BLOCK as usize)) {
            let mut crc = Crc::new();
            crc.update(content);
            if self.sums.sums.get(block as usize) != Some(&crc.sum()) {
                return Err(damaged());
            }
            self.done[(block / 64) as usize].fetch_or(1 << (block % 64), Ordering::Relaxed);
        }
        let start = (offset - from) as usize;
        bytes.copy_within(start..start + count as usize, 0);
        bytes.truncate(count as usize);
        Ok(())
    }

    fn is_done(&self, block: u64) -> bool {
        let word = self.done.get((block / 64) as usize).map_or(0, |word| word.load(Ordering::Relaxed));
        word >> (block % 64) & 1 == 1
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Damaged)
}

/// A file of the cache to be read here and there, each block verified.
pub(super) struct VerifiedReader {
    file: File,
    verified: Verified,
    at: u64,
    buffer: Vec<u8>,
}

impl VerifiedReader {
    pub(super) fn new(file: File, sums: Arc<BlockSums>) -> Self {
        Self { file, verified: Verified::new(sums), at: 0, buffer: Vec::new() }
    }
}

impl Read for VerifiedReader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.verified.sums.bytes.saturating_sub(self.at);
        let count = left.min(bytes.len() as u64);
        self.verified.read(&self.file, self.at, count, &mut self.buffer)?;
        bytes[..count as usize].copy_from_slice(&self.buffer);
        self.at += count;
        Ok(count as usize)
    }
}

impl Seek for VerifiedReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.verified.sums.bytes.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_stale_handle_is_a_file_that_is_gone() {
        const ESTALE: i32 = 116;
        assert!(is_damage(&io::Error::from_raw_os_error(ESTALE)));
        assert!(!is_damage(&io::ErrorKind::PermissionDenied.into()));
    }

    #[test]
    fn every_damaged_byte_is_seen_by_whoever_reads_its_block_and_by_nobody_else() {
        let path = std::env::temp_dir().join(format!("data-sums-{}", std::process::id()));
        let content: Vec<u8> = (0..3 * BLOCK + 1000).map(|i| ((i * i) >> 7) as u8).collect();
        let mut writer = SummingWriter::new(File::create(&path).unwrap());
        content.chunks(7777).for_each(|part| writer.write_all(part).unwrap());
        let (_, sums) = writer.finish();
        assert!(sums.is_consistent() && sums.sums.len() == 4);
        let sums = Arc::new(sums);
        let mut bytes = Vec::new();
        for (damaged_at, read, expected) in [
            (None, 5..content.len() - 5, true),
            (Some(0), 70_000..80_000, true),
            (Some(0), 65_000..70_000, false),
            (Some(3 * BLOCK as usize + 999), 190_000..190_001, true),
            (Some(3 * BLOCK as usize + 999), 197_000..197_001, false),
        ] {
            let mut written = content.clone();
            damaged_at.into_iter().for_each(|at: usize| written[at] ^= 1);
            std::fs::write(&path, &written).unwrap();
            let verified = Verified::new(sums.clone());
            // Twice: the second time without verifying.
            for _ in 0..2 {
                let file = File::open(&path).unwrap();
                let result = verified.read(&file, read.start as u64, read.len() as u64, &mut bytes);
                assert_eq!(result.is_ok(), expected, "{damaged_at:?} {read:?}");
                assert!(!expected || bytes == content[read.clone()]);
            }
        }
        std::fs::remove_file(&path).unwrap();
    }
}
