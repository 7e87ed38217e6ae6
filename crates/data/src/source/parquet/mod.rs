//! Images in parquet files, as the Hugging Face hub has them: a row is an image with its label.
//!
//! A page of a parquet file has to be unpacked as a whole, which would be far too slow for images in random order. So
//! all images are written once, page by page, into one file in the cache; everything after is a read from there.
//!
//! A file is untrusted, and every size and count in it is a claim, which is held against the bytes that are there before
//! memory is taken for it. The `parquet` crate takes the memory first, so the format is read here, as far as images and
//! labels need it: [`footer`] and [`schema`] say what is where, [`pages`] and [`codec`] unpack it, [`values`] decodes it,
//! and [`budget`] bounds what all of it comes to.

mod budget;
mod codec;
mod collected;
mod columns;
mod delta;
mod footer;
mod header;
mod labels;
mod pages;
mod rows;
mod runs;
mod schema;
mod values;

use super::OpenError;
use super::cache::Cache;
use super::ranges::Table;
use super::unpacking::Unpacking;
use collected::Collected;
use columns::Columns;
use files::thrift;
use footer::Footer;
use schema::Stored;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, Write};
use std::path::{Path, PathBuf};
use text::{printable, shown};

/// Changes with what is made of a file, so that the cache does not give what an older version made.
const VERSION: u32 = 2;

/// The images of all files, in their order. `others` are the files of the other part of the data: where classes are
/// texts, a class that is only there has its place in the list too, so that both parts number them alike.
pub(super) fn open(files: &[PathBuf], others: &[PathBuf], cache: &Cache) -> Result<Table, OpenError> {
    let Some(first) = files.first() else {
        return Err(OpenError::NoImages { path: PathBuf::new(), others: 0, first_other: None, passed_over: None });
    };
    let others = if Part::open(first)?.has_texts() { others } else { &[] };
    let all = [files, others].concat();
    // The same files give other images where another number of them is ours.
    let kind = format!("parquet, {} for images, version {VERSION}", files.len());
    cache.table(&kind, &all, |unpacking| build(files, others, unpacking))
}

/// Reads bytes as if they were a file. For fuzzing.
pub(super) fn index_bytes(bytes: &[u8]) {
    let open = || Ok(Cursor::new(bytes));
    if let Ok(part) = Part::new(PathBuf::from("bytes"), bytes.len() as u64, open) {
        let parts = [part];
        let others = if parts[0].has_texts() { &parts[..] } else { &[] };
        _ = collect(&parts, others, |_| open(), |_| Ok(())).and_then(|found| found.finish(&parts[0], PathBuf::new()));
    }
}

/// A file and what is in it.
struct Part {
    path: PathBuf,
    bytes: u64,
    footer: Footer,
    columns: Columns,
    /// Bytes that its images are said to take.
    image_bytes: u64,
}

impl Part {
    fn open(path: &Path) -> Result<Self, OpenError> {
        let bytes = std::fs::metadata(path).map_err(|error| refused(path, error))?.len();
        Self::new(path.to_path_buf(), bytes, || File::open(path))
    }

    fn new<F: Read + Seek>(path: PathBuf, bytes: u64, open: impl Fn() -> io::Result<F>) -> Result<Self, OpenError> {
        let footer = open().and_then(|file| Footer::read(file, bytes)).map_err(|error| refused(&path, error))?;
        match Columns::choose(&footer) {
            Ok(columns) => Ok(Self { image_bytes: footer.unpacked(columns.image), path, bytes, footer, columns }),
            Err(problem) => Err(OpenError::Format { path, problem }),
        }
    }

    /// True where labels are texts.
    fn has_texts(&self) -> bool {
        self.columns.label.is_some_and(|label| self.footer.leaves[label].stored == Stored::Bytes)
    }

    /// The name of the column or group that holds a leaf.
    fn top(&self, leaf: usize) -> &str {
        &self.footer.top[self.footer.leaves[leaf].top]
    }

    /// Checks that this file and another are parts of the same data.
    fn agree(&self, other: &Part) -> Result<(), OpenError> {
        let label = |part: &Part| part.columns.label.map(|label| part.top(label).to_owned());
        let what = if self.top(self.columns.image) != other.top(other.columns.image) {
            "images are in another column"
        } else if label(self) != label(other) || self.has_texts() != other.has_texts() {
            "labels are in another column, or of another type"
        } else if self.columns.class_names != other.columns.class_names {
            "classes have other names"
        } else {
            return Ok(());
        };
        let columns = printable(&self.footer.describe()).into_owned();
        let problem = format!(
            "its {what} than in {}. Its columns are: {columns}. Give one data set at a time",
            shown(&other.path)
        );
        Err(OpenError::Format { path: self.path.clone(), problem })
    }
}

fn build(files: &[PathBuf], others: &[PathBuf], unpacking: &mut Unpacking) -> Result<Table, OpenError> {
    let parts = files.iter().map(|path| Part::open(path)).collect::<Result<Vec<_>, _>>()?;
    let others = others.iter().map(|path| Part::open(path)).collect::<Result<Vec<_>, _>>()?;
    unpacking.expect_bytes(parts.iter().map(|part| part.image_bytes).fold(0, u64::saturating_add));
    let (mut writer, pack) = unpacking.create()?;
    let mut full = None;
    let write = |image: &[u8]| {
        unpacking.advance(image.len() as u64);
        writer.write_all(image).map_err(|error| {
            let kind = error.kind();
            full = Some(error);
            kind.into()
        })
    };
    let collected = collect(&parts, &others, |path| File::open(path), write);
    if let Some(error) = full {
        return Err(unpacking.failed(error));
    }
    let collected = collected?;
    unpacking.finish(writer)?;
    collected.finish(&parts[0], pack)
}

/// Reads the rows of all parts, hands their images to `write`, and adds the classes of the others.
fn collect<F: Read + Seek>(
    parts: &[Part],
    others: &[Part],
    open: impl Fn(&Path) -> io::Result<F>,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<Collected, OpenError> {
    let all = || parts.iter().chain(others);
    all().try_for_each(|part| part.agree(&parts[0]))?;
    let mut collected = Collected::new(all().map(|part| part.bytes).fold(0, u64::saturating_add));
    for part in parts {
        let done = collected.add(part, || open(&part.path), &mut write);
        done.map_err(|error| refused(&part.path, error))?;
    }
    for part in others {
        collected.add_classes(part, || open(&part.path)).map_err(|error| refused(&part.path, error))?;
    }
    Ok(collected)
}

/// The error to report for a file.
fn refused(path: &Path, source: io::Error) -> OpenError {
    let path = path.to_path_buf();
    match source.kind() {
        io::ErrorKind::InvalidData => OpenError::Format { path, problem: source.to_string() },
        io::ErrorKind::UnexpectedEof => {
            OpenError::Format { path, problem: "ends too early. Was it copied or downloaded completely?".to_owned() }
        }
        _ => OpenError::Io { path, source },
    }
}
