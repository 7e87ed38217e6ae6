//! Whether files are still the ones that were indexed, and what to call the index of some files.

use super::{Fingerprint, OpenError, parallel};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What tells whether a file is still the one that was indexed.
#[derive(Clone, Serialize, Deserialize, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Its real path, only ever compared.
    path: Vec<u8>,
    /// The name it was asked for by, which is part of what its images are called.
    name: Vec<u8>,
    bytes: u64,
    /// Nanoseconds since 1970.
    modified: i128,
}

/// Asks the system about every file.
pub(super) fn stamps(files: &[PathBuf]) -> Result<Vec<Stamp>, OpenError> {
    let stamped = |file: &PathBuf| stamp(file).map_err(|source| OpenError::Io { path: file.clone(), source });
    parallel::map(files.len(), 1, |i| stamped(&files[i])).into_iter().collect()
}

fn stamp(file: &Path) -> io::Result<Stamp> {
    let path = fs::canonicalize(file)?;
    let mut about = fs::metadata(&path)?;
    // Clocks of file systems tick. Once the tick of the last change is over, any later change has another time.
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

/// Which entry is for these files, whatever their state and the parser's version: the new one replaces the old.
pub(super) fn slot(kind: &str, stamps: &[Stamp]) -> String {
    let mut hash = Fingerprint::new();
    hash.add(kind.trim_end_matches(|c: char| c.is_ascii_digit()).as_bytes());
    for stamp in stamps {
        hash.add(&stamp.path);
        hash.add(&stamp.name);
    }
    format!("{:016x}", hash.finish())
}

/// The state that the files and the parser are in.
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
