//! Writing a table row by row.

use std::io::{self, Write};

use super::MAGIC;
use super::columns::{Collected, Column, Element, PLAIN, RLE, wrong};
use crate::thrift::StructWriter;

/// Bytes of a group of rows, about: what is in memory. Readers take a group at once, too.
const GROUP_BYTES: usize = 16 << 20;

/// The version of the format that a description names.
const VERSION: i32 = 1;
/// A page of values, as the first version of the format has it.
const DATA_PAGE: i32 = 0;
/// Pages are stored as they are.
const UNCOMPRESSED: i32 = 0;

/// Writes a table to `out`, a group of rows at a time. Of the table, no more than a group is in memory.
///
/// ```
/// use files::parquet::{Column, TableWriter, Values};
/// let columns = [("name", Values::Texts), ("label", Values::Integers), ("feature", Values::Floats { width: 2 })];
/// let columns = columns.map(|(name, values)| Column { name, values });
/// let mut table = TableWriter::new(Vec::new(), &columns)?;
/// table.text(0, Some("cat.jpg"))?;
/// table.integer(1, None)?;
/// table.floats(2, &[0.5, -1.0])?;
/// table.end_row()?;
/// let bytes = table.finish(&[("format", "two numbers of an image")])?;
/// assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct TableWriter<W> {
    out: W,
    /// Bytes written so far.
    at: u64,
    columns: Vec<Collected>,
    rows: u64,
    groups: Vec<Group>,
}

/// A group of rows that is written.
#[derive(Debug)]
struct Group {
    rows: usize,
    chunks: Vec<Chunk>,
}

/// Where the values of a column are.
#[derive(Debug)]
struct Chunk {
    start: u64,
    bytes: u64,
    values: usize,
}

impl<W: Write> TableWriter<W> {
    /// Begins a table with these columns.
    pub fn new(mut out: W, columns: &[Column]) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        let columns = columns.iter().cloned().map(Collected::new).collect();
        Ok(Self { out, at: MAGIC.len() as u64, columns, rows: 0, groups: Vec::new() })
    }

    /// The text of this column, by number, in the row that is being filled.
    pub fn text(&mut self, column: usize, text: Option<&str>) -> io::Result<()> {
        self.column(column)?.add_text(text)
    }

    /// The whole number of this column in the row.
    pub fn integer(&mut self, column: usize, integer: Option<i64>) -> io::Result<()> {
        self.column(column)?.add_integer(integer)
    }

    /// The number of this column in the row.
    pub fn number(&mut self, column: usize, number: Option<f64>) -> io::Result<()> {
        self.column(column)?.add_number(number)
    }

    /// The floats of this column in the row.
    pub fn floats(&mut self, column: usize, floats: &[f32]) -> io::Result<()> {
        self.column(column)?.add_floats(floats)
    }

    fn column(&mut self, number: usize) -> io::Result<&mut Collected> {
        self.columns.get_mut(number).ok_or_else(|| wrong(format!("there is no column {number}")))
    }

    /// Ends a row, in which every column has got its value.
    pub fn end_row(&mut self) -> io::Result<()> {
        let rows = self.columns.first().map_or(0, Collected::rows);
        if self.columns.iter().any(|column| column.rows() != rows) {
            return Err(wrong("a row without a value for each of its columns"));
        }
        self.rows += 1;
        if self.columns.iter().map(Collected::bytes).sum::<usize>() >= GROUP_BYTES {
            self.end_group()?;
        }
        Ok(())
    }

    /// Writes the rows that are in memory.
    fn end_group(&mut self) -> io::Result<()> {
        let rows = self.columns.first().map_or(0, Collected::rows);
        if rows == 0 {
            return Ok(());
        }
        let mut chunks = Vec::with_capacity(self.columns.len());
        for column in &mut self.columns {
            let (levels, values) = (column.levels(), column.count());
            let body = column.take();
            let header = page_header(levels.len() + body.len(), values)?;
            for part in [&header, &levels, &body] {
                self.out.write_all(part)?;
            }
            let bytes = (header.len() + levels.len() + body.len()) as u64;
            chunks.push(Chunk { start: self.at, bytes, values });
            self.at += bytes;
        }
        self.groups.push(Group { rows, chunks });
        Ok(())
    }

    /// Writes the rest of the rows and the description with these texts, and gives back what was written to.
    pub fn finish(mut self, metadata: &[(&str, &str)]) -> io::Result<W> {
        self.end_group()?;
        let description = self.description(metadata);
        let length = u32::try_from(description.len()).map_err(|_| wrong("a description of more than 4 GiB"))?;
        self.out.write_all(&description)?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(MAGIC)?;
        Ok(self.out)
    }

    /// `FileMetaData` of the format.
    fn description(&self, metadata: &[(&str, &str)]) -> Vec<u8> {
        let columns: Vec<&Column> = self.columns.iter().map(|collected| &collected.column).collect();
        let mut elements = vec![Element::root(columns.len())];
        elements.extend(columns.iter().flat_map(|column| column.elements()));
        let mut bytes = Vec::new();
        let mut fields = StructWriter::new(&mut bytes);
        fields.int32(1, VERSION);
        fields.structures(2, &elements, |fields, element| element.write(fields));
        fields.int64(3, self.rows as i64);
        fields.structures(4, &self.groups, |fields, group| {
            let chunks: Vec<(&Chunk, &Column)> = group.chunks.iter().zip(columns.iter().copied()).collect();
            fields.structures(1, &chunks, |fields, (chunk, column)| chunk.write(column, fields));
            fields.int64(2, group.chunks.iter().map(|chunk| chunk.bytes as i64).sum());
            fields.int64(3, group.rows as i64);
        });
        fields.structures(5, metadata, |fields, (key, value)| {
            fields.text(1, key);
            fields.text(2, value);
        });
        fields.text(6, "dino-vmf");
        fields.end();
        bytes
    }
}

impl Chunk {
    /// `ColumnChunk` of the format.
    fn write(&self, column: &Column, fields: &mut StructWriter<'_>) {
        fields.int64(2, self.start as i64);
        fields.structure(3, |fields| {
            fields.int32(1, column.stored());
            fields.int32s(2, &[PLAIN, RLE]);
            fields.texts(3, &column.path());
            fields.int32(4, UNCOMPRESSED);
            fields.int64(5, self.values as i64);
            fields.int64(6, self.bytes as i64);
            fields.int64(7, self.bytes as i64);
            fields.int64(9, self.start as i64);
        });
    }
}

/// `PageHeader` of the format.
fn page_header(bytes: usize, values: usize) -> io::Result<Vec<u8>> {
    let counted = |number: usize| i32::try_from(number).map_err(|_| wrong("a row of more than 2 GiB"));
    let (bytes, values) = (counted(bytes)?, counted(values)?);
    let mut header = Vec::new();
    let mut fields = StructWriter::new(&mut header);
    fields.int32(1, DATA_PAGE);
    fields.int32(2, bytes);
    fields.int32(3, bytes);
    fields.structure(5, |fields| {
        fields.int32(1, values);
        fields.int32(2, PLAIN);
        fields.int32(3, RLE);
        fields.int32(4, RLE);
    });
    fields.end();
    Ok(header)
}
