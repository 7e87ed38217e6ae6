//! Detecting that indexed files have changed, and naming the cache entry of a list of files.
//!
//! A stamp is everything about a file that is cheap to ask and that a change can hardly leave as it was:
//!
//! - its size and modification time. Both survive `cp -p`, `rsync -t` and `touch -r`, so they prove nothing alone;
//! - on Unix its inode: a file that took the place of another has a different one;
//! - a digest of its beginning, its end and some places between: all of a small file, 160 KiB of a large one. The ends
//!   are where formats say most: a parquet file has its footer there, a gzip file the checksum of all that it holds.
//!
//! Its change time, which the system sets at every write, rename or change of rights and no program can choose, decides
//! whether the digest has to be taken again: while it is the same, with size, time and inode, so is the file. That it
//! changed proves nothing, because `chmod` changes it too: then the digest decides.
//!
//! So a file that was copied with its times is indexed again although it is the same: that costs time once, where to
//! believe it could cost wrong data. What stays unseen is a change in the middle of a large file, in place, of the same
//! size, whose modification time was set back; or, where the file system keeps no inodes, one by a copy with that time.

use super::{Fingerprint, OpenError, parallel, read_at};
use random::StableHash;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Bytes that are looked at of the beginning and of the end of a file.
const END: u64 = 64 << 10;
/// Places that are looked at between them, and the bytes of each.
const PLACES: u64 = 8;
const PLACE: u64 = 4 << 10;

/// Entries of the same paths have names that begin with so many equal digits.
pub(super) const FAMILY_DIGITS: usize = 8;

/// What is known of a file when it is indexed: a cached index is valid while all stamps are the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
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

/// Without the change time: that a file was given other rights is no change of its content.
impl PartialEq for Stamp {
    fn eq(&self, other: &Self) -> bool {
        (&self.path, &self.name, self.identity) == (&other.path, &other.name, other.identity)
    }
}

/// What is known of a file without reading it.
pub(super) struct Look {
    /// Where the user said that it is.
    given: PathBuf,
    path: Vec<u8>,
    name: Vec<u8>,
    bytes: u64,
    modified: i128,
    inode: u64,
    changed: i128,
}

impl Look {
    /// Whether this file is still the one of a stamp, beyond doubt.
    fn is_still(&self, stamp: &Stamp) -> bool {
        let Identity { bytes, modified, inode, .. } = stamp.identity;
        (&self.path, &self.name) == (&stamp.path, &stamp.name)
            && (self.bytes, self.modified, self.inode, self.changed) == (bytes, modified, inode, stamp.changed)
            // Without inodes and change times there is doubt.
            && self.inode != 0
    }
}

impl Identity {
    pub(super) fn inode(&self) -> u64 {
        self.inode
    }

    /// Of a file as it is now.
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let about = file.metadata()?;
        let digest = digest(file, about.len())?;
        Ok(Self { bytes: about.len(), modified: nanoseconds(about.modified()?), inode: inode(&about), digest })
    }

    /// Whether an open file is still this one. Cheap: its content is only looked at where the same file, by size and time,
    /// has another inode, as on network file systems that number files anew, and once for each: `accepted` remembers it.
    pub(super) fn is_still(&self, file: &File, about: &Metadata, accepted: &AtomicU64) -> io::Result<bool> {
        if about.len() != self.bytes || nanoseconds(about.modified()?) != self.modified {
            return Ok(false);
        }
        let inode = inode(about);
        if inode == self.inode || inode == accepted.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let is_same = digest(file, self.bytes)? == self.digest;
        if is_same {
            accepted.store(inode, Ordering::Relaxed);
        }
        Ok(is_same)
    }
}

/// Looks at all files. `names` are what the names of their images begin with.
pub(super) fn look(files: &[PathBuf], names: &[String]) -> Result<Vec<Look>, OpenError> {
    let looked = |i: usize| {
        let refused = |source| OpenError::Io { path: files[i].clone(), source };
        look_at(&files[i], names.get(i).map_or("", String::as_str)).map_err(refused)
    };
    parallel::map(files.len(), 1, looked).into_iter().collect()
}

/// The stamps of files. Of a file that is beyond doubt the one of a `known` stamp, in the same place of the list, nothing
/// is read: a start does not touch a thousand shards of which none has changed.
pub(super) fn stamps(looks: &[Look], known: &[Stamp]) -> Result<Vec<Stamp>, OpenError> {
    let stamped = |i: usize| match known.get(i) {
        Some(known) if looks[i].is_still(known) => Ok(known.clone()),
        _ => stamp(&looks[i]).map_err(|source| OpenError::Io { path: looks[i].given.clone(), source }),
    };
    parallel::map(looks.len(), 1, stamped).into_iter().collect()
}

fn stamp(look: &Look) -> io::Result<Stamp> {
    let file = File::open(&look.given)?;
    let (path, name) = (look.path.clone(), look.name.clone());
    Ok(Stamp { path, name, identity: Identity::of(&file)?, changed: changed(&file.metadata()?) })
}

fn look_at(file: &Path, name: &str) -> io::Result<Look> {
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
    let about = fs::metadata(&path)?;
    Ok(Look {
        given: file.to_path_buf(),
        path: path.as_os_str().as_encoded_bytes().to_vec(),
        name: name.as_bytes().to_vec(),
        bytes: about.len(),
        modified: nanoseconds(about.modified()?),
        inode: inode(&about),
        changed: changed(&about),
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
///
/// Its first [`FAMILY_DIGITS`] are of the paths, the others of the inodes: machines that share a cache may each have a copy
/// of their own under the same path, and must not replace each other's entries. The number of the device is left out: it
/// is the same for the first disk of every machine, and another after each mount of a network file system.
pub(super) fn slot(kind: &str, looks: &[Look]) -> String {
    let (mut paths, mut inodes) = (Fingerprint::new(), Fingerprint::new());
    paths.add(kind.trim_end_matches(|c: char| c.is_ascii_digit()).as_bytes());
    for look in looks {
        paths.add(&look.path);
        paths.add(&look.name);
        inodes.add(&look.inode.to_le_bytes());
    }
    format!("{:08x}{:08x}", paths.finish() >> 32, inodes.finish() >> 32)
}

/// A hash of everything about the files that a change shows in, and of the parser's version.
pub(super) fn version(kind: &str, stamps: &[Stamp]) -> String {
    let mut hash = Fingerprint::new();
    hash.add(kind.as_bytes());
    for Stamp { identity, .. } in stamps {
        hash.add(&identity.bytes.to_le_bytes());
        hash.add(&identity.modified.to_le_bytes());
        hash.add(&identity.inode.to_le_bytes());
        hash.add(&identity.digest.to_le_bytes());
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

    #[cfg(unix)]
    #[test]
    fn a_file_that_nobody_touched_is_not_read_again_and_other_rights_are_no_change() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("data-look-{}", std::process::id()));
        fs::write(&path, b"first").unwrap();
        let files = [path.clone()];
        let looks = || look(&files, &[]).unwrap();
        let first = stamps(&looks(), &[]).unwrap();
        // A digest that no content has shows that it was taken over.
        let mut marked = first.clone();
        marked[0].identity.digest ^= 1;
        assert_eq!(stamps(&looks(), &marked).unwrap(), marked);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let after = stamps(&looks(), &marked).unwrap();
        assert_eq!((&after, slot("x", &looks())), (&first, slot("x", &looks())), "its content was looked at");
        assert_ne!(after[0].changed, first[0].changed);
        assert_eq!(version("x", &after), version("x", &first));
        // Another file in its place has an entry of its own, in the same family.
        let before = slot("x", &looks());
        fs::write(path.with_extension("new"), b"first").unwrap();
        fs::rename(path.with_extension("new"), &path).unwrap();
        let now = slot("x", &looks());
        fs::remove_file(&path).unwrap();
        assert_ne!(now, before);
        assert_eq!(now[..FAMILY_DIGITS], before[..FAMILY_DIGITS]);
    }

    #[test]
    fn an_inode_that_was_accepted_is_not_looked_into_again() {
        let path = std::env::temp_dir().join(format!("data-inode-{}", std::process::id()));
        fs::write(&path, b"content").unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let about = file.metadata().unwrap();
        let other = Identity { inode: inode(&about) + 1, ..Identity::of(&file).unwrap() };
        let accepted = AtomicU64::new(other.inode);
        assert!(other.is_still(&file, &about, &accepted).unwrap());
        assert_eq!(accepted.load(Ordering::Relaxed), inode(&about));
        let wrong = Identity { digest: other.digest ^ 1, ..other };
        assert!(wrong.is_still(&file, &about, &accepted).unwrap(), "by its inode alone");
        assert!(!wrong.is_still(&file, &about, &AtomicU64::new(wrong.inode)).unwrap());
        fs::remove_file(&path).unwrap();
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
