//! Images that are ranges of bytes in files: members of a tar, records of a CIFAR or IDX file, rows of an unpacked
//! table.
//!
//! A parser's whole work is to fill a [`Table`]. Reading is the same for all: open the file, read the range.

use super::{Fingerprint, ReadError, Source, Stored, content, describe};
use crate::decode::DecodeLimits;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use text::printable;

/// Where an image's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Range {
    /// Number of its file in [`Table::files`].
    pub file: u32,
    /// First byte.
    pub offset: u64,
    /// Number of bytes. An image that is missing (a null in a table) has none, and reads as an empty file.
    pub bytes: u64,
}

/// What every range of a table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Content {
    /// An image file.
    File,
    /// Pixels, channels interleaved.
    Pixels { height: usize, width: usize, channels: usize },
    /// Pixels, one channel after the other.
    Planes { height: usize, width: usize, channels: usize },
}

/// Many short texts in one piece of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Names {
    text: String,
    ends: Vec<u64>,
}

impl Names {
    /// Adds a name.
    pub(super) fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len() as u64);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Name number `index`, where there is one.
    pub(super) fn get(&self, index: usize) -> Option<&str> {
        let start = if index == 0 { 0 } else { *self.ends.get(index - 1)? };
        self.text.get(start as usize..*self.ends.get(index)? as usize)
    }

    /// All names, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

/// Class numbers that come as numbers are below this: each becomes a name in memory.
pub(super) const MAX_CLASSES: u32 = 1_000_000;

/// All images of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Table {
    /// The files that ranges lie in. The cache keeps them in its own way.
    #[serde(skip)]
    pub files: Vec<PathBuf>,
    /// What they hold.
    pub content: Content,
    /// One for each image.
    pub ranges: Vec<Range>,
    /// One for each image.
    pub names: Names,
    /// One for each image, or none at all.
    pub labels: Vec<u32>,
    /// Names of the classes, by label.
    pub class_names: Vec<String>,
    /// See [`Source::remarks`].
    pub remarks: Vec<String>,
}

impl Table {
    /// True where every number that refers to something refers to something that is there.
    pub(super) fn is_consistent(&self) -> bool {
        let count = self.ranges.len();
        self.names.len() == count
            && self.names.iter().count() == count
            && (self.labels.is_empty() || self.labels.len() == count)
            && self.ranges.iter().all(|range| (range.file as usize) < self.files.len())
            && self.labels.iter().all(|&label| (label as usize) < self.class_names.len())
    }
}

/// A [`Table`] as a source.
pub(super) struct RangeSource {
    /// What the user asked for.
    spec: String,
    table: Table,
    /// The first files of the table, kept open once they have been read from: that these are removed or replaced does
    /// not disturb a run. The others are opened each time, because a process may hold only so many.
    open: Vec<OnceLock<File>>,
    fingerprint: OnceLock<u64>,
}

/// Files that one source keeps open.
const KEPT_OPEN: usize = 128;

impl RangeSource {
    /// A source of the images of a table, described to people as `spec`.
    pub(super) fn new(spec: String, mut table: Table) -> Self {
        debug_assert!(table.is_consistent());
        for name in &mut table.class_names {
            if let Cow::Owned(shown) = printable(name) {
                *name = shown;
            }
        }
        let open = table.files.iter().take(KEPT_OPEN).map(|_| OnceLock::new()).collect();
        Self { spec, table, open, fingerprint: OnceLock::new() }
    }

    /// Does something with a file of the table.
    fn with_file<T>(&self, number: u32, work: impl FnOnce(&File, &Path) -> io::Result<T>) -> io::Result<T> {
        let path = &self.table.files[number as usize];
        let Some(slot) = self.open.get(number as usize) else { return work(&File::open(path)?, path) };
        if let Some(file) = slot.get() {
            return work(file, path);
        }
        let file = File::open(path)?;
        work(slot.get_or_init(|| file), path)
    }

    /// Reads a range into memory that is used again.
    fn read_range(&self, range: &Range, bytes: &mut Vec<u8>) -> io::Result<()> {
        self.with_file(range.file, |file, path| fill(file, path, range, bytes))
    }
}

fn fill(file: &File, path: &Path, range: &Range, bytes: &mut Vec<u8>) -> io::Result<()> {
    // Before memory is taken: a damaged archive may announce anything.
    let missing = range.offset.saturating_add(range.bytes).saturating_sub(file.metadata()?.len());
    if missing > 0 {
        let problem = format!("{} ends {missing} bytes too early", path.display());
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
    }
    // Without clearing it first: what is about to be overwritten need not be zero.
    bytes.resize(range.bytes as usize, 0);
    let mut done = 0;
    while done < bytes.len() {
        match read_at(file, &mut bytes[done..], range.offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads from a place in a file that several threads use at once.
pub(super) fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_at(file, bytes, offset);
    #[cfg(windows)]
    return std::os::windows::fs::FileExt::seek_read(file, bytes, offset);
}

/// One channel after the other to channels side by side.
fn interleave(planes: &mut Vec<u8>, channels: usize) {
    let size = planes.len() / channels.max(1);
    let pixels =
        (0..size).flat_map(|i| (0..channels).map(move |c| (c, i))).map(|(c, i)| planes[c * size + i]).collect();
    *planes = pixels;
}

impl Source for RangeSource {
    fn len(&self) -> usize {
        self.table.ranges.len()
    }

    fn fetch(&self, index: usize, limits: &DecodeLimits, bytes: &mut Vec<u8>) -> Result<Stored, ReadError> {
        let Some(range) = self.table.ranges.get(index) else {
            return Err(ReadError::NoSuchImage { index, len: self.len() });
        };
        if range.bytes > limits.file_bytes {
            return Err(ReadError::FileTooLarge { name: self.name(index), limit: limits.file_bytes });
        }
        self.read_range(range, bytes).map_err(|source| ReadError::Io { name: self.name(index), source })?;
        Ok(match self.table.content {
            Content::File => Stored::File,
            Content::Pixels { height, width, channels } => Stored::Pixels { height, width, channels },
            Content::Planes { height, width, channels } => {
                interleave(bytes, channels);
                Stored::Pixels { height, width, channels }
            }
        })
    }

    fn label(&self, index: usize) -> Option<u32> {
        self.table.labels.get(index).copied()
    }

    fn class_names(&self) -> &[String] {
        &self.table.class_names
    }

    fn name(&self, index: usize) -> String {
        self.table.names.get(index).map_or_else(|| format!("#{index}"), |name| printable(name).into_owned())
    }

    fn describe(&self) -> String {
        describe(&self.spec, self)
    }

    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut hash = Fingerprint::new();
            for (index, range) in self.table.ranges.iter().enumerate() {
                let name = self.table.names.get(index).unwrap_or_default();
                hash.add_entry(name.as_bytes(), range.bytes, self.label(index));
            }
            let digest = |index: usize| {
                let range = &self.table.ranges[index];
                self.with_file(range.file, |file, _| content::digest(file, range.offset, range.bytes))
            };
            hash.add_contents(&content::digests(self.len(), digest));
            hash.add_classes(&self.table.class_names);
            hash.finish()
        })
    }

    fn remarks(&self) -> &[String] {
        &self.table.remarks
    }
}
