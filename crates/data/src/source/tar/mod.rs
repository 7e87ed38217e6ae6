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
//! - Without `.cls` members, folders inside the archives are the classes, as they are for a folder source. The held-out
//!   part is labelled by the classes of the training part, or not at all.
//! - A member cut off by the end of the file stays in the list and fails when it is read. What comes after a damaged
//!   header is lost, and a remark says so.

mod header;
mod listing;
mod members;
mod samples;
mod scan;
mod window;

use super::cache::Cache;
use super::ranges::Table;
use super::{OpenError, gzip, parallel};
use header::{BLOCK, Header};
use listing::Listing;
use scan::{Contents, scan};
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

/// The parser's name and version, for the cache.
const KIND: &str = "tar 2";

/// True where a file starts as a tar archive does.
pub(super) fn is_tar(start: &[u8]) -> bool {
    start.first_chunk::<{ BLOCK as usize }>().is_some_and(|block| Header::parse(block).is_ok())
}

/// The images of the archives of both parts, a table for each. The second is empty where nothing is held out.
pub(super) fn open(train: &[PathBuf], test: &[PathBuf], cache: &Cache) -> Result<[Table; 2], OpenError> {
    let files = [train, test].concat();
    // The same archives give other tables where the border between the parts is another.
    let kind = format!("{} for training, {KIND}", train.len());
    let plain = || parallel::map(files.len(), 1, |i| plain(&files[i], cache)).into_iter().collect();
    cache.tables(&kind, &files, plain, |places, _| build(&files, places, train.len()))
}

/// Indexes bytes as if they were the archives of two parts. For fuzzing.
pub(super) fn index_bytes(bytes: &[u8]) {
    let files = [PathBuf::from("bytes"), PathBuf::from("bytes")];
    if let (Ok(train), Ok(test)) = (scan(Cursor::new(bytes)), scan(Cursor::new(bytes))) {
        _ = tables(&files, &files, &[train, test], 1);
    }
}

fn build(files: &[PathBuf], places: &[PathBuf], train: usize) -> Result<[Table; 2], OpenError> {
    let scanned = parallel::map(places.len(), 1, |i| {
        let refused = |source| OpenError::Io { path: files[i].clone(), source };
        File::open(&places[i]).and_then(scan).map_err(refused)
    });
    tables(files, places, &scanned.into_iter().collect::<Result<Vec<_>, _>>()?, train)
}

/// Where the plain archive is: here, or unpacked in the cache.
fn plain(file: &Path, cache: &Cache) -> Result<PathBuf, OpenError> {
    let mut start = Vec::new();
    let read = File::open(file).and_then(|file| file.take(gzip::SIGNATURE.len() as u64).read_to_end(&mut start));
    read.map_err(|source| OpenError::Io { path: file.to_path_buf(), source })?;
    if start == gzip::SIGNATURE { cache.unpacked(file) } else { Ok(file.to_path_buf()) }
}

/// Puts the contents of archives together, part by part. `files` are what the user named, the first `train` of them for
/// training; `places` are where the plain archives are.
fn tables(files: &[PathBuf], places: &[PathBuf], archives: &[Contents], train: usize) -> Result<[Table; 2], OpenError> {
    let several = files.len() > 1;
    let mut train_part = Listing::new(&files[..train], &archives[..train], several)?;
    let mut test_part = Listing::new(&files[train..], &archives[train..], several)?;
    samples::label(&mut train_part, &mut test_part);
    let (train_places, test_places) = places.split_at(train);
    Ok([train_part.into_table(train_places.to_vec()), test_part.into_table(test_places.to_vec())])
}
