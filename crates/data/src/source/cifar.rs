//! CIFAR-10 and CIFAR-100 as their authors publish them in binary: records of a label and an image, and nothing else.

use super::OpenError;
use super::ranges::{Content, Range, Table};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use text::{escape_name, thousands};

const SIDE: usize = 32;
const CHANNELS: usize = 3;
const IMAGE: usize = SIDE * SIDE * CHANNELS;

/// A file of class names longer than this is something else.
const MOST_NAMES: u64 = 1 << 16;

/// Which of the two sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A record is the class and the image.
    Cifar10,
    /// A record is the coarse class, the fine one and the image. The fine one is the label.
    Cifar100,
}

impl Kind {
    fn classes(self) -> usize {
        match self {
            Kind::Cifar10 => 10,
            Kind::Cifar100 => 100,
        }
    }

    /// Names for classes without names.
    fn numbers(self) -> Vec<String> {
        (0..self.classes()).map(|class| class.to_string()).collect()
    }

    /// Bytes before the image. The last of them is the label.
    fn label_bytes(self) -> usize {
        match self {
            Kind::Cifar10 => 1,
            Kind::Cifar100 => 2,
        }
    }
}

/// The images of a list of files, with the names of the classes from another file where there is one.
pub(super) fn open(files: &[PathBuf], names: Option<&Path>, kind: Kind) -> Result<Table, OpenError> {
    let class_names = names.map_or_else(|| Ok(kind.numbers()), |path| class_names(path, kind))?;
    let mut table = empty(files.to_vec(), class_names);
    for (number, path) in files.iter().enumerate() {
        let io = |source| OpenError::Io { path: path.clone(), source };
        let file = File::open(path).map_err(io)?;
        let bytes = file.metadata().map_err(io)?.len();
        add(&mut table, number as u32, path, BufReader::with_capacity(1 << 18, file), bytes, kind)?;
    }
    Ok(table)
}

/// Reads bytes as if they were a file. For fuzzing.
pub(super) fn index_bytes(bytes: &[u8]) {
    for kind in [Kind::Cifar10, Kind::Cifar100] {
        let mut table = empty(Vec::new(), kind.numbers());
        _ = add(&mut table, 0, Path::new("bytes"), bytes, bytes.len() as u64, kind);
    }
}

fn empty(files: Vec<PathBuf>, class_names: Vec<String>) -> Table {
    let content = Content::Planes { height: SIDE, width: SIDE, channels: CHANNELS };
    Table { class_names, ..Table::of_files(files, content) }
}

/// Adds the records of a file of `bytes` bytes, reading it from front to back.
fn add(
    table: &mut Table,
    file: u32,
    path: &Path,
    mut reader: impl Read,
    bytes: u64,
    kind: Kind,
) -> Result<(), OpenError> {
    let wrong = |problem| OpenError::Format { path: path.to_path_buf(), problem };
    let mut record = vec![0; kind.label_bytes() + IMAGE];
    let record_bytes = record.len() as u64;
    if bytes == 0 || !bytes.is_multiple_of(record_bytes) {
        return Err(wrong(format!(
            "{} bytes are not a whole number of {kind:?} records of {} bytes. Was it copied or downloaded completely?",
            thousands(bytes),
            thousands(record.len())
        )));
    }
    let count = bytes / record_bytes;
    if table.ranges.len() as u64 + count > u64::from(u32::MAX) {
        return Err(OpenError::TooMany { path: path.to_path_buf(), count: table.ranges.len() + count as usize });
    }
    let name = escape_name(path.file_name().unwrap_or_default().as_encoded_bytes());
    for i in 0..count {
        reader.read_exact(&mut record).map_err(|source| OpenError::Io { path: path.to_path_buf(), source })?;
        let label = record[kind.label_bytes() - 1];
        if usize::from(label) >= table.class_names.len() {
            return Err(wrong(format!(
                "record {i} has label {label}, but {kind:?} has the classes 0 to {}. Is this a {kind:?} file?",
                table.class_names.len() - 1
            )));
        }
        let offset = i * record_bytes + kind.label_bytes() as u64;
        table.ranges.push(Range { file, offset, bytes: IMAGE as u64 });
        table.names.push(&format!("{name} #{i}"));
        table.labels.push(u32::from(label));
    }
    Ok(())
}

/// Names of the classes, one a line.
fn class_names(path: &Path, kind: Kind) -> Result<Vec<String>, OpenError> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST_NAMES + 1).read_to_end(&mut text));
    read.map_err(|source| OpenError::Io { path: path.to_path_buf(), source })?;
    let text = String::from_utf8_lossy(&text);
    let names: Vec<String> = text.trim_end().lines().map(|name| name.trim().to_owned()).collect();
    if names.len() != kind.classes() {
        let problem = format!(
            "has {} lines, where the {} class names of {kind:?} should be, one a line",
            thousands(names.len()),
            kind.classes()
        );
        return Err(OpenError::Format { path: path.to_path_buf(), problem });
    }
    Ok(names)
}
