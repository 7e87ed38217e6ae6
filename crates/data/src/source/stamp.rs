//! Detecting that indexed files have changed, and naming the cache entry of a list of files.

use super::{Fingerprint, OpenError, parallel};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The identity of a file when it was indexed: a cached index is valid while all stamps are the same.
#[derive(Clone, Serialize, Deserialize, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Its canonical path.
    path: Vec<u8>,
    /// The file name it was opened by, which may be a link's: names of its images begin with it.
    name: Vec<u8>,
    bytes: u64,
    /// Nanoseconds since 1970.
    modified: i128,
}

/// The stamps of all files.
pub(super) fn stamps(files: &[PathBuf]) -> Result<Vec<Stamp>, OpenError> {
    let stamped = |file: &PathBuf| stamp(file).map_err(|source| OpenError::Io { path: file.clone(), source });
    parallel::map(files.len(), 1, |i| stamped(&files[i])).into_iter().collect()
}

fn stamp(file: &Path) -> io::Result<Stamp> {
    let path = fs::canonicalize(file)?;
    let mut about = fs::metadata(&path)?;
    // Modification times have a resolution. Once the last change is older than that, any later change has another time.
    if let Ok(age) = SystemTime::now().duration_since(about.modified()?) {
        let whole_seconds = nanoseconds(about.modified()?) % 1_000_000_000 == 0;
        let tick = Duration::from_millis(if whole_seconds { 2000 } else { 20 });
        if age < tick {
            std::thread::sleep(tick - age);
            about = fs::metadata(&path)?;
        }
    }
    Ok(Stamp {
        path: path.as_os_str().as_encoded_bytes().to_vec(),
        name: file.file_name().unwrap_or_default().as_encoded_bytes().to_vec(),
        bytes: about.len(),
        modified: nanoseconds(about.modified()?),
    })
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

/// A hash of the files' sizes and modification times and of the parser's version.
pub(super) fn version(kind: &str, stamps: &[Stamp]) -> String {
    let mut hash = Fingerprint::new();
    hash.add(kind.as_bytes());
    for stamp in stamps {
        hash.add(&stamp.bytes.to_le_bytes());
        hash.add(&stamp.modified.to_le_bytes());
    }
    format!("{:016x}", hash.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_for_all_versions_of_a_parser_and_a_version_for_one() {
        assert_eq!(slot("test 1", &[]), slot("test 2", &[]));
        assert_ne!(slot("test 1", &[]), slot("other 1", &[]));
        assert_ne!(version("test 1", &[]), version("test 2", &[]));
    }
}
