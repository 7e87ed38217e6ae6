//! Writing into a run's folder: complete or not at all, with the run's own errors.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::error::RunError;

/// As [`files::replace`]. `size` is only for the message.
pub(super) fn replace(
    path: &Path,
    size: u64,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), RunError> {
    files::replace(path, write).map_err(|source| RunError::from_io("write", path, size, source))
}

/// Replaces `path` by these bytes.
pub(super) fn replace_with(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    replace(path, bytes.len() as u64, |file| file.write_all(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_named_as_such_with_the_size_that_was_needed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("big");
        let error = replace(&path, 4096, |_| File::create("/dev/full")?.write_all(&[0; 4096])).unwrap_err();
        assert!(matches!(error, RunError::DiskFull { needed: 4096, .. }), "{error}");
        assert!(error.to_string().contains("big: the disk is full; 4096 bytes were needed"), "{error}");
        assert!(!path.exists());
    }
}
