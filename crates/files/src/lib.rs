//! Files that are there completely or not at all, also after a power loss.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The environment variable that says where [`cache_folder`] is.
pub const CACHE_VARIABLE: &str = "DINO_VMF_CACHE";

/// Where this user's caches are. What is in it may be deleted at any time.
pub fn cache_folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let below_home = |folder: &str| std::env::home_dir().map(|home| home.join(folder));
    let general = if cfg!(target_os = "macos") {
        below_home("Library/Caches")
    } else if cfg!(windows) {
        set("LOCALAPPDATA")
    } else {
        // The XDG rules: a relative path is to be ignored.
        set("XDG_CACHE_HOME").filter(|path| path.is_absolute()).or_else(|| below_home(".cache"))
    };
    let general = general.filter(|path| path.is_absolute()).unwrap_or_else(std::env::temp_dir);
    set(CACHE_VARIABLE).unwrap_or_else(|| general.join("dino-vmf"))
}

/// How an unfinished file's name ends.
pub const UNFINISHED: &str = ".tmp";

/// Replaces `path` by what `write` writes: under another name first, then synced, renamed, and the folder synced.
///
/// On failure `path` is what it was and the unfinished file is gone, so that a full disk has its space back.
pub fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let unfinished = unfinished(path);
    let written = remove_if_there(&unfinished)
        .and_then(|()| write_and_sync(&unfinished, write))
        .and_then(|()| fs::rename(&unfinished, path))
        .and_then(|()| sync_folder_of(path));
    // The first failure is the one to report; whether the leftover could be removed too changes nothing.
    written.inspect_err(|_| _ = remove_if_there(&unfinished))
}

/// Replaces `path` by these bytes.
pub fn replace_with(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, |file| file.write_all(bytes))
}

fn write_and_sync(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(1 << 20, File::create_new(path)?);
    write(&mut writer)?;
    writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// The name under which a file is written.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    name.into()
}

/// Removes a file; that there is none is as good.
pub fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes the names in the folder of `path` durable: without this a power loss may undo a rename.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }
    // Other systems cannot open a folder as a file, and order their renames themselves.
    #[cfg(not(unix))]
    {
        let _ = path;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_leftover() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        replace_with(&path, b"old").unwrap();
        let failed = replace(&path, |file| file.write_all(b"new").and_then(|()| Err(io::Error::other("unplugged"))));
        assert_eq!(failed.unwrap_err().to_string(), "unplugged");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_leftover_of_a_crash_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        fs::write(unfinished(&path), "half a fi").unwrap();
        replace_with(&path, b"whole").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
