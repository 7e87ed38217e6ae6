//! PyTorch's files: a pickle that describes tensors, and their elements beside it.
//!
//! Since version 1.6 both are entries of a zip archive; before, pickles stood one after another at the beginning of the file
//! and the elements behind them. Nothing in a pickle is executed: it is read as data, and the calls by which Python would make
//! a tensor are looked at.

mod legacy;
mod storage;
mod tensors;
mod zipped;

use std::fs::File;
use std::path::Path;

use super::error::WeightsError;
use super::file::WeightsFile;

/// The first bytes of a zip archive.
const ZIP: [u8; 4] = *b"PK\x03\x04";

/// Whether a file with these first bytes may be one.
pub(super) fn is_one(first: &[u8; 8]) -> bool {
    // A pickle begins with its protocol.
    first.starts_with(&ZIP) || matches!(first, [0x80, 2..=5, ..])
}

/// Opens such a file.
pub(super) fn open(path: &Path) -> Result<WeightsFile, WeightsError> {
    let io = |source| WeightsError::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    let mut first = [0; 4];
    std::io::Read::read_exact(&mut file, &mut first).map_err(io)?;
    match first == ZIP {
        true => zipped::open(path, file, length),
        false => legacy::open(path, file, length),
    }
}

/// The error for a file that contradicts itself.
fn damaged(path: &Path, reason: impl ToString) -> WeightsError {
    let reason = reason.to_string();
    // Some ask what this error asks anyway.
    let reason = reason.split(". Was it ").next().unwrap_or_default().to_owned();
    WeightsError::Damaged { path: path.to_owned(), reason }
}
