//! Which format the content of a file is in, whatever its name.

use super::gzip::{self, Gunzip};
use super::{OpenError, found, list, tar};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// A format of files that hold images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Tar,
    Parquet,
    Idx,
    Cifar10,
    Cifar100,
}

/// What a file that the user named is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    /// A text that lists images.
    List,
    /// It holds the images itself.
    Images(Format),
}

impl Format {
    /// What to call files of this format.
    pub(super) fn name(self) -> &'static str {
        match self {
            Format::Tar => "tar archives",
            Format::Parquet => "parquet files",
            Format::Idx => "IDX files",
            Format::Cifar10 => "CIFAR-10 files",
            Format::Cifar100 => "CIFAR-100 files",
        }
    }
}

impl FileKind {
    /// What to call files of this kind.
    pub(super) fn name(self) -> &'static str {
        match self {
            FileKind::List => "lists of images",
            FileKind::Images(format) => format.name(),
        }
    }

    /// The kind of a file.
    pub(super) fn of(path: &Path) -> Result<Self, OpenError> {
        let wrong = |problem: &str| OpenError::Format { path: path.to_path_buf(), problem: problem.to_owned() };
        let refused = |source| OpenError::Io { path: path.to_path_buf(), source };
        let about = fs::metadata(path).map_err(refused)?;
        if !about.is_file() {
            return Err(wrong("neither a file nor a folder"));
        }
        let start = start(File::open(path).map_err(refused)?).map_err(refused)?;
        if start.starts_with(&gzip::SIGNATURE) {
            let packed = Gunzip::new(File::open(path).map_err(refused)?);
            let inside = self::start(packed).map_err(|error| gzip::refused(path, error))?;
            return by_content(path, &inside)
                .map(FileKind::Images)
                .ok_or_else(|| wrong("gzip, but neither a tar archive nor an IDX file inside"));
        }
        if let Some(format) = by_content(path, &start) {
            return Ok(FileKind::Images(format));
        }
        let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default().to_ascii_lowercase();
        if let Some(problem) = known_problem(&start, &extension) {
            return Err(wrong(problem));
        }
        if extension == "bin" {
            return Ok(FileKind::Images(cifar(path, about.len())));
        }
        if list::EXTENSIONS.contains(&extension.as_str()) {
            return Ok(FileKind::List);
        }
        Err(OpenError::UnknownFile { path: path.to_path_buf(), start: start[..start.len().min(8)].to_vec() })
    }
}

/// Enough of a file to know it.
fn start(input: impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    input.take(512).read_to_end(&mut start)?;
    Ok(start)
}

fn by_content(path: &Path, start: &[u8]) -> Option<Format> {
    let is_tar_name = || path.file_name().and_then(OsStr::to_str).is_some_and(found::is_tar_name);
    match start {
        // Nothing, or the zeros that end an archive: a shard without images, which only its name tells.
        _ if start.iter().all(|&byte| byte == 0) && is_tar_name() => Some(Format::Tar),
        [b'P', b'A', b'R', b'1', ..] => Some(Format::Parquet),
        // Two zero bytes, the type (unsigned bytes), the number of dimensions.
        [0, 0, 8, 1..=4, ..] => Some(Format::Idx),
        _ => tar::is_tar(start).then_some(Format::Tar),
    }
}

/// CIFAR files have no signature: the length of a record, or else the name, tells the two apart.
fn cifar(path: &Path, bytes: u64) -> Format {
    let (ten, hundred) = (bytes.is_multiple_of(3073), bytes.is_multiple_of(3074));
    let hundred_by_name = matches!(path.file_name().and_then(OsStr::to_str), Some("train.bin" | "test.bin"));
    if hundred && !ten || hundred_by_name && hundred == ten { Format::Cifar100 } else { Format::Cifar10 }
}

/// Files that people give by mistake, and what to do about it.
fn known_problem(start: &[u8], extension: &str) -> Option<&'static str> {
    let packed = |kind: &[u8]| start.starts_with(kind);
    Some(match start {
        [] => "the file is empty. Was it copied or downloaded completely?",
        _ if packed(b"version https://git-lfs") => {
            "a Git LFS pointer, not the file itself. `git lfs pull` in its repository fetches it"
        }
        _ if packed(b"<!DOCTYPE") || packed(b"<!doctype") || packed(b"<html") => {
            "a web page, not data. The download needs another address, or a login"
        }
        _ if packed(b"PK\x03\x04") => "a zip archive. Unpack it and give the folder",
        _ if packed(b"7z\xbc\xaf") || packed(b"Rar!") => "an archive. Unpack it and give the folder",
        _ if packed(b"\xfd7zXZ") || packed(b"BZh") || packed(b"\x28\xb5\x2f\xfd") => {
            "packed with xz, bzip2 or zstd. Unpack it first; tar archives are read plain or with gzip"
        }
        _ if packed(&[0xff, 0xd8, 0xff]) || packed(b"\x89PNG") => {
            "a single image. Give the folder that holds the images"
        }
        _ if extension == "parquet" => "not a parquet file, although its name says so: it does not start with PAR1",
        _ if extension == "tar" => "not a tar archive, although its name says so: its first header is damaged",
        _ if matches!(extension, "gz" | "tgz") => "not a gzip file, although its name says so",
        _ => return None,
    })
}
