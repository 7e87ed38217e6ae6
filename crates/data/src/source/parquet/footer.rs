//! What is in a parquet file and where: the structure at its end.

use super::schema::{Leaf, schema, size};
use super::thrift::{Kind, Thrift, damage};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use text::thousands;

/// What a file starts and ends with.
const MAGIC: &[u8; 4] = b"PAR1";

/// Length of the structure and the magic.
const TAIL: u64 = 8;

/// Where the values of a column are that belong to a group of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Chunk {
    /// First byte.
    pub start: u64,
    /// Bytes as stored.
    pub bytes: u64,
    /// Bytes after unpacking, as far as the file is right.
    pub unpacked: u64,
    /// Values, nulls included.
    pub values: u64,
    /// How pages are packed.
    pub codec: i64,
}

/// Rows that are stored together.
pub(super) struct RowGroup {
    pub rows: u64,
    /// One for each leaf; none where it is stored in a way that we do not read.
    pub chunks: Vec<Option<Chunk>>,
}

/// The structure at the end of a file.
pub(super) struct Footer {
    /// Names of the columns and groups at the top.
    pub top: Vec<String>,
    pub leaves: Vec<Leaf>,
    pub row_groups: Vec<RowGroup>,
    pub rows: u64,
    /// What the `datasets` library says about the columns, as JSON.
    pub huggingface: Option<String>,
}

impl Footer {
    /// Reads the footer of a file of `bytes` bytes and checks that what it points to is inside.
    pub(super) fn read(mut file: impl Read + Seek, bytes: u64) -> io::Result<Self> {
        let magic = MAGIC.len() as u64;
        if bytes < magic + TAIL {
            return Err(damage(format!("not a parquet file: {} bytes are too few", thousands(bytes))));
        }
        let mut tail = [0; TAIL as usize];
        file.seek(SeekFrom::Start(bytes - TAIL))?;
        file.read_exact(&mut tail)?;
        let [a, b, c, d, end @ ..] = tail;
        if end == *b"PARE" {
            return Err(damage("the file is encrypted"));
        }
        if end != *MAGIC {
            return Err(damage(
                "not a parquet file, or one that was not copied or downloaded completely: no PAR1 at its end",
            ));
        }
        let length = u64::from(u32::from_le_bytes([a, b, c, d]));
        let Some(start) = (bytes - TAIL).checked_sub(length).filter(|&start| start >= magic) else {
            let (length, bytes) = (thousands(length), thousands(bytes));
            return Err(damage(format!("the footer is said to take {length} of {bytes} bytes")));
        };
        file.seek(SeekFrom::Start(start))?;
        let footer = Self::parse(&mut Thrift::new(BufReader::new(file), length))?;
        footer.check(start)?;
        Ok(footer)
    }

    fn parse<R: Read>(thrift: &mut Thrift<R>) -> io::Result<Self> {
        let mut footer =
            Self { top: Vec::new(), leaves: Vec::new(), row_groups: Vec::new(), rows: 0, huggingface: None };
        thrift.fields(|thrift, id, kind| {
            match (id, kind) {
                (2, Kind::List) => (footer.top, footer.leaves) = schema(thrift)?,
                (3, Kind::Int) => footer.rows = size(thrift.int()?)?,
                (4, Kind::List) => {
                    let groups = &mut footer.row_groups;
                    thrift.list(Kind::Struct, |thrift| row_group(thrift).map(|group| groups.push(group)))?;
                }
                (5, Kind::List) => thrift.list(Kind::Struct, |thrift| {
                    if let Some(text) = huggingface(thrift)? {
                        footer.huggingface = Some(text);
                    }
                    Ok(())
                })?,
                _ => thrift.skip(kind)?,
            }
            Ok(())
        })?;
        Ok(footer)
    }

    /// Holds what the footer claims against the file.
    fn check(&self, start: u64) -> io::Result<()> {
        let sum = self.row_groups.iter().try_fold(0u64, |sum, group| sum.checked_add(group.rows));
        if sum != Some(self.rows) {
            return Err(damage("the footer contradicts itself about the number of rows"));
        }
        for group in &self.row_groups {
            if group.chunks.len() != self.leaves.len() {
                let (found, columns) = (group.chunks.len(), self.leaves.len());
                return Err(damage(format!("a group of rows has {found} columns, the file has {columns}")));
            }
            let inside = |chunk: &Chunk| chunk.start.checked_add(chunk.bytes).is_some_and(|end| end <= start);
            if !group.chunks.iter().flatten().all(inside) {
                return Err(damage("a column lies outside the file. Was it copied or downloaded completely?"));
            }
        }
        Ok(())
    }

    /// The bytes that a column is said to take after unpacking.
    pub(super) fn unpacked(&self, leaf: usize) -> u64 {
        let chunks = self.row_groups.iter().filter_map(|group| group.chunks[leaf]);
        chunks.fold(0, |sum, chunk| sum.saturating_add(chunk.unpacked))
    }

    /// The columns, for people: `image {bytes, path}, label (int64)`.
    pub(super) fn describe(&self) -> String {
        const SHOWN: usize = 20;
        let describe = |(number, name): (usize, &String)| {
            let leaves: Vec<&Leaf> = self.leaves.iter().filter(|leaf| leaf.top == number).take(SHOWN).collect();
            match leaves[..] {
                [leaf] if leaf.depth == 1 => format!("{name} ({})", leaf.describe()),
                _ => format!("{name} {{{}}}", leaves.iter().map(|l| l.name.as_str()).collect::<Vec<_>>().join(", ")),
            }
        };
        let mut columns: Vec<String> = self.top.iter().enumerate().take(SHOWN).map(describe).collect();
        if self.top.len() > SHOWN {
            columns.push(format!("{} more", self.top.len() - SHOWN));
        }
        columns.join(", ")
    }
}

fn row_group<R: Read>(thrift: &mut Thrift<R>) -> io::Result<RowGroup> {
    let mut group = RowGroup { rows: 0, chunks: Vec::new() };
    thrift.fields(|thrift, id, kind| match (id, kind) {
        (1, Kind::List) => {
            let chunks = &mut group.chunks;
            thrift.list(Kind::Struct, |thrift| chunk(thrift).map(|chunk| chunks.push(chunk)))
        }
        (3, Kind::Int) => size(thrift.int()?).map(|rows| group.rows = rows),
        _ => thrift.skip(kind),
    })?;
    Ok(group)
}

/// A column's part of a group of rows. None where it is in another file or encrypted.
fn chunk<R: Read>(thrift: &mut Thrift<R>) -> io::Result<Option<Chunk>> {
    let (mut found, mut elsewhere) = (None, false);
    thrift.fields(|thrift, id, kind| match (id, kind) {
        (1, Kind::Text) => thrift.text().map(|path| elsewhere |= !path.is_empty()),
        (3, Kind::Struct) => {
            let (mut chunk, mut data, mut dictionary) = (Chunk::default(), 0, 0);
            thrift.numbers(|id, value| {
                match id {
                    4 => chunk.codec = value,
                    5 => chunk.values = size(value)?,
                    6 => chunk.unpacked = size(value)?,
                    7 => chunk.bytes = size(value)?,
                    9 => data = size(value)?,
                    11 => dictionary = size(value)?,
                    _ => {}
                }
                Ok(())
            })?;
            // Some writers say 0 where there is no dictionary.
            chunk.start = if dictionary > 0 { data.min(dictionary) } else { data };
            found = Some(chunk);
            Ok(())
        }
        _ => thrift.skip(kind),
    })?;
    Ok(found.filter(|_| !elsewhere))
}

/// The text of an entry with the key `huggingface`.
fn huggingface<R: Read>(thrift: &mut Thrift<R>) -> io::Result<Option<String>> {
    let (mut is_ours, mut text) = (false, None);
    thrift.fields(|thrift, id, kind| match (id, kind) {
        (1, Kind::Text) => thrift.text().map(|key| is_ours = key == "huggingface"),
        (2, Kind::Text) if is_ours => thrift.text().map(|value| text = Some(value)),
        _ => thrift.skip(kind),
    })?;
    Ok(text)
}
