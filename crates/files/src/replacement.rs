//! A file that is written over some time, and takes its place at the end.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::replace::{BUFFER, create_unfinished, remove_abandoned, remove_if_there, sync_folder_of};

/// A file on its way to its place: written under another name until [`Replacement::finish`], which syncs and renames it.
/// Dropped before that, nothing of it is left, and what was in its place still is.
///
/// ```
/// use std::io::Write;
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("rows.csv");
/// let mut file = files::Replacement::begin(&path)?;
/// file.write_all(b"first row\n")?;
/// assert!(!path.exists());
/// file.finish()?;
/// assert_eq!(std::fs::read(&path)?, b"first row\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Replacement {
    path: PathBuf,
    unfinished: PathBuf,
    /// Open, and with it locked, until it has its name.
    file: BufWriter<File>,
    is_finished: bool,
}

impl Replacement {
    /// Creates the file, beside its place and under an unfinished name.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let (file, unfinished) = create_unfinished(path)?;
        let file = BufWriter::with_capacity(BUFFER, file);
        Ok(Self { path: path.to_owned(), unfinished, file, is_finished: false })
    }

    /// What it is written through.
    pub(crate) fn writer(&mut self) -> &mut BufWriter<File> {
        &mut self.file
    }

    /// Where it is until it is finished.
    pub fn unfinished(&self) -> &Path {
        &self.unfinished
    }

    /// Puts all that was written so far onto the disk.
    pub fn sync(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }

    /// Syncs the file, gives it its name and removes what a process that was killed left of the same file.
    pub fn finish(mut self) -> io::Result<()> {
        self.sync()?;
        fs::rename(&self.unfinished, &self.path)?;
        self.is_finished = true;
        sync_folder_of(&self.path)?;
        remove_abandoned(&self.path);
        Ok(())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.is_finished {
            // The failure that led here is the one to report.
            _ = remove_if_there(&self.unfinished);
        }
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Replacement {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_not_finished_leaves_nothing_and_what_is_takes_the_old_ones_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.npy");
        fs::write(&path, b"old").unwrap();
        let mut file = Replacement::begin(&path).unwrap();
        file.write_all(b"half").unwrap();
        file.sync().unwrap();
        assert_eq!(fs::read(file.unfinished()).unwrap(), b"half");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        drop(file);
        assert_eq!((names(folder.path()), fs::read(&path).unwrap()), (vec!["f.npy".to_owned()], b"old".to_vec()));
        let mut file = Replacement::begin(&path).unwrap();
        file.write_all(b"?hole").unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(b"w").unwrap();
        file.finish().unwrap();
        assert_eq!((names(folder.path()), fs::read(&path).unwrap()), (vec!["f.npy".to_owned()], b"whole".to_vec()));
    }

    #[test]
    fn a_place_that_was_taken_by_a_folder_meanwhile_is_an_error_without_a_leftover() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.npy");
        let file = Replacement::begin(&path).unwrap();
        fs::create_dir(&path).unwrap();
        file.finish().unwrap_err();
        assert_eq!(names(folder.path()), ["f.npy"]);
    }
}
