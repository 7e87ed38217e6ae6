//! Detecting that indexed files have changed, and naming the cache entry of a list of files.
//!
//! A stamp is everything about a file that is cheap to ask and that a change can hardly leave as it was:
//!
//! - its size and modification time. Both survive `cp -p`, `rsync -t` and `touch -r`, so they prove nothing alone;
//! - on Unix its change time, which the system sets at every write, rename or change of times and no program can choose,
//!   and its inode: a file that took the place of another has a different one;
//! - a digest of its beginning, its end and some places between: all of a small file, 160 KiB of a large one. The ends
//!   are where formats say most: a parquet file has its footer there, a gzip file the checksum of all that it holds.
//!
//! So a file that was moved away and back, or copied with its times, is indexed again although it is the same: that
//! costs time once, where to believe it could cost wrong data. What stays unseen is a change of the middle of a file of
//! the same size under a clock that was set back, or where the file system keeps neither change times nor inodes.

use super::{Fingerprint, OpenError, parallel, read_at};
use random::StableHash;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Bytes that are looked at of the beginning and of the end of a file.
const END: u64 = 64 << 10;
/// Places that are looked at between them, and the bytes of each.
const PLACES: u64 = 8;
const PLACE: u64 = 4 << 10;

/// What is known of a file when it is indexed: a cached index is valid while all stamps are the same.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Its canonical path.
    path: Vec<u8>,
    /// What the names of its images begin with, such as the file name it was opened by, which may be a link's.
    name: Vec<u8>,
    identity: Identity,
    /// The change time in nanoseconds since 1970; 0 where the system has none.
    changed: i128,
}

/// What is known of the content of a file, and which file it is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(super) struct Identity {
    bytes: u64,
    /// Nanoseconds since 1970.
    modified: i128,
    /// 0 where the system has none.
    inode: u64,
    digest: u64,
}

impl Stamp {
    pub(super) fn identity(&self) -> Identity {
        self.identity
    }
}

impl Identity {
    /// Of a file as it is now.
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let about = file.metadata()?;
        let digest = digest(file, about.len())?;
        Ok(Self { bytes: about.len(), modified: nanoseconds(about.modified()?), inode: inode(&about), digest })
    }

    /// Whether an open file is still this one. Cheap: its content is only looked at where the same file, by size and time,
    /// has another inode, as on network file systems that number files anew.
    pub(super) fn is_still(&self, file: &File, about: &Metadata) -> io::Result<bool> {
        if about.len() != self.bytes || nanoseconds(about.modified()?) != self.modified {
            return Ok(false);
        }
        Ok(inode(about) == self.inode || digest(file, self.bytes)? == self.digest)
    }
}

/// The stamps of all files. `names` are what the names of their images begin with.
pub(super) fn stamps(files: &[PathBuf], names: &[String]) -> Result<Vec<Stamp>, OpenError> {
    let stamped = |i: usize| {
        let refused = |source| OpenError::Io { path: files[i].clone(), source };
        stamp(&files[i], names.get(i).map_or("", String::as_str)).map_err(refused)
    };
    parallel::map(files.len(), 1, stamped).into_iter().collect()
}

fn stamp(file: &Path, name: &str) -> io::Result<Stamp> {
    let path = fs::canonicalize(file)?;
    let about = fs::metadata(&path)?;
    // Times have a resolution. Once the last change is older than that, any later change has another time.
    let last = nanoseconds(about.modified()?).max(changed(&about));
    let tick = Duration::from_millis(if last % 1_000_000_000 == 0 { 2000 } else { 20 });
    let age = nanoseconds(SystemTime::now()) - last;
    if let Ok(age) = u64::try_from(age)
        && let Some(rest) = tick.checked_sub(Duration::from_nanos(age))
    {
        std::thread::sleep(rest);
    }
    let opened = File::open(&path)?;
    Ok(Stamp {
        path: path.as_os_str().as_encoded_bytes().to_vec(),
        name: name.as_bytes().to_vec(),
        identity: Identity::of(&opened)?,
        changed: changed(&opened.metadata()?),
    })
}

/// A digest of the beginning, the end and some places between.
fn digest(file: &File, bytes: u64) -> io::Result<u64> {
    let mut hash = StableHash::new();
    let mut buffer = Vec::new();
    let mut add = |start: u64, count: u64| -> io::Result<()> {
        buffer.resize(count as usize, 0);
        read_at::fill(file, &mut buffer, start)?;
        hash.write(&buffer);
        Ok(())
    };
    if bytes <= 2 * END + PLACES * PLACE {
        add(0, bytes)?;
        return Ok(hash.finish());
    }
    add(0, END)?;
    let between = bytes - 2 * END - PLACE;
    (0..PLACES).try_for_each(|i| add(END + between / (PLACES - 1) * i, PLACE))?;
    add(bytes - END, END)?;
    Ok(hash.finish())
}

#[cfg(unix)]
fn inode(about: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(about)
}

#[cfg(unix)]
fn changed(about: &Metadata) -> i128 {
    use std::os::unix::fs::MetadataExt;
    i128::from(about.ctime()) * 1_000_000_000 + i128::from(about.ctime_nsec())
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> u64 {
    0
}

#[cfg(not(unix))]
fn changed(_: &Metadata) -> i128 {
    0
}

/// Nanoseconds since 1970; negative before.
fn nanoseconds(time: SystemTime) -> i128 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => after.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    }
}

/// The name of the cache entry for these files. It depends neither on their content nor on the parser's version, so that
/// a new entry replaces the old one.
pub(super) fn slot(kind: &str, stamps: &[Stamp]) -> String {
    let mut hash = Fingerprint::new();
    hash.add(kind.trim_end_matches(|c: char| c.is_ascii_digit()).as_bytes());
    for stamp in stamps {
        hash.add(&stamp.path);
        hash.add(&stamp.name);
    }
    format!("{:016x}", hash.finish())
}

/// A hash of everything about the files that a change shows in, and of the parser's version.
pub(super) fn version(kind: &str, stamps: &[Stamp]) -> String {
    let mut hash = Fingerprint::new();
    hash.add(kind.as_bytes());
    for Stamp { identity, changed, .. } in stamps {
        hash.add(&identity.bytes.to_le_bytes());
        hash.add(&identity.modified.to_le_bytes());
        hash.add(&identity.inode.to_le_bytes());
        hash.add(&identity.digest.to_le_bytes());
        hash.add(&changed.to_le_bytes());
    }
    format!("{:016x}", hash.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom, Write};

    #[test]
    fn a_slot_is_for_all_versions_of_a_parser_and_a_version_for_one() {
        assert_eq!(slot("test 1", &[]), slot("test 2", &[]));
        assert_ne!(slot("test 1", &[]), slot("other 1", &[]));
        assert_ne!(version("test 1", &[]), version("test 2", &[]));
    }

    #[test]
    fn a_digest_sees_both_ends_and_reads_little_of_a_large_file() {
        let path = std::env::temp_dir().join(format!("data-stamp-{}", std::process::id()));
        let mut file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        // Sparse: a terabyte would take minutes to read, and its digest takes no time.
        let bytes = if file.set_len(1 << 40).is_ok() { 1 << 40 } else { 1 << 20 };
        file.set_len(bytes).unwrap();
        let mut seen = vec![digest(&file, bytes).unwrap()];
        for place in [0, END - 1, bytes - 1, bytes - END] {
            file.seek(SeekFrom::Start(place)).unwrap();
            file.write_all(b"x").unwrap();
            seen.push(digest(&file, bytes).unwrap());
        }
        fs::remove_file(&path).unwrap();
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
