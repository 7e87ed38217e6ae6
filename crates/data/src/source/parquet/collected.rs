//! What the rows of all files come to: where each image is, its name, its label.

use super::budget::Budget;
use super::labels::Labels;
use super::{Part, rows};
use crate::source::OpenError;
use crate::source::ranges::{Content, Names, Range, Table};
use std::io::{self, Read, Seek};
use std::path::PathBuf;
use text::{escape_name, shortened, thousands};

/// Characters of a name that are kept.
const LONGEST_NAME: usize = 200;

/// What is known of the rows so far.
pub(super) struct Collected {
    ranges: Vec<Range>,
    names: Names,
    labels: Labels,
    /// Bytes of all images.
    written: u64,
    budget: Budget,
    /// Rows without an image, the first of them, and how many have a path instead.
    missing: usize,
    first_missing: Option<String>,
    elsewhere: usize,
    first_elsewhere: Option<String>,
}

impl Collected {
    /// For files of so many bytes together, those with no more than classes for us included.
    pub(super) fn new(bytes: u64) -> Self {
        Self {
            ranges: Vec::new(),
            names: Names::default(),
            labels: Labels::default(),
            written: 0,
            budget: Budget::new(bytes),
            missing: 0,
            first_missing: None,
            elsewhere: 0,
            first_elsewhere: None,
        }
    }

    /// Adds all rows of a file, group by group, and hands their images to `write`.
    pub(super) fn add<F: Read + Seek>(
        &mut self,
        part: &Part,
        open: impl Fn() -> io::Result<F>,
        write: &mut impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let Part { footer, columns, .. } = part;
        self.budget.rows.spend(footer.rows)?;
        let leaf = |number: usize| (number, &footer.leaves[number]);
        let file = escape_name(part.path.file_name().unwrap_or_default().as_encoded_bytes());
        let mut row = 0u64;
        for group in &footer.row_groups {
            let start = self.ranges.len();
            let pages = &mut self.budget.pages;
            rows::bytes(open()?, group, leaf(columns.image), pages, |image| {
                let image = image.unwrap_or_default();
                let bytes = image.len() as u64;
                self.budget.images.spend(bytes)?;
                write(image)?;
                self.ranges.push(Range { file: 0, offset: self.written, bytes });
                self.written += bytes;
                Ok(())
            })?;
            let mut images = start;
            let mut add_name = |path: Option<&[u8]>| {
                let path = path.filter(|path| !path.is_empty());
                let mut name = path.map_or_else(|| format!("{file} row {row}"), bearable);
                if !self.budget.names.covers(name.len() as u64) {
                    name = format!("row {row}");
                }
                if self.ranges[images].bytes == 0 {
                    self.missing += 1;
                    self.elsewhere += usize::from(path.is_some());
                    self.first_missing.get_or_insert_with(|| name.clone());
                    self.first_elsewhere = self.first_elsewhere.take().or_else(|| path.map(|_| name.clone()));
                }
                self.names.push(&name);
                images += 1;
                row += 1;
            };
            match columns.path {
                Some(path) => rows::bytes(open()?, group, leaf(path), pages, |path| {
                    add_name(path);
                    Ok(())
                })?,
                None => (0..group.rows).for_each(|_| add_name(None)),
            }
            match columns.label {
                Some(label) if part.has_texts() => rows::bytes(open()?, group, leaf(label), pages, |label| {
                    self.labels.add_text(label);
                    Ok(())
                })?,
                Some(label) => rows::numbers(open()?, group, leaf(label), pages, |label| {
                    self.labels.add_number(label, columns.class_names.as_deref())
                })?,
                None => {}
            }
        }
        Ok(())
    }

    /// Adds the classes of a file whose images are not ours.
    pub(super) fn add_classes<F: Read + Seek>(
        &mut self,
        part: &Part,
        open: impl Fn() -> io::Result<F>,
    ) -> io::Result<()> {
        let Some(label) = part.columns.label else { return Ok(()) };
        self.budget.rows.spend(part.footer.rows)?;
        part.footer.row_groups.iter().try_for_each(|group| {
            let leaf = (label, &part.footer.leaves[label]);
            rows::bytes(open()?, group, leaf, &mut self.budget.pages, |label| {
                self.labels.add_class(label);
                Ok(())
            })
        })
    }

    pub(super) fn finish(self, first: &Part, pack: PathBuf) -> Result<Table, OpenError> {
        let path = || first.path.clone();
        let count = self.ranges.len();
        if count > u32::MAX as usize {
            return Err(OpenError::TooMany { path: path(), count });
        }
        let mut remarks = first.columns.remarks.clone();
        let by_path = self.first_elsewhere.map(|name| {
            let rows = thousands(self.elsewhere);
            format!("{rows} row(s) hold only the path of an image, which is not supported, such as {}", name)
        });
        if self.missing == count {
            let reason = by_path.unwrap_or_else(|| format!("none of its {} row(s) holds an image", thousands(count)));
            return Err(OpenError::Format { path: path(), problem: reason });
        }
        if let Some(name) = self.first_missing {
            remarks.push(format!("{} row(s) have no image, the first: {}", thousands(self.missing), name));
        }
        remarks.extend(by_path);
        let column = first.columns.label.map_or("", |label| first.top(label));
        let labelled = self.labels.finish(column, first.columns.class_names.clone());
        remarks.extend(labelled.remark);
        let class_names = if labelled.labels.is_empty() { Vec::new() } else { labelled.class_names };
        let (ranges, names, labels) = (self.ranges, self.names, labelled.labels);
        Ok(Table { ranges, names, labels, class_names, remarks, ..Table::of_files(vec![pack], Content::File) })
    }
}

/// A name of bearable length, as text.
fn bearable(name: &[u8]) -> String {
    // A character has at most four bytes, and an escape as many: no more is ever shown.
    shortened(&escape_name(&name[..name.len().min(4 * LONGEST_NAME + 4)]), LONGEST_NAME).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::data_type::{ByteArray, ByteArrayType};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use std::io::Cursor;
    use std::sync::Arc;

    /// A file whose rows are all the same image, which its dictionary holds once.
    fn repeated(image: Vec<u8>, rows: usize) -> Vec<u8> {
        let schema = Arc::new(parse_message_type("message schema { required binary image; }").unwrap());
        let properties = WriterProperties::builder().set_dictionary_page_size_limit(1 << 30).build();
        let mut bytes = Vec::new();
        let mut file = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties)).unwrap();
        let mut group = file.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let image = ByteArray::from(image);
        column.typed::<ByteArrayType>().write_batch(&vec![image; rows], None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        file.close().unwrap();
        bytes
    }

    #[test]
    fn a_dictionary_cannot_fill_the_disk() {
        let bytes = repeated(vec![7; 100_000], 5000);
        assert!(bytes.len() < 400_000);
        let open = || Ok(Cursor::new(&bytes[..]));
        let part = Part::new(PathBuf::from("x.parquet"), bytes.len() as u64, open).unwrap();
        let mut collected = Collected::new(bytes.len() as u64);
        let mut written = 0;
        let done = collected.add(&part, open, &mut |image| {
            written += image.len() as u64;
            Ok(())
        });
        let message = done.unwrap_err().to_string();
        assert!(message.contains("this is no data set"), "{message}");
        assert!(written <= (64 << 20) + 200 * bytes.len() as u64);
    }
}
