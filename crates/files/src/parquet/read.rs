//! Reading the columns of a table whose pages are plain: as they are written here, and by other programs when they are asked to
//! pack nothing.
//!
//! A file is untrusted. What it says of lengths and counts is held against the bytes that are there before memory is
//! taken: a column of floats takes what the file has of them, and no other column has more rows than the caller asks for.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::columns::{PLAIN, RLE};
use super::levels::{Levels, short};
use super::metadata::description;
use super::schema::{Description, Leaf, Part};
use crate::thrift::{Kind, Thrift, damage};

/// The types of values.
const INT32: i64 = 1;
const INT64: i64 = 2;
const FLOAT: i64 = 4;
const DOUBLE: i64 = 5;
const BYTE_ARRAY: i64 = 6;
const UNCOMPRESSED: i64 = 0;
const DATA_PAGE: i64 = 0;

/// Why a table was not read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file system refused, or the file is damaged.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A column that is not there.
    #[error("it has no column `{column}`, but {there}")]
    NoColumn {
        /// The name that was looked for.
        column: &'static str,
        /// The first names that there are.
        there: String,
    },
    /// A column of another type.
    #[error("its column `{column}` does not hold {expected}")]
    Type {
        /// The column.
        column: &'static str,
        /// What it should hold.
        expected: &'static str,
    },
    /// Pages that are packed, in a way that is not read here.
    #[error(
        "its column `{column}` is {how}: write the table without compression and dictionaries (in pyarrow: \
         `write_table(..., compression=\"NONE\", use_dictionary=False)`)"
    )]
    Packed {
        /// The column.
        column: &'static str,
        /// How.
        how: &'static str,
    },
    /// Lists of different lengths, or none.
    #[error("row {row} of its column `{column}` has not as many values as the first, or an empty one among them")]
    Ragged {
        /// The column.
        column: &'static str,
        /// The row.
        row: usize,
    },
    /// Columns that do not belong together.
    #[error("its column `{column}` has {there} rows where {expected} are expected")]
    Rows {
        /// The column.
        column: &'static str,
        /// Rows that it has, or more.
        there: u64,
        /// Rows that it should have.
        expected: usize,
    },
}

/// An open table.
#[derive(Debug)]
pub struct TableReader<R = BufReader<File>> {
    file: R,
    /// Where the description begins, which is behind all values.
    end: u64,
    description: Description,
}

/// Values of a page, behind its levels.
struct Page<'a> {
    values: usize,
    body: &'a [u8],
}

impl TableReader {
    /// Opens a file and reads its description.
    pub fn open(path: &Path) -> Result<Self, TableError> {
        // Asked before opening: opening a pipe waits for somebody to write.
        if !std::fs::metadata(path)?.is_file() {
            return Err(damage("not a regular file").into());
        }
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Self::read(BufReader::new(file), bytes)
    }
}

impl<R: Read + Seek> TableReader<R> {
    /// Reads the description of a table that is so many bytes long.
    pub fn read(mut file: R, bytes: u64) -> Result<Self, TableError> {
        let (end, length) = description(&mut file, bytes)?;
        let description = Description::read(&mut Thrift::new(&mut file, length))?;
        Ok(Self { file, end, description })
    }

    /// The texts that the file says of itself, by key.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.description.texts
    }

    /// Whether there is a column of this name.
    pub fn has(&self, column: &str) -> bool {
        self.description.leaves.iter().any(|leaf| leaf.name == column)
    }

    /// A column of lists of floats, all of one length: their values, and how many each row has.
    pub fn floats(&mut self, column: &'static str) -> Result<(usize, Vec<f32>), TableError> {
        let (at, leaf) = self.leaf(column)?;
        let (definition, repetition) = (leaf.definition, leaf.repetition);
        let size = match leaf.stored {
            FLOAT => 4,
            DOUBLE => 8,
            _ => return Err(TableError::Type { column, expected: "lists of floats" }),
        };
        if repetition != 1 {
            return Err(TableError::Type { column, expected: "lists of floats" });
        }
        let mut values: Vec<f32> = Vec::new();
        let mut rows = Rows { column, width: None, current: 0, rows: 0 };
        self.pages(column, at, |page| {
            let mut body = page.body;
            let mut begins = Levels::take(&mut body, repetition, page.values)?;
            let mut present =
                if definition > 0 { Some(Levels::take(&mut body, definition, page.values)?) } else { None };
            // Every value that is there takes its bytes, which bounds the number of values.
            if page.values.checked_mul(size) != Some(body.len()) {
                return Err(rows.ragged());
            }
            while let Some((_, level)) = present.as_mut().map_or(Ok(None), Levels::next)? {
                if level != definition {
                    return Err(rows.ragged());
                }
            }
            while let Some((count, level)) = begins.next()? {
                rows.add(count, level)?;
            }
            values.extend(body.chunks_exact(size).map(|value| match *value {
                [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
                [a, b, c, d, e, f, g, h] => f64::from_le_bytes([a, b, c, d, e, f, g, h]) as f32,
                _ => f32::NAN,
            }));
            Ok(())
        })?;
        rows.end()?;
        if rows.rows as i64 != self.description.rows {
            let there = self.description.rows.max(0) as u64;
            return Err(TableError::Rows { column, there, expected: rows.rows });
        }
        Ok((rows.width.unwrap_or(0), values))
    }

    /// A column of whole numbers, of as many rows.
    pub fn integers(&mut self, column: &'static str, rows: usize) -> Result<Vec<Option<i64>>, TableError> {
        let (_, leaf) = self.leaf(column)?;
        let size = match leaf.stored {
            INT32 => 4,
            INT64 => 8,
            _ => return Err(TableError::Type { column, expected: "whole numbers" }),
        };
        self.optional(column, rows, move |body| {
            let value = body.get(..size)?;
            *body = &body[size..];
            Some(match *value {
                [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
                [a, b, c, d, e, f, g, h] => i64::from_le_bytes([a, b, c, d, e, f, g, h]),
                _ => return None,
            })
        })
    }

    /// A column of texts, of as many rows. Bytes that are no text are replaced.
    pub fn texts(&mut self, column: &'static str, rows: usize) -> Result<Vec<Option<String>>, TableError> {
        let (_, leaf) = self.leaf(column)?;
        if leaf.stored != BYTE_ARRAY {
            return Err(TableError::Type { column, expected: "texts" });
        }
        self.optional(column, rows, |body| {
            let length = u32::from_le_bytes(*body.first_chunk()?) as usize;
            let text = body[4..].get(..length)?;
            *body = &body[4 + length..];
            Some(String::from_utf8_lossy(text).into_owned())
        })
    }

    /// A column with a value in each row, or none; `value` takes the next from a page.
    fn optional<T>(
        &mut self,
        column: &'static str,
        rows: usize,
        value: impl Fn(&mut &[u8]) -> Option<T>,
    ) -> Result<Vec<Option<T>>, TableError> {
        let (at, leaf) = self.leaf(column)?;
        let definition = leaf.definition;
        if leaf.repetition != 0 || definition > 1 {
            return Err(TableError::Type { column, expected: "one value in each row" });
        }
        let mut found = Vec::new();
        self.pages(column, at, |page| {
            let there = (found.len() + page.values) as u64;
            if there > rows as u64 {
                return Err(TableError::Rows { column, there, expected: rows });
            }
            let mut body = page.body;
            if definition == 0 {
                for _ in 0..page.values {
                    found.push(Some(value(&mut body).ok_or_else(short)?));
                }
                return Ok(());
            }
            let mut present = Levels::take(&mut body, definition, page.values)?;
            while let Some((count, level)) = present.next()? {
                for _ in 0..count {
                    found.push(if level == 0 { None } else { Some(value(&mut body).ok_or_else(short)?) });
                }
            }
            Ok(())
        })?;
        match found.len() {
            there if there == rows => Ok(found),
            there => Err(TableError::Rows { column, there: there as u64, expected: rows }),
        }
    }

    fn leaf(&self, column: &'static str) -> Result<(usize, &Leaf), TableError> {
        let leaves = &self.description.leaves;
        leaves.iter().enumerate().find(|(_, leaf)| leaf.name == column).ok_or_else(|| {
            let names: Vec<String> = leaves.iter().take(4).map(|leaf| format!("`{}`", leaf.name)).collect();
            let there = if names.is_empty() { "none at all".to_owned() } else { names.join(", ") };
            TableError::NoColumn { column, there }
        })
    }

    /// Calls `visit` with every page of a column.
    fn pages(
        &mut self,
        column: &'static str,
        leaf: usize,
        mut visit: impl FnMut(Page<'_>) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        let parts: Vec<Part> = self.description.parts.iter().filter(|part| part.leaf == leaf).copied().collect();
        // Parts may not share their bytes: what is read is never more than the file.
        let total = parts.iter().try_fold(0i64, |all, part| all.checked_add(part.bytes.max(0)));
        if total.is_none_or(|total| total as u64 > self.end) {
            return Err(damage("parts of more bytes than the file has").into());
        }
        let mut body = Vec::new();
        for part in parts {
            if part.codec != UNCOMPRESSED {
                return Err(TableError::Packed { column, how: "compressed" });
            }
            let (start, bytes) = (u64::try_from(part.start).ok(), u64::try_from(part.bytes).ok());
            let (Some(start), Some(mut left)) = (start, bytes) else { return Err(short().into()) };
            if start.checked_add(left).is_none_or(|end| end > self.end) {
                return Err(damage("a part that reaches out of the file").into());
            }
            self.file.seek(SeekFrom::Start(start))?;
            let mut values = part.values;
            while values > 0 {
                let mut thrift = Thrift::new(&mut self.file, left);
                let header = PageHeader::read(&mut thrift)?;
                left = thrift.left();
                let (size, count) = header.plain(column)?;
                if size > left || count as i64 > values {
                    return Err(damage("a page that is larger than its part").into());
                }
                body.clear();
                (&mut self.file).take(size).read_to_end(&mut body)?;
                if (body.len() as u64) < size {
                    return Err(short().into());
                }
                left -= size;
                values -= count as i64;
                visit(Page { values: count, body: &body })?;
            }
        }
        Ok(())
    }
}

/// `PageHeader` of the format.
#[derive(Default)]
struct PageHeader {
    kind: i64,
    unpacked: i64,
    packed: i64,
    values: i64,
    encoding: i64,
    definition_encoding: i64,
    repetition_encoding: i64,
}

impl PageHeader {
    fn read(thrift: &mut Thrift<impl Read>) -> io::Result<Self> {
        let mut header = Self::default();
        thrift.fields(|thrift, id, kind| match (id, kind) {
            (1, Kind::Int) => thrift.int().map(|kind| header.kind = kind),
            (2, Kind::Int) => thrift.int().map(|bytes| header.unpacked = bytes),
            (3, Kind::Int) => thrift.int().map(|bytes| header.packed = bytes),
            (5, Kind::Struct) => thrift.numbers(|id, number| {
                match id {
                    1 => header.values = number,
                    2 => header.encoding = number,
                    3 => header.definition_encoding = number,
                    4 => header.repetition_encoding = number,
                    _ => {}
                }
                Ok(())
            }),
            _ => thrift.skip(kind),
        })?;
        Ok(header)
    }

    /// Bytes and values of a page that is plain.
    fn plain(&self, column: &'static str) -> Result<(u64, usize), TableError> {
        if self.kind != DATA_PAGE {
            return Err(TableError::Packed { column, how: "in a dictionary, or in pages of the second version" });
        }
        let levels = [self.definition_encoding, self.repetition_encoding];
        if self.encoding != i64::from(PLAIN) || levels.iter().any(|&encoding| encoding != i64::from(RLE)) {
            return Err(TableError::Packed { column, how: "encoded" });
        }
        match (u64::try_from(self.packed), usize::try_from(self.values)) {
            // A page of no values would never end a part.
            (Ok(bytes), Ok(values)) if self.packed == self.unpacked && values > 0 => Ok((bytes, values)),
            _ => Err(damage("a page whose size cannot be meant").into()),
        }
    }
}

/// The rows of a column of lists, as their values are met.
struct Rows {
    column: &'static str,
    width: Option<usize>,
    /// Values of the row so far.
    current: usize,
    rows: usize,
}

impl Rows {
    /// So many values, each of which begins a row (level 0) or goes on with it.
    fn add(&mut self, count: usize, level: u32) -> Result<(), TableError> {
        if level > 0 {
            if self.rows == 0 {
                return Err(self.ragged());
            }
            self.current += count;
            return Ok(());
        }
        for _ in 0..count {
            self.end()?;
            self.rows += 1;
            self.current = 1;
        }
        Ok(())
    }

    /// The row is complete, if there is one.
    fn end(&mut self) -> Result<(), TableError> {
        if self.rows > 0 && *self.width.get_or_insert(self.current) != self.current {
            return Err(self.ragged());
        }
        Ok(())
    }

    fn ragged(&self) -> TableError {
        TableError::Ragged { column: self.column, row: self.rows.saturating_sub(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Column, TableWriter, Values};
    use super::*;
    use std::io::Cursor;

    fn open(bytes: &[u8]) -> Result<TableReader<Cursor<&[u8]>>, TableError> {
        TableReader::read(Cursor::new(bytes), bytes.len() as u64)
    }

    fn columns() -> [Column; 3] {
        let columns = [("name", Values::Texts), ("label", Values::Integers), ("feature", Values::Floats { width: 3 })];
        columns.map(|(name, values)| Column { name, values })
    }

    fn table(rows: usize) -> Vec<u8> {
        let mut table = TableWriter::new(Vec::new(), &columns()).unwrap();
        for row in 0..rows {
            let name = format!("é{row}");
            table.text(0, (row != 1).then_some(name.as_str())).unwrap();
            table.integer(1, (row % 3 == 0).then_some(row as i64 - 1)).unwrap();
            table.floats(2, &[row as f32, 0.5, -1.0]).unwrap();
            table.end_row().unwrap();
        }
        table.finish(&[("format", "features")]).unwrap()
    }

    fn everything(bytes: &[u8]) -> Result<(), TableError> {
        let mut table = open(bytes)?;
        let (width, values) = table.floats("feature")?;
        let rows = values.len() / width.max(1);
        table.integers("label", rows)?;
        table.texts("name", rows).map(|_| ())
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = table(5);
        let mut table = open(&bytes).unwrap();
        assert_eq!(table.metadata()["format"], "features");
        let (width, values) = table.floats("feature").unwrap();
        assert_eq!((width, values.len(), values[9]), (3, 15, 3.0));
        assert_eq!(table.integers("label", 5).unwrap(), [Some(-1), None, None, Some(2), None]);
        let names = table.texts("name", 5).unwrap();
        assert_eq!((names[0].as_deref(), names[1].as_deref(), names.len()), (Some("é0"), None, 5));
        assert!(table.has("label") && !table.has("class"));
    }

    #[test]
    fn a_name_that_is_very_long_is_refused_before_columns_share_it() {
        let name = Box::leak("x".repeat(5000).into_boxed_str());
        let columns = [Column { name, values: Values::Integers }];
        let bytes = TableWriter::new(Vec::new(), &columns).unwrap().finish(&[]).unwrap();
        let error = open(&bytes).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("a column with a very long name"), "{error}");
    }

    #[test]
    fn columns_that_are_missing_or_of_another_type_are_named() {
        let bytes = table(2);
        let mut table = open(&bytes).unwrap();
        let missing = table.texts("class", 2).unwrap_err().to_string();
        assert_eq!(missing, "it has no column `class`, but `name`, `label`, `feature`");
        assert_eq!(table.floats("label").unwrap_err().to_string(), "its column `label` does not hold lists of floats");
        assert!(table.texts("label", 2).is_err() && table.integers("name", 2).is_err());
        let rows = table.texts("name", 1).unwrap_err().to_string();
        assert_eq!(rows, "its column `name` has 2 rows where 1 are expected");
        assert!(table.integers("label", 3).is_err());
    }

    #[test]
    fn a_table_that_is_cut_or_changed_is_an_error_or_another_table_and_never_a_panic() {
        let bytes = table(7);
        for length in 0..bytes.len() {
            assert!(everything(&bytes[..length]).is_err(), "{length}");
        }
        let mut refused = 0;
        for at in 0..bytes.len() {
            for change in [1, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                refused += usize::from(everything(&changed).is_err());
            }
        }
        assert!(refused > bytes.len(), "{refused} of {}", 3 * bytes.len());
    }
}
