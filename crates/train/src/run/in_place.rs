//! Whether an open file is still the one that its path names. Somebody may have removed or replaced it meanwhile, and what
//! is written to it would be gone with its last handle.

use std::fs::File;
use std::path::Path;

/// Whether `file` is what is at `path`.
pub(super) fn is_in_place(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let identity = |about: std::fs::Metadata| (about.dev(), about.ino());
        match (file.metadata(), std::fs::metadata(path)) {
            (Ok(held), Ok(there)) => identity(held) == identity(there),
            _ => false,
        }
    }
    // Other systems do not let a file be removed while it is open.
    #[cfg(not(unix))]
    {
        let _ = file;
        path.exists()
    }
}
