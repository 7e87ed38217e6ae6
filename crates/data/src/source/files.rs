//! Images that are files of their own: reading one, and asking for sizes and contents of many.

use super::{ReadError, Stored, content, parallel};
use crate::decode::DecodeLimits;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Reads a whole file into memory that is used again. `name` is what to call it in an error.
pub(super) fn read(
    path: &Path,
    name: impl Fn() -> String,
    limits: &DecodeLimits,
    bytes: &mut Vec<u8>,
) -> Result<Stored, ReadError> {
    let io = |source| ReadError::Io { name: name(), source };
    let about = fs::metadata(path).map_err(io)?;
    if !about.is_file() {
        // Opening a pipe would wait for somebody to write to it.
        return Err(io(io::Error::new(io::ErrorKind::InvalidInput, "not a file")));
    }
    let limit = limits.file_bytes;
    // A size, where the system knows one, saves growing the buffer; the limit holds whether or not it is true.
    bytes.clear();
    bytes.reserve(about.len().min(limit) as usize + 1);
    File::open(path).and_then(|file| file.take(limit + 1).read_to_end(bytes)).map_err(io)?;
    if bytes.len() as u64 > limit {
        return Err(ReadError::FileTooLarge { name: name(), limit });
    }
    Ok(Stored::File)
}

/// Digests of what is in many files: see [`content`].
pub(super) fn contents(count: usize, path: impl Fn(usize) -> PathBuf + Sync) -> Vec<u64> {
    content::digests(count, |i| content_of(&path(i)))
}

/// The digest of what is in a file.
pub(super) fn content_of(path: &Path) -> io::Result<u64> {
    let about = fs::metadata(path)?;
    if !about.is_file() {
        // Opening a pipe would wait for somebody to write to it.
        return Err(io::ErrorKind::InvalidInput.into());
    }
    content::digest(&File::open(path)?, about.len())
}

/// The size of a file.
pub(super) fn size_of(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().filter(|about| about.is_file()).map(|about| about.len())
}

/// Sizes of many files. One that cannot be asked counts as size 0.
pub(super) fn sizes(count: usize, path: impl Fn(usize) -> PathBuf + Sync) -> Vec<u64> {
    const SHARE: usize = 512;
    parallel::map(count, SHARE, |i| fs::metadata(path(i)).map_or(0, |about| about.len()))
}
