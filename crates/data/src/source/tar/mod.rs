//! Images in tar archives: one, or many shards that are one source; plain, or gzip, which is unpacked once.
//!
//! An archive is only indexed: where each image starts and how long it is. Names are what people see, never paths to
//! write to, so `../` in them does no harm. The header parser is our own: those of public crates read the records of
//! long names into memory at whatever size the archive claims.
//!
//! - Images are regular files with the extension of an image. Hidden files are passed over. Links and sparse files are
//!   left out and counted.
//! - In the way of WebDataset, members that share the path up to the first dot of the file name are one sample, as soon
//!   as something other than an image lies beside an image. A sample has one image, and its `.cls` member is its class
//!   number. An archive of images alone is like a folder: each counts.
//! - Without `.cls` members, folders inside the archives are the classes, as they are for a folder source.
//! - A member cut off by the end of the file stays in the list and fails when it is read. What comes after a damaged
//!   header is lost, and a remark says so.

mod header;
mod members;
mod samples;
mod scan;
mod window;

use super::cache::Cache;
use super::gzip::{self, Gunzip};
use super::ranges::{Content, Names, Range, Table};
use super::unpacking::Unpacking;
use super::{OpenError, parallel, printable};
use header::{BLOCK, Header};
use members::Damage;
use scan::{Contents, Counted, scan};
use std::fs::File;
use std::io::{self, Cursor, Read, Seek};
use std::path::{Path, PathBuf};

/// The parser's name and version, for the cache.
const KIND: &str = "tar 1";

/// Damaged archives that are named one by one.
const NAMED: usize = 3;

/// True where a file starts as a tar archive does.
pub(super) fn is_tar(start: &[u8]) -> bool {
    start.first_chunk::<{ BLOCK as usize }>().is_some_and(|block| Header::parse(block).is_ok())
}

/// The images of all archives, as one table.
pub(super) fn open(files: &[PathBuf], cache: &Cache) -> Result<Table, OpenError> {
    cache.table(KIND, files, |unpacking| build(files, unpacking))
}

/// Indexes bytes as if they were a file. For fuzzing.
pub(super) fn index_bytes(bytes: &[u8]) {
    if let Ok(contents) = scan(Cursor::new(bytes)) {
        let path = PathBuf::from("bytes");
        _ = table(std::slice::from_ref(&path), vec![path.clone()], vec![contents]);
    }
}

fn build(files: &[PathBuf], unpacking: &mut Unpacking) -> Result<Table, OpenError> {
    let mut places = files.to_vec();
    let mut found: Vec<Option<io::Result<Contents>>> = (0..files.len()).map(|_| None).collect();
    let mut packed = Vec::new();
    let mut packed_bytes = 0;
    for (i, file) in files.iter().enumerate() {
        let bytes = gzip_bytes(file).map_err(|source| OpenError::Io { path: file.clone(), source })?;
        packed.extend(bytes.map(|_| i));
        packed_bytes += bytes.unwrap_or(0);
    }
    // Images hardly shrink, so the packed size is a fair guess.
    unpacking.expect_bytes(packed_bytes);
    for i in packed {
        let (unpacked, place) = unpack(&files[i], unpacking)?;
        found[i] = Some(scan(unpacked));
        places[i] = place;
    }
    parallel::for_each(&mut found, 1, |i, found| {
        found.get_or_insert_with(|| File::open(&files[i]).and_then(scan));
    });
    let mut contents = Vec::with_capacity(files.len());
    for (file, found) in files.iter().zip(found) {
        match found {
            Some(Ok(found)) => contents.push(found),
            Some(Err(source)) => return Err(OpenError::Io { path: file.clone(), source }),
            None => {}
        }
    }
    table(files, places, contents)
}

/// The size of a gzip file; none where it is another.
fn gzip_bytes(file: &Path) -> io::Result<Option<u64>> {
    let file = File::open(file)?;
    let bytes = file.metadata()?.len();
    let mut start = Vec::new();
    file.take(gzip::SIGNATURE.len() as u64).read_to_end(&mut start)?;
    Ok((start == gzip::SIGNATURE).then_some(bytes))
}

/// Unpacks a gzip file into the cache folder.
fn unpack(file: &Path, unpacking: &mut Unpacking) -> Result<(File, PathBuf), OpenError> {
    let input = File::open(file).map_err(|source| OpenError::Io { path: file.to_path_buf(), source })?;
    let mut input = Gunzip::new(input);
    let (mut writer, place) = unpacking.create()?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        let count = input.read(&mut buffer).map_err(|error| {
            let problem = format!("damaged gzip data: {error}. Was the file copied or downloaded completely?");
            OpenError::Format { path: file.to_path_buf(), problem }
        })?;
        if count == 0 {
            break;
        }
        io::Write::write_all(&mut writer, &buffer[..count]).map_err(|error| unpacking.failed(error))?;
    }
    let mut unpacked = unpacking.finish(writer)?;
    unpacked.rewind().map_err(|error| unpacking.failed(error))?;
    Ok((unpacked, place))
}

/// Puts the contents of archives together. `files` are what the user named, `places` where the plain archives are.
fn table(files: &[PathBuf], places: Vec<PathBuf>, archives: Vec<Contents>) -> Result<Table, OpenError> {
    let mut remarks = Vec::new();
    damage(files, &archives, &mut remarks)?;
    let (mut unusable, mut others, mut extra) = (Counted::default(), Counted::default(), Counted::default());
    let samples = archives.iter().any(|archive| archive.samples);
    let mut images: Vec<(u32, &str)> = Vec::new();
    let mut ranges = Vec::new();
    for (file, archive) in archives.iter().enumerate() {
        unusable.merge(archive.unusable.clone());
        others.merge(archive.others.clone());
        let chosen = if samples { samples::choose(archive, &mut extra) } else { vec![true; archive.ranges.len()] };
        let file = file as u32;
        for ((name, &(offset, bytes)), _) in archive.images.iter().zip(&archive.ranges).zip(chosen).filter(|(_, c)| *c)
        {
            images.push((file, name));
            ranges.push(Range { file, offset, bytes });
        }
    }
    let first_file = || files.first().cloned().unwrap_or_default();
    if images.is_empty() {
        let first_other = unusable.first.or(others.first).map(|name| printable(&name).into_owned());
        return Err(OpenError::NoImages { path: first_file(), others: unusable.count + others.count, first_other });
    }
    if images.len() > u32::MAX as usize {
        return Err(OpenError::TooMany { path: first_file(), count: images.len() });
    }
    for (counted, what) in [
        (&unusable, "image(s) left out that are links, sparse files or have names without end"),
        (&extra, "image(s) left out that belong to a sample with a better one"),
    ] {
        if let Some(first) = &counted.first {
            remarks.push(format!("{} {what}, the first: {}", counted.count, printable(first)));
        }
    }
    let (labels, class_names) = if archives.iter().any(|archive| !archive.labels.is_empty()) {
        samples::stated_labels(&archives, &images, &mut remarks)
    } else {
        samples::folder_labels(&images, &mut remarks)
    };
    let mut names = Names::default();
    let shard = |file: u32| files[file as usize].file_name().unwrap_or_default().to_string_lossy();
    for &(file, name) in &images {
        if files.len() > 1 { names.push(&format!("{}/{name}", shard(file))) } else { names.push(name) }
    }
    Ok(Table { files: places, content: Content::File, ranges, names, labels, class_names, remarks })
}

/// Remarks about damaged archives; an error where one is no archive at all.
fn damage(files: &[PathBuf], archives: &[Contents], remarks: &mut Vec<String>) -> Result<(), OpenError> {
    let mut damaged = 0;
    for (file, archive) in files.iter().zip(archives) {
        let Some(damage) = &archive.damage else { continue };
        damaged += 1;
        let shown = file.display();
        let remark = match damage {
            Damage::At(0) => {
                let problem = "not a tar archive: its first header is damaged".to_owned();
                return Err(OpenError::Format { path: file.clone(), problem });
            }
            Damage::At(byte) => format!("{shown}: damaged at byte {byte}; what comes after is not used"),
            Damage::CutShort => match &archive.last {
                Some(name) => format!("{shown}: ends in the middle of {}. Was it copied completely?", printable(name)),
                None if archive.images.len() + archive.others.count + archive.unusable.count > 0 => {
                    format!("{shown}: is cut short. Was it copied completely?")
                }
                None => {
                    let problem = "ends before its first file. Was it copied completely?".to_owned();
                    return Err(OpenError::Format { path: file.clone(), problem });
                }
            },
        };
        if damaged <= NAMED {
            remarks.push(remark);
        }
    }
    if damaged > NAMED {
        remarks.push(format!("{} more archives are damaged in the same way", damaged - NAMED));
    }
    Ok(())
}
