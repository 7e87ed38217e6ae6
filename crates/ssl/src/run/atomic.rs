//! Files that are there completely or not at all, also after a power loss.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::error::RunError;

/// How an unfinished file's name ends.
pub(super) const UNFINISHED: &str = ".tmp";

/// Replaces `path` by what `write` writes: under another name first, then synced, renamed, and the folder synced.
///
/// On failure `path` is what it was and the unfinished file is gone, so that a full disk has its space back.
/// `size` is only for the message.
pub(super) fn replace(
    path: &Path,
    size: u64,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), RunError> {
    let unfinished = unfinished(path);
    let written = remove_if_there(&unfinished)
        .and_then(|()| write_and_sync(&unfinished, write))
        .and_then(|()| fs::rename(&unfinished, path))
        .and_then(|()| sync_folder_of(path));
    written.map_err(|source| {
        // The first failure is the one to report; whether the leftover could be removed too changes nothing.
        let _ = remove_if_there(&unfinished);
        RunError::from_io("write", path, size, source)
    })
}

fn write_and_sync(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(1 << 20, File::create_new(path)?);
    write(&mut writer)?;
    writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// The name under which a file is written.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    name.into()
}

/// Removes a file; that there is none is as good.
pub(super) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes the names in the folder of `path` durable: without this a power loss may undo a rename.
pub(super) fn sync_folder_of(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }
    // Other systems cannot open a folder as a file, and order their renames themselves.
    #[cfg(not(unix))]
    {
        let _ = path;
        Ok(())
    }
}

/// Replaces `path` by these bytes.
pub(super) fn replace_with(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    replace(path, bytes.len() as u64, |file| file.write_all(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_leftover() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        replace_with(&path, b"old").unwrap();
        let error = replace(&path, 3, |file| {
            file.write_all(b"new")?;
            Err(io::Error::other("pulled the plug"))
        });
        assert!(error.unwrap_err().to_string().contains("pulled the plug"));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_leftover_of_a_crash_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        fs::write(unfinished(&path), "half a fi").unwrap();
        replace_with(&path, b"whole").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

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
