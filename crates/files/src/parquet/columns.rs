//! The columns of a table: what they hold, and how their values become a page.

use std::io;

use crate::thrift::{StructWriter, put_varint};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// A text in each row, or none.
    Texts,
    /// A whole number in each row, or none.
    Integers,
    /// A 64-bit float in each row, or none.
    Numbers,
    /// A list of as many 32-bit floats in each row.
    Floats {
        /// Floats of a row, at least one.
        width: usize,
    },
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub values: Values,
}

/// The numbers that the format has for types, repetitions and encodings.
const INT64: i32 = 2;
const FLOAT: i32 = 4;
const DOUBLE: i32 = 5;
const BYTE_ARRAY: i32 = 6;
const REQUIRED: i32 = 0;
const OPTIONAL: i32 = 1;
const REPEATED: i32 = 2;
const CONVERTED_UTF8: i32 = 0;
const CONVERTED_LIST: i32 = 3;
/// The encodings of values and of levels.
pub(super) const PLAIN: i32 = 0;
pub(super) const RLE: i32 = 3;

impl Column {
    /// The type of the stored values.
    pub(super) fn stored(&self) -> i32 {
        match self.values {
            Values::Texts => BYTE_ARRAY,
            Values::Integers => INT64,
            Values::Numbers => DOUBLE,
            Values::Floats { .. } => FLOAT,
        }
    }

    /// The names that lead to the values from the top.
    pub(super) fn path(&self) -> Vec<&'static str> {
        match self.values {
            Values::Texts | Values::Integers | Values::Numbers => vec![self.name],
            Values::Floats { .. } => vec![self.name, "list", "element"],
        }
    }

    /// The elements of the schema that make this column, in order: a list is a group in a group.
    pub(super) fn elements(&self) -> Vec<Element> {
        let leaf = |name, repetition| Element { name, stored: Some(self.stored()), repetition, ..Element::default() };
        match self.values {
            Values::Texts => vec![Element { is_text: true, ..leaf(self.name, OPTIONAL) }],
            Values::Integers | Values::Numbers => vec![leaf(self.name, OPTIONAL)],
            Values::Floats { .. } => vec![
                Element { name: self.name, repetition: REQUIRED, members: 1, is_list: true, ..Element::default() },
                Element { name: "list", repetition: REPEATED, members: 1, ..Element::default() },
                leaf("element", REQUIRED),
            ],
        }
    }
}

/// A node of the schema's tree.
#[derive(Debug, Default)]
pub(super) struct Element {
    name: &'static str,
    stored: Option<i32>,
    repetition: i32,
    members: i32,
    is_text: bool,
    is_list: bool,
}

impl Element {
    /// The group of all columns. It has no repetition: the value of a required one is what readers expect.
    pub(super) fn root(columns: usize) -> Self {
        Self { name: "schema", repetition: REQUIRED, members: columns as i32, ..Self::default() }
    }

    /// `SchemaElement` of the format.
    pub(super) fn write(&self, fields: &mut StructWriter<'_>) {
        if let Some(stored) = self.stored {
            fields.int32(1, stored);
        }
        fields.int32(3, self.repetition);
        fields.text(4, self.name);
        if self.members > 0 {
            fields.int32(5, self.members);
        }
        // Each meaning in the old words and in the new ones: readers know the one or the other.
        if self.is_text {
            fields.int32(6, CONVERTED_UTF8);
            fields.structure(10, |logical| logical.structure(1, |_| {}));
        } else if self.is_list {
            fields.int32(6, CONVERTED_LIST);
            fields.structure(10, |logical| logical.structure(3, |_| {}));
        }
    }
}

/// The values of a column in the group of rows that is being collected.
#[derive(Debug)]
pub(super) struct Collected {
    pub(super) column: Column,
    /// Which rows have a value; of lists, all have.
    present: Vec<bool>,
    rows: usize,
    /// The values, plain.
    bytes: Vec<u8>,
}

impl Collected {
    pub(super) fn new(column: Column) -> Self {
        Self { column, present: Vec::new(), rows: 0, bytes: Vec::new() }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len() + self.present.len()
    }

    pub(super) fn add_text(&mut self, text: Option<&str>) -> io::Result<()> {
        self.expect(self.column.values == Values::Texts)?;
        self.note(text.is_some());
        if let Some(text) = text {
            let length = u32::try_from(text.len()).map_err(|_| wrong("a text of more than 4 GiB"))?;
            self.bytes.extend_from_slice(&length.to_le_bytes());
            self.bytes.extend_from_slice(text.as_bytes());
        }
        Ok(())
    }

    pub(super) fn add_integer(&mut self, integer: Option<i64>) -> io::Result<()> {
        self.expect(self.column.values == Values::Integers)?;
        self.note(integer.is_some());
        self.bytes.extend(integer.iter().flat_map(|value| value.to_le_bytes()));
        Ok(())
    }

    pub(super) fn add_number(&mut self, number: Option<f64>) -> io::Result<()> {
        self.expect(self.column.values == Values::Numbers)?;
        self.note(number.is_some());
        self.bytes.extend(number.iter().flat_map(|value| value.to_le_bytes()));
        Ok(())
    }

    pub(super) fn add_floats(&mut self, floats: &[f32]) -> io::Result<()> {
        self.expect(self.column.values == Values::Floats { width: floats.len() } && !floats.is_empty())?;
        self.rows += 1;
        self.bytes.extend(floats.iter().flat_map(|value| value.to_le_bytes()));
        Ok(())
    }

    fn note(&mut self, is_present: bool) {
        self.present.push(is_present);
        self.rows += 1;
    }

    fn expect(&self, fits: bool) -> io::Result<()> {
        let name = self.column.name;
        if fits { Ok(()) } else { Err(wrong(format!("values that do not fit into the column `{name}`"))) }
    }

    /// Values of the page, nulls and each of a list's counted.
    pub(super) fn count(&self) -> usize {
        match self.column.values {
            Values::Texts | Values::Integers | Values::Numbers => self.rows,
            Values::Floats { width } => self.rows * width,
        }
    }

    /// The levels of the page: which values are there, and which begin a row.
    pub(super) fn levels(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self.column.values {
            Values::Texts | Values::Integers | Values::Numbers => {
                with_length(&mut out, |runs| {
                    let same = self.present.chunk_by(|a, b| a == b);
                    same.for_each(|same| run(runs, same.len(), same[0].into()));
                });
            }
            Values::Floats { width } => {
                // Repetition: the first value of a row begins one, the others go on with it.
                with_length(&mut out, |runs| {
                    for _ in 0..self.rows {
                        run(runs, 1, 0);
                        run(runs, width - 1, 1);
                    }
                });
                with_length(&mut out, |runs| run(runs, self.rows * width, 1));
            }
        }
        out
    }

    /// The plain values, which are forgotten with the rows.
    pub(super) fn take(&mut self) -> Vec<u8> {
        (self.rows, self.present) = (0, Vec::new());
        std::mem::take(&mut self.bytes)
    }
}

/// Runs, with their length in bytes before them.
fn with_length(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// A level of one bit so many times.
fn run(out: &mut Vec<u8>, count: usize, level: u8) {
    if count > 0 {
        put_varint(out, (count as u64) << 1);
        out.push(level);
    }
}

pub(super) fn wrong(problem: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, problem.into())
}
