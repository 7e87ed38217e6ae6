//! A file that is there completely or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;

/// Replaces `path` by what `write` writes: under another name first, then synced and renamed. On failure `path` is what
/// it was and nothing is left behind.
pub(crate) fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".tmp");
    let unfinished = Path::new(&unfinished);
    let written = remove_if_there(unfinished)
        .and_then(|()| write_and_sync(unfinished, write))
        .and_then(|()| fs::rename(unfinished, path));
    if written.is_err() {
        // The first failure is the one to report; whether the leftover could be removed too changes nothing.
        _ = remove_if_there(unfinished);
    }
    written
}

fn write_and_sync(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(1 << 20, File::create_new(path)?);
    write(&mut writer)?;
    writer.flush()?;
    writer.get_ref().sync_all()
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("features.npy");
        fs::write(folder.path().join("features.npy.tmp"), "left by a crash").unwrap();
        replace(&path, |file| file.write_all(b"old")).unwrap();
        let failed = replace(&path, |file| file.write_all(b"new").and_then(|()| Err(io::Error::other("unplugged"))));
        assert_eq!(failed.unwrap_err().to_string(), "unplugged");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
