//! A JSON file of a few kilobytes beside weights: an index, a configuration.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::error::WeightsError;

/// The largest that is read. The index of a model with ten thousand tensors has one megabyte, a configuration that names
/// 21,841 classes three. A value of any kind takes up to sixteen times its bytes, and as much again while it grows.
const MAX_BYTES: u64 = 4 << 20;

/// Reads it; none where there is no such file. `wrong` makes the error of what cannot be meant.
pub(super) fn read<T: DeserializeOwned>(
    path: &Path,
    wrong: impl Fn(PathBuf, String) -> WeightsError,
) -> Result<Option<T>, WeightsError> {
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
    let damaged = |reason| wrong(path.to_owned(), reason);
    if bytes.len() as u64 > MAX_BYTES {
        return Err(damaged(format!("it has more than {MAX_BYTES} bytes")));
    }
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| damaged(format!("it is no such JSON as is expected: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn more_than_is_sensible_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let read = || read::<Value>(&path, |path, reason| WeightsError::Configuration { path, reason });
        assert!(read().unwrap().is_none());
        std::fs::write(&path, format!("[{}]", " ".repeat(MAX_BYTES as usize - 2))).unwrap();
        assert_eq!(read().unwrap(), Some(serde_json::json!([])));
        std::fs::write(&path, format!("[{}]", " ".repeat(MAX_BYTES as usize - 1))).unwrap();
        assert!(read().unwrap_err().to_string().contains("more than 4194304 bytes"));
    }
}
