//! NumPy's `.npy`, with a table of its rows and a note of the network beside it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use data::Source;
use files::Replacement;
use serde_json::Value;

use super::{Failure, Image, Said, Sink};

/// How the first line of the table begins; the names of further columns may follow.
pub const CSV_HEADER: &str = "row,name,label,class";
/// The largest note that is read: it has the names of classes.
const MAX_NOTE: u64 = 16 << 20;
/// Bytes of an array in which its shape stands.
const START: u64 = 256;

/// The table and the note of an array.
pub(super) fn beside(path: &Path) -> [PathBuf; 2] {
    [path.with_extension("csv"), path.with_extension("json")]
}

/// The three files on their way.
pub(super) struct Files {
    array: Replacement,
    table: Replacement,
    note: Replacement,
    note_place: PathBuf,
    shape: Vec<usize>,
    /// Bytes of the array's header, which is written again when the number of rows is known.
    header: usize,
    rows: usize,
    said: Said,
}

impl Files {
    pub(super) fn begin(
        path: &Path,
        shape: &[usize],
        numbers: &[&'static str],
        most: usize,
        said: Said,
    ) -> Result<Self, Failure> {
        let [table, note_place] = beside(path);
        let (mut array, mut table) = (Replacement::begin(path)?, Replacement::begin(&table)?);
        let note = Replacement::begin(&note_place)?;
        let header = header(most, shape, 0);
        array.write_all(&header)?;
        table.write_all(CSV_HEADER.as_bytes())?;
        numbers.iter().try_for_each(|name| write!(table, ",{name}"))?;
        table.write_all(b"\n")?;
        let (shape, header) = (shape.to_vec(), header.len());
        Ok(Self { array, table, note, note_place, shape, header, rows: 0, said })
    }
}

impl Sink for Files {
    fn row(&mut self, source: &dyn Source, image: Image, values: &[f32], numbers: &[f64]) -> io::Result<()> {
        values.iter().try_for_each(|value| self.array.write_all(&value.to_le_bytes()))?;
        let label = image.label.map_or(String::new(), |label| label.to_string());
        let (name, class) = (quoted(&source.name(image.index)), quoted(image.class(source).unwrap_or_default()));
        write!(self.table, "{},{name},{label},{class}", self.rows)?;
        numbers.iter().try_for_each(|number| write!(self.table, ",{number}"))?;
        self.table.write_all(b"\n")?;
        self.rows += 1;
        Ok(())
    }

    fn finish(mut self: Box<Self>, source: &dyn Source) -> Result<(), Failure> {
        self.array.seek(SeekFrom::Start(0))?;
        self.array.write_all(&header(self.rows, &self.shape, self.header))?;
        let mut note: BTreeMap<&str, Value> =
            self.said.iter().map(|(key, text)| (*key, text.as_str().into())).collect();
        note.insert("class_names", source.class_names().into());
        note.insert("rows", self.rows.into());
        serde_json::to_writer_pretty(&mut self.note, &note).map_err(io::Error::from)?;
        self.note.write_all(b"\n")?;
        for file in [&mut self.array, &mut self.table, &mut self.note] {
            file.sync()?;
        }
        // The note goes first and comes last: while it is there, the array and the table are those that it speaks of.
        files::remove_if_there(&self.note_place)?;
        self.array.finish()?;
        self.table.finish()?;
        Ok(self.note.finish()?)
    }
}

/// What the note of an array says; none where it or the table is missing, or the array has not the rows it speaks of.
pub(super) fn description(path: &Path) -> Option<BTreeMap<String, String>> {
    let [table, note] = beside(path);
    let note: BTreeMap<String, Value> = serde_json::from_slice(&files::read_bounded(&note, MAX_NOTE).ok()?).ok()?;
    let rows = note.get("rows")?.as_u64()?;
    let mut start = Vec::new();
    // Opening a pipe would wait.
    let array = path.is_file().then(|| File::open(path).ok())??;
    array.take(START).read_to_end(&mut start).ok()?;
    let is_of_array = String::from_utf8_lossy(&start).contains(&format!("'shape': ({rows},"));
    let texts = note.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())));
    (is_of_array && table.is_file()).then(|| texts.collect())
}

/// Magic, version, length and a Python dictionary, padded with spaces so that the values start at a multiple of 64, and
/// to the length of an earlier header where there is one.
fn header(rows: usize, shape: &[usize], least: usize) -> Vec<u8> {
    const PREFIX: usize = 10;
    let sides: Vec<String> = [rows].iter().chain(shape).map(usize::to_string).collect();
    let shape = sides.join(", ");
    let mut dictionary = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}").into_bytes();
    let length = (PREFIX + dictionary.len() + 1).next_multiple_of(64).max(least) - PREFIX;
    dictionary.resize(length - 1, b' ');
    dictionary.push(b'\n');
    // A few sizes of at most twenty digits: the length always fits.
    [b"\x93NUMPY\x01\x00", &(length as u16).to_le_bytes()[..], &dictionary].concat()
}

/// A text as a field of the table: in quotation marks where it would end the field, or the row.
fn quoted(text: &str) -> String {
    let is_plain = !text.contains([',', '"', '\n', '\r']) && text.trim() == text;
    if is_plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_the_length_it_says_and_ends_on_a_multiple_of_64() {
        for (rows, columns) in [(0, 0), (3, 192), (1_281_167, 1024), (usize::MAX, usize::MAX)] {
            let full = header(rows, &[columns, 7], 0);
            let fewer = header(rows / 1000, &[columns, 7], full.len());
            for header in [full.clone(), fewer] {
                assert_eq!((header.len(), header.len() % 64), (full.len(), 0));
                assert_eq!(u16::from_le_bytes([header[8], header[9]]) as usize, header.len() - 10);
                assert_eq!(header.last(), Some(&b'\n'));
            }
        }
        let text = String::from_utf8_lossy(&header(3, &[192], 0)[10..]).into_owned();
        assert_eq!(text.trim_end(), "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 192), }");
    }

    #[test]
    fn fields_that_would_end_early_are_quoted() {
        assert_eq!(
            ["a b.jpg", "a,b", "say \"é\"", "two\nlines", " x"].map(quoted),
            ["a b.jpg", "\"a,b\"", "\"say \"\"é\"\"\"", "\"two\nlines\"", "\" x\""]
        );
    }
}
