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
mod shards;
mod window;

use super::cache::{Cache, Plain};
use super::checksums::{self, VerifiedReader};
use super::preparing::{Preparation, Watch};
use super::ranges::Table;
use super::{OpenError, gzip, parallel};
use header::{BLOCK, Header};
use listing::Listing;
use scan::{Contents, scan};
use std::fs::File;
use std::io::{Cursor, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The parser's name and version, for the cache.
const KIND: &str = "tar 3";

/// True where a file starts as a tar archive does.
pub(super) fn is_tar(start: &[u8]) -> bool {
    start.first_chunk::<{ BLOCK as usize }>().is_some_and(|block| Header::parse(block).is_ok())
}

/// The images of the archives of both parts, a table for each. The second is empty where nothing is held out.
pub(super) fn open(train: &[PathBuf], test: &[PathBuf], cache: &Cache) -> Result<[Table; 2], OpenError> {
    let files = [train, test].concat();
    let names = [shards::names(train), shards::names(test)].concat();
    // The same archives give other tables where the border between the parts is another.
    let kind = format!("{} for training, {KIND}", train.len());
    let mut remarks = Vec::new();
    let plain = || {
        let found = parallel::map(files.len(), 1, |i| plain(&files[i], cache));
        let found = found.into_iter().collect::<Result<Vec<_>, _>>()?;
        let (places, said): (Vec<Plain>, Vec<Vec<String>>) = found.into_iter().unzip();
        remarks = said.concat();
        Ok(places)
    };
    let archives = Archives { files: &files, names: &names, train: train.len() };
    let mut tables = cache.tables(&kind, &files, &names, plain, |places, _| build(&archives, places, cache.watch()))?;
    tables.iter_mut().for_each(|table| table.remarks.extend_from_slice(&remarks));
    Ok(tables)
}

/// Indexes bytes as if they were the archives of two parts. For fuzzing.
pub(super) fn index_bytes(bytes: &[u8]) {
    let files = [PathBuf::from("bytes"), PathBuf::from("bytes")];
    let archives = Archives { files: &files, names: &shards::names(&files), train: 1 };
    let scan = || scan(Cursor::new(bytes), |_| ());
    if let (Ok(train), Ok(test)) = (scan(), scan()) {
        _ = tables(&archives, &files, &[train, test]);
    }
}

/// The archives of both parts.
struct Archives<'a> {
    /// What the user named.
    files: &'a [PathBuf],
    /// What to call each of them.
    names: &'a [String],
    /// How many of them, the first ones, are for training.
    train: usize,
}

fn build(archives: &Archives, places: &[Plain], watch: &Watch) -> Result<[Table; 2], OpenError> {
    let bytes = |place: &Plain| place.path.metadata().map_or(0, |about| about.len());
    watch.expect(Preparation::Indexing, places.iter().map(bytes).fold(0, u64::saturating_add));
    let advance = |bytes| watch.advance(Preparation::Indexing, bytes);
    let scanned = parallel::map(places.len(), 1, |i| {
        let Plain { path, sums } = &places[i];
        let contents = File::open(path).and_then(|file| match sums {
            Some(sums) => scan(VerifiedReader::new(file, sums.clone()), advance),
            None => scan(file, advance),
        });
        contents.map_err(|source| match sums.is_some() && checksums::is_damage(&source) {
            true => OpenError::DamagedEntry { path: path.clone() },
            false => OpenError::Io { path: archives.files[i].clone(), source },
        })
    });
    let paths: Vec<PathBuf> = places.iter().map(|place| place.path.clone()).collect();
    tables(archives, &paths, &scanned.into_iter().collect::<Result<Vec<_>, _>>()?)
}

/// Where the plain archive is, here or unpacked in the cache, and what there is to say about that.
fn plain(file: &Path, cache: &Cache) -> Result<(Plain, Vec<String>), OpenError> {
    let mut start = Vec::new();
    let read = File::open(file).and_then(|file| file.take(gzip::SIGNATURE.len() as u64).read_to_end(&mut start));
    read.map_err(|source| OpenError::Io { path: file.to_path_buf(), source })?;
    if start == gzip::SIGNATURE {
        return cache.unpacked(file);
    }
    Ok((Plain { path: file.to_path_buf(), sums: None }, Vec::new()))
}

/// Puts the contents of archives together, part by part. `places` are where the plain archives are.
fn tables(archives: &Archives, places: &[PathBuf], contents: &[Contents]) -> Result<[Table; 2], OpenError> {
    let Archives { files, names, train } = *archives;
    let several = files.len() > 1;
    let part = |range: Range<usize>| {
        let names = if several { &names[range.clone()] } else { &[] };
        Listing::new(&files[range.clone()], &contents[range], names, several)
    };
    let mut train_part = part(0..train)?;
    let mut test_part = part(train..files.len())?;
    samples::label(&mut train_part, &mut test_part);
    let (train_places, test_places) = places.split_at(train);
    Ok([train_part.into_table(train_places.to_vec()), test_part.into_table(test_places.to_vec())])
}
