//! A JSON file of a few kilobytes beside weights: an index, a configuration.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use serde_json::Value;

use super::error::WeightsError;

/// The largest that is read. The index of a model with ten thousand tensors has one megabyte.
const MAX_BYTES: u64 = 16 << 20;

/// Reads it; none where there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<Value>, WeightsError> {
    let io = |source| WeightsError::Io { path: path.to_owned(), source };
    let file = match File::open(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        opened => opened.map_err(io)?,
    };
    if !file.metadata().map_err(io)?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    let damaged = |reason| WeightsError::Damaged { path: path.to_owned(), reason };
    if bytes.len() as u64 > MAX_BYTES {
        return Err(damaged(format!("it has more than {MAX_BYTES} bytes")));
    }
    serde_json::from_slice(&bytes).map(Some).map_err(|error| damaged(format!("it is no JSON: {error}")))
}
