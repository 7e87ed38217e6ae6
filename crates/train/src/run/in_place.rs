//! Whether an open file is still the one that its path names. Somebody may have removed or replaced it meanwhile, and what
//! is written to it would be gone with its last handle.

use std::fs::File;
use std::io;
use std::path::Path;

/// Whether `file` is what is at `path`. That the system does not answer is an error: it says nothing about the file.
pub(super) fn is_in_place(file: &File, path: &Path) -> io::Result<bool> {
    let there = match std::fs::metadata(path) {
        Err(error) if is_gone(error.kind()) => return Ok(false),
        other => other?,
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let identity = |about: std::fs::Metadata| (about.dev(), about.ino());
        Ok(identity(file.metadata()?) == identity(there))
    }
    // Other systems do not let a file be removed while it is open.
    #[cfg(not(unix))]
    {
        let _ = (file, there);
        Ok(true)
    }
}

/// Whether an error says that there is nothing at a path.
fn is_gone(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::StaleNetworkFileHandle)
}
