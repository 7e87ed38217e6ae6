//! Files that are there completely or not at all, also after a power loss.
//!
//! A file is written under a temporary name beside its final one, `<name>.<machine>-<process>-<time>-<counter>.tmp`, and
//! renamed when it is complete and on the disk. No two writers share a temporary name, so two processes that replace the same
//! file do not disturb each other: the last rename wins, and readers see one whole file or the other.
//!
//! A writer holds a lock on its unfinished file until that has its final name. The system gives the lock back when the
//! process ends, however it ends, so an unfinished file that can be locked is a leftover, and one that cannot is not. That
//! holds within one machine: on a network file system the locks of others may not be seen. The name therefore says which
//! machine wrote it, and since which start of it; the file of another goes by its age.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use crate::replacement::Replacement;

/// How the name of an unfinished file ends.
pub const UNFINISHED: &str = ".tmp";

/// Where locks prove nothing, an unfinished file that nobody has written to for so long belongs to a process that
/// is gone. Long: to wait for a slow disk is no reason to lose hours of unpacking.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// Names that are tried for an unfinished file, each lost to somebody who tidies up at that very moment.
const TRIES: usize = 100;

/// Large writes: a checkpoint or an unpacked data set has gigabytes.
pub(crate) const BUFFER: usize = 1 << 20;

/// Replaces `path` by what `write` writes: under another name first, then synced, renamed, and the folder synced.
///
/// On failure `path` is what it was and the unfinished file is gone, so that a full disk has its space back. What a
/// process that was killed left behind of the same file is [removed](remove_if_abandoned).
pub fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let mut file = Replacement::begin(path)?;
    write(file.writer())?;
    file.finish()
}

/// Replaces `path` by these bytes.
pub fn replace_with(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, |file| file.write_all(bytes))
}

/// Creates a file on its way to `path`, under an unfinished name, and locks it: as long as it is open, no other process
/// takes it for a leftover. To be renamed before it is closed.
pub fn create_unfinished(path: &Path) -> io::Result<(File, PathBuf)> {
    for _ in 0..TRIES {
        let unfinished = unfinished_path(path);
        let file = File::create_new(&unfinished)?;
        match file.try_lock() {
            // Somebody who tidies up was faster, and is removing it.
            Err(TryLockError::WouldBlock) => continue,
            // A file system without locks: leftovers go by their age there.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        // Or was faster still, and has removed it. Once it is locked and there, it stays.
        if fs::symlink_metadata(&unfinished).is_ok() {
            return Ok((file, unfinished));
        }
    }
    Err(io::Error::other("unfinished files are removed as soon as they are made"))
}

/// A name for a file on its way to `path` that no other process and no other thread is using.
pub fn unfinished_path(path: &Path) -> PathBuf {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let (process, counter) = (std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:x}-{process:x}-{now:x}-{counter:x}{UNFINISHED}", machine().unwrap_or(0)));
    name.into()
}

/// A number for this machine since it was started; none where the system does not tell.
fn machine() -> Option<u64> {
    static MACHINE: OnceLock<Option<u64>> = OnceLock::new();
    *MACHINE.get_or_init(|| {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits: String = boot.chars().filter(char::is_ascii_hexdigit).take(16).collect();
        u64::from_str_radix(&digits, 16).ok().filter(|&number| number != 0)
    })
}

/// Whether the lock of an unfinished file of this name would be seen here.
fn is_of_this_machine(name: &str) -> bool {
    let tag = || name.strip_suffix(UNFINISHED)?.rsplit_once('.').map(|(_, tag)| tag);
    // Earlier versions wrote three numbers, none of them of the machine.
    let written_by = || tag().filter(|tag| tag.split('-').count() == 4)?.split('-').next();
    machine().is_some_and(|number| written_by() == Some(&format!("{number:x}")))
}

/// The name that an unfinished file was to get: `config.toml` for `config.toml.7-1f-18c-0.tmp`, or for
/// `config.toml.1f-18c-0.tmp` and `config.toml.tmp`, as earlier versions wrote. None for a name that does not end in [`UNFINISHED`].
pub fn finished_name(name: &str) -> Option<&str> {
    own_finished_name(name).or_else(|| name.strip_suffix(UNFINISHED))
}

/// The same, for names that nobody but [`unfinished_path`] gives.
fn own_finished_name(name: &str) -> Option<&str> {
    let is_hex = |part: &str| !part.is_empty() && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_tag = |tag: &str| matches!(tag.split('-').count(), 3 | 4) && tag.split('-').all(is_hex);
    let (finished, tag) = name.strip_suffix(UNFINISHED)?.rsplit_once('.')?;
    is_tag(tag).then_some(finished)
}

/// Whether a file of this name is an unfinished one that was to become `of`.
pub fn is_unfinished(name: &OsStr, of: &str) -> bool {
    name.to_str().and_then(finished_name) == Some(of)
}

/// Removes an unfinished file if it is a leftover of a process that was killed: if nobody holds its lock and, unless this
/// machine wrote it, nobody has written to it for a day. True where it is gone.
pub fn remove_if_abandoned(path: &Path) -> bool {
    // Anything but a plain file is none of ours, and opening a pipe would wait.
    if !fs::symlink_metadata(path).is_ok_and(|about| about.is_file()) {
        return false;
    }
    let Ok(file) = File::options().read(true).write(true).open(path) else { return false };
    let is_old = || {
        let modified = file.metadata().and_then(|about| about.modified());
        modified.ok().and_then(|time| time.elapsed().ok()).is_some_and(|age| age > ABANDONED)
    };
    let is_ours = path.file_name().and_then(OsStr::to_str).is_some_and(is_of_this_machine);
    let is_abandoned = match file.try_lock() {
        Ok(()) => is_ours || is_old(),
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(_)) => is_old(),
    };
    // Under the lock, so that whoever has just created it sees that it is gone.
    is_abandoned && fs::remove_file(path).is_ok()
}

/// Removes abandoned files that were to become `path`. Each crash leaves one, under a name that no later write uses.
pub(crate) fn remove_abandoned(path: &Path) {
    let Some(name) = path.file_name().and_then(OsStr::to_str) else { return };
    for entry in fs::read_dir(folder_of(path)).into_iter().flatten().flatten() {
        // Only names with a tag: `features.npy.tmp` may be a file of the user's own.
        if entry.file_name().to_str().and_then(own_finished_name) == Some(name) {
            // The write itself has succeeded: a leftover that cannot be removed is no error.
            _ = remove_if_abandoned(&entry.path());
        }
    }
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
        File::open(folder_of(path))?.sync_all()
    }
    // Other systems cannot open a folder as a file, and order their renames themselves.
    #[cfg(not(unix))]
    {
        let _ = path;
        Ok(())
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_leftover() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        replace_with(&path, b"old").unwrap();
        let failed = replace(&path, |file| file.write_all(b"new").and_then(|()| Err(io::Error::other("unplugged"))));
        assert_eq!(failed.unwrap_err().to_string(), "unplugged");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["config.toml"]);
    }

    #[test]
    fn a_folder_in_the_place_of_the_file_is_an_error_without_a_leftover() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        fs::create_dir(&path).unwrap();
        replace_with(&path, b"new").unwrap_err();
        assert_eq!(names(folder.path()), ["config.toml"]);
    }

    #[test]
    fn a_leftover_of_a_crash_goes_and_what_a_living_process_writes_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        if machine().is_some() {
            fs::write(unfinished_path(&path), b"half").unwrap();
        }
        let others = unfinished_path(&folder.path().join("metrics.toml"));
        fs::write(&others, b"half").unwrap();
        let own = folder.path().join("config.toml.tmp");
        fs::write(&own, b"a file of the user").unwrap();
        let (mut writing, unfinished) = create_unfinished(&path).unwrap();
        // Nothing written for days, as on a disk that hangs.
        writing.set_modified(SystemTime::now() - ABANDONED * 3).unwrap();
        replace_with(&path, b"whole").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        let mut left = ["config.toml".to_owned(), name(&others), name(&own), name(&unfinished)];
        left.sort();
        assert_eq!(names(folder.path()), left);
        writing.write_all(b"later").unwrap();
        fs::rename(&unfinished, &path).unwrap();
        drop(writing);
        assert_eq!(fs::read(&path).unwrap(), b"later");
    }

    #[test]
    fn the_unfinished_file_of_another_machine_goes_when_nobody_wrote_to_it_for_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        let write = |tag: &str, age: Duration| {
            let path = folder.path().join(format!("config.toml.{tag}.tmp"));
            File::create(&path).unwrap().set_modified(SystemTime::now() - age).unwrap();
        };
        // Nobody holds a lock that is seen here, neither of the first two nor of the others.
        write("1-2-3-4", Duration::ZERO);
        write("2-3-5", ABANDONED / 2);
        write("1-2-3-6", ABANDONED * 2);
        write("2-3-7", ABANDONED * 2);
        replace_with(&path, b"whole").unwrap();
        assert_eq!(names(folder.path()), ["config.toml", "config.toml.1-2-3-4.tmp", "config.toml.2-3-5.tmp"]);
    }

    #[test]
    fn whoever_tidies_up_never_takes_a_file_that_was_just_created() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shared");
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    remove_abandoned(&path);
                }
            });
            let written = (0..300).try_for_each(|_| replace_with(&path, b"whole"));
            stop.store(true, Ordering::Relaxed);
            written.unwrap();
        });
    }

    #[test]
    fn an_unfinished_file_is_known_by_its_name() {
        let path = unfinished_path(Path::new("run/config.toml"));
        assert_eq!(path.parent(), Some(Path::new("run")), "renaming works within one folder");
        let name = path.file_name().unwrap();
        assert!(is_unfinished(name, "config.toml"), "{name:?}");
        assert!(!is_unfinished(name, "config"), "{name:?}");
        assert!(is_unfinished("config.toml.tmp".as_ref(), "config.toml"));
        for name in ["config.toml", "config.toml.mine.tmp", "config.toml.1-2.tmp", "config.toml.1--2.tmp", "tmp"] {
            assert!(!is_unfinished(name.as_ref(), "config.toml"), "{name}");
        }
        assert_ne!(unfinished_path(Path::new("a")), unfinished_path(Path::new("a")));
    }

    #[test]
    fn writers_of_the_same_file_do_not_disturb_each_other() {
        const ROUNDS: usize = 100;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shared");
        let contents = [vec![b'a'; 100_000], vec![b'b'; 70_000]];
        replace_with(&path, &contents[0]).unwrap();
        std::thread::scope(|scope| {
            let writers: Vec<_> = contents
                .iter()
                .map(|bytes| scope.spawn(|| (0..ROUNDS).try_for_each(|_| replace_with(&path, bytes))))
                .collect();
            while !writers.iter().all(|writer| writer.is_finished()) {
                assert!(contents.contains(&fs::read(&path).unwrap()), "a mixture of both, or half of one");
            }
            for writer in writers {
                writer.join().unwrap().unwrap();
            }
        });
        assert!(contents.contains(&fs::read(&path).unwrap()));
        assert_eq!(names(folder.path()), ["shared"]);
    }
}
