//! Files that a parser unpacks into, in the cache folder.
//!
//! Formats without cheap random access (gzip, parquet) are unpacked once into a plain file. It gets its final name when
//! the whole index is built; a build that fails or is killed leaves nothing that a later one would take for complete.
//! What a killed one leaves, the next one removes: see [`::files::remove_if_abandoned`].

use super::OpenError;
use super::checksums::{BlockSums, SummingWriter};
use super::preparing::{Preparation, Watch};
use super::stamp::FAMILY_DIGITS;
use ::files::{create_unfinished, finished_name, remove_if_abandoned};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Entries that were not used for so long are removed.
const UNUSED: Duration = Duration::from_secs(90 * 24 * 3600);

/// The same, for entries of another file under a path that has a new one.
const SUPERSEDED: Duration = Duration::from_secs(7 * 24 * 3600);

/// Large writes: an unpacked data set is many gigabytes.
const BUFFER: usize = 1 << 20;

/// A file that is being unpacked.
pub(super) type Unpacked = SummingWriter<BufWriter<File>>;

/// The files that are unpacked while one index is built.
pub(super) struct Unpacking {
    folder: PathBuf,
    /// The names of the files begin with this: slot and version, see [`super::stamp`].
    stem: String,
    /// The part of `stem` that does not change with the content of the data.
    slot: String,
    /// Files being written, by number.
    temporary: Vec<PathBuf>,
    /// The complete ones, with their checksums. They stay open, and so locked, until they have their final names.
    complete: Vec<(File, BlockSums)>,
    needed: Option<u64>,
    kept: bool,
    watch: Watch,
}

impl Unpacking {
    pub(super) fn new(folder: PathBuf, stem: String, slot: String, watch: Watch) -> Self {
        Self { folder, stem, slot, temporary: Vec::new(), complete: Vec::new(), needed: None, kept: false, watch }
    }

    /// Sets the expected size, for the message when the disk is full and for those who wait.
    pub(super) fn expect_bytes(&mut self, bytes: u64) {
        self.needed = Some(bytes);
        self.watch.expect(Preparation::Unpacking, bytes);
    }

    /// So many of those bytes more are done.
    pub(super) fn advance(&self, bytes: u64) {
        self.watch.advance(Preparation::Unpacking, bytes);
    }

    /// Creates a file, and returns it with the final path to put into the table. To be completed by
    /// [`Unpacking::finish`] before the next one is created.
    pub(super) fn create(&mut self) -> Result<(Unpacked, PathBuf), OpenError> {
        let number = self.temporary.len();
        if number == 0 {
            fs::create_dir_all(&self.folder).map_err(|error| self.failed(error))?;
            remove_unused(&self.folder);
        }
        let (file, path) = create_unfinished(&self.path(number)).map_err(|error| self.failed(error))?;
        self.temporary.push(path);
        Ok((SummingWriter::new(BufWriter::with_capacity(BUFFER, file)), self.path(number)))
    }

    /// Flushes a file to the disk.
    pub(super) fn finish(&mut self, writer: Unpacked) -> Result<(), OpenError> {
        let (writer, sums) = writer.finish();
        let file = writer.into_inner().map_err(io::IntoInnerError::into_error);
        let file = file.and_then(|file| file.sync_all().map(|()| file)).map_err(|error| self.failed(error))?;
        self.complete.push((file, sums));
        Ok(())
    }

    /// The error for a failed write, with the bytes written so far.
    pub(super) fn failed(&self, source: io::Error) -> OpenError {
        let written = self.temporary.iter().filter_map(|path| fs::metadata(path).ok()).map(|m| m.len()).sum();
        OpenError::Cache { folder: self.folder.clone(), written, needed: self.needed, source }
    }

    /// The final path of file `number`.
    pub(super) fn path(&self, number: usize) -> PathBuf {
        self.folder.join(format!("{}-{number}.data", self.stem))
    }

    /// The final paths of all files.
    pub(super) fn paths(&self) -> impl Iterator<Item = PathBuf> {
        (0..self.temporary.len()).map(|number| self.path(number))
    }

    /// Renames all files to their final names and returns their checksums.
    pub(super) fn keep(&mut self) -> Result<Vec<BlockSums>, OpenError> {
        let rename = |(number, from): (usize, &PathBuf)| fs::rename(from, self.path(number));
        self.temporary.iter().enumerate().try_for_each(rename).map_err(|error| self.failed(error))?;
        self.kept = true;
        Ok(std::mem::take(&mut self.complete).into_iter().map(|(_locked, sums)| sums).collect())
    }

    /// Removes files that were unpacked from earlier versions of the same data. What another file under the same path was
    /// unpacked to may be in use on another machine, and stays until nobody has used it for [`SUPERSEDED`].
    pub(super) fn remove_older(&self) {
        let family = &self.slot[..self.slot.len().min(FAMILY_DIGITS)];
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some((name, (slot, ending))) = name.to_str().and_then(|name| Some((name, cache_name(name)?))) else {
                continue;
            };
            let is_older = if slot == self.slot {
                ending == "data" && !name.starts_with(&self.stem)
            } else {
                slot.starts_with(family) && ending != "tmp" && is_unused(&self.folder, slot, &entry.path(), SUPERSEDED)
            };
            if is_older {
                _ = fs::remove_file(entry.path());
            }
        }
    }
}

impl Drop for Unpacking {
    fn drop(&mut self) {
        if !self.kept {
            self.temporary.iter().for_each(|path| _ = fs::remove_file(path));
        }
    }
}

/// Removes leftovers of killed processes and entries that were not used for long. Files with other names are not
/// touched: the folder may be shared with something else.
pub(super) fn remove_unused(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some((slot, ending)) = name.to_str().and_then(cache_name) else { continue };
        let path = entry.path();
        if ending == "tmp" {
            _ = remove_if_abandoned(&path);
            continue;
        }
        if is_unused(folder, slot, &path, UNUSED) {
            _ = fs::remove_file(path);
        }
    }
}

/// Whether a file of an entry was not used for so long. An index is touched at every use; the files that were unpacked
/// for it are not.
fn is_unused(folder: &Path, slot: &str, path: &Path, time: Duration) -> bool {
    let age = |path: &Path| fs::metadata(path).and_then(|about| about.modified()).ok()?.elapsed().ok();
    let index = folder.join(format!("{slot}.index"));
    age(path) > Some(time) && (!index.exists() || age(&index) > Some(time))
}

/// The slot and the extension of a cache file (`tmp` for an unfinished one); none for any other name.
fn cache_name(name: &str) -> Option<(&str, &str)> {
    if let Some(finished) = finished_name(name) {
        return cache_name(finished).map(|(slot, _)| (slot, "tmp"));
    }
    let (slot, rest) = name.split_at_checked(16)?;
    let (middle, ending) = rest.rsplit_once('.')?;
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let known = match ending {
        "index" => middle.is_empty(),
        "data" => middle.starts_with('-') && middle.split('-').all(is_hex),
        _ => false,
    };
    (is_hex(slot) && known).then_some((slot, ending))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn only_files_of_our_own_that_nobody_uses_are_removed() {
        let folder = std::env::temp_dir().join(format!("data-unused-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (a, b, c) = ("00112233445566aa", "00112233445566bb", "00112233445566cc");
        let month = Duration::from_secs(30 * 24 * 3600);
        let write = |name: &str, age: Duration| {
            let file = File::create(folder.join(name)).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
            name.to_owned()
        };
        let unfinished = |name: &str| ::files::unfinished_path(Path::new(name)).to_str().unwrap().to_owned();
        let (written, in_work) = create_unfinished(&folder.join(format!("{a}-{a}-0.data"))).unwrap();
        written.set_modified(SystemTime::now() - 4 * month).unwrap();
        let mut kept = vec![
            write("thesis.tmp", 4 * month),
            write("results.index", 4 * month),
            write("00112233445566aa-notes.data", 4 * month),
            write("00112233445566aa.tmp.txt", 4 * month),
            // Used a month ago, unpacked long before.
            write(&format!("{a}.index"), month),
            write(&format!("{a}-{b}-0.data"), 4 * month),
            // Nothing written for months, but its owner lives.
            in_work.file_name().unwrap().to_str().unwrap().to_owned(),
        ];
        write(&format!("{b}.index"), 4 * month);
        write(&format!("{b}-{a}-12.data"), 4 * month);
        write(&format!("{c}-{a}-0.data"), 4 * month);
        write(&unfinished(&format!("{a}-{b}-0.data")), month);
        write(&unfinished(&format!("{a}.index")), Duration::ZERO);
        remove_unused(&folder);
        let mut left: Vec<_> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        fs::remove_dir_all(&folder).unwrap();
        kept.sort();
        left.sort();
        assert_eq!(left, kept);
    }
}
