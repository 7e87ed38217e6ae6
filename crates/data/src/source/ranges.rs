//! Images that are ranges of bytes in files: members of a tar, records of a CIFAR or IDX file, rows of an unpacked
//! table.
//!
//! A parser's whole work is to fill a [`Table`]. Reading is the same for all, and is what [`Shelf`] does.

use super::shelf::{Guard, Remake, Shelf};
use super::{Fingerprint, ReadError, Source, Stored, content, describe};
use crate::decode::DecodeLimits;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;
use text::escape_name;

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
    /// How each of the files is held to what was indexed. The cache fills this in; a parser leaves it empty.
    #[serde(skip)]
    pub guards: Vec<Guard>,
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
    /// A table of nothing yet, in these files.
    pub(super) fn of_files(files: Vec<PathBuf>, content: Content) -> Self {
        let (ranges, names, labels) = (Vec::new(), Names::default(), Vec::new());
        let (guards, class_names, remarks) = (Vec::new(), Vec::new(), Vec::new());
        Self { files, guards, content, ranges, names, labels, class_names, remarks }
    }

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
    shelf: Shelf,
    fingerprint: OnceLock<u64>,
    /// The numbers of images whose names others have had before them.
    repeated: OnceLock<HashMap<u32, u32>>,
}

impl RangeSource {
    /// A source of the images of a table, described to people as `spec`. `remake` makes the table again where files in
    /// the cache are damaged.
    pub(super) fn new(spec: String, mut table: Table, remake: Option<Remake>) -> Self {
        debug_assert!(table.is_consistent());
        // Names in an index are escaped already, unless somebody has tampered with it.
        for name in &mut table.class_names {
            if !text::is_plain(name) {
                *name = escape_name(name.as_bytes()).into_owned();
            }
        }
        let shelf = Shelf::new(&table, remake);
        Self { spec, table, shelf, fingerprint: OnceLock::new(), repeated: OnceLock::new() }
    }

    /// The digest of an image's bytes: see [`content`].
    fn digest(&self, range: &Range) -> io::Result<u64> {
        content::digest_by(range.bytes, |start, length, piece| {
            let offset = range.offset.checked_add(start).ok_or(io::ErrorKind::InvalidInput)?;
            self.shelf.read(&self.table, &Range { offset, bytes: length, ..*range }, piece)
        })
    }

    /// What tells an image from those before it that have the same name: an archive may hold a name twice, and a table
    /// anything. Nothing for the first of a name.
    fn repetition(&self, index: usize) -> Option<u32> {
        let names = &self.table.names;
        let repeated = self.repeated.get_or_init(|| {
            let name = |index: u32| names.get(index as usize).unwrap_or_default();
            let mut order: Vec<u32> = (0..names.len() as u32).collect();
            order.sort_by_key(|&index| name(index));
            let is_taken = |text: &str| order.binary_search_by(|&index| name(index).cmp(text)).is_ok();
            let mut repeated = HashMap::new();
            let mut number = 1;
            for pair in order.windows(2) {
                if name(pair[0]) != name(pair[1]) {
                    number = 1;
                    continue;
                }
                number += 1;
                while is_taken(&format!("{} ({number})", name(pair[1]))) {
                    number += 1;
                }
                repeated.insert(pair[1], number);
            }
            repeated
        });
        u32::try_from(index).ok().and_then(|index| repeated.get(&index)).copied()
    }
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
        self.shelf
            .read(&self.table, range, bytes)
            .map_err(|source| ReadError::Io { name: self.name(index), source })?;
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
        let Some(name) = self.table.names.get(index) else { return format!("#{index}") };
        let name = if text::is_plain(name) { name.to_owned() } else { escape_name(name.as_bytes()).into_owned() };
        match self.repetition(index) {
            None => name,
            Some(number) => format!("{name} ({number})"),
        }
    }

    fn describe(&self) -> String {
        describe(escape_name(self.spec.as_bytes()), self)
    }

    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut hash = Fingerprint::new();
            for (index, range) in self.table.ranges.iter().enumerate() {
                let name = self.table.names.get(index).unwrap_or_default();
                hash.add_entry(name.as_bytes(), range.bytes, self.label(index));
            }
            hash.add_contents(&content::digests(self.len(), |index| self.digest(&self.table.ranges[index])));
            hash.add_classes(&self.table.class_names);
            hash.finish()
        })
    }

    fn stored_bytes(&self, index: usize) -> Option<u64> {
        self.table.ranges.get(index).map(|range| range.bytes)
    }

    fn content_digest(&self, index: usize) -> Option<u64> {
        self.digest(self.table.ranges.get(index)?).ok()
    }

    fn remarks(&self) -> &[String] {
        &self.table.remarks
    }

    fn take_news(&self) -> Vec<String> {
        self.shelf.take_news()
    }
}
