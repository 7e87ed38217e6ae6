//! Who trains into a run folder: a locked file, which the system releases even if the process is killed.
//!
//! The file's text says what nobody can say any more when the process is gone: which process it was, whether it ended in
//! order, and the last step that it saved.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use super::error::RunError;
use super::in_place::is_in_place;

/// The file's name in a run folder.
pub(super) const LOCK: &str = ".lock";
/// Somebody who only looks whether the file is locked holds a lock of his own for a moment.
const ATTEMPTS: u32 = 10;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);

/// Who is, or was, training into a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// A process is at work.
    Training {
        /// As it calls itself: `process 123`.
        holder: String,
    },
    /// The last process ended in order: it finished, was asked to stop, or failed with a message.
    Ended,
    /// The last process was gone from one moment to the next: killed, or the machine went down.
    Killed,
}

/// The lock of a folder, held for as long as this lives.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    path: PathBuf,
    saved: Option<u64>,
    /// Whether this process is the one that the file speaks of.
    has_begun: bool,
}

impl Lock {
    /// Takes the lock of a folder. What the file says stays until the process begins to train: a command that is refused
    /// has nothing to do with what became of the run.
    pub(super) fn take(root: &Path) -> Result<Self, RunError> {
        let path = root.join(LOCK);
        let failed = |source| RunError::from_io("lock", &path, 0, source);
        let mut file =
            File::options().create(true).read(true).write(true).truncate(false).open(&path).map_err(failed)?;
        let mut attempt = 0;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if attempt < ATTEMPTS => attempt += 1,
                Err(TryLockError::WouldBlock) => {
                    return Err(RunError::Busy { path: root.to_owned(), holder: Note::of(&mut file).holder() });
                }
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
            sleep(BETWEEN_ATTEMPTS);
        }
        let saved = Note::of(&mut file).saved;
        Ok(Self { file, path, saved, has_begun: false })
    }

    /// Notes that this process trains.
    pub(super) fn begin(&mut self) -> Result<(), RunError> {
        self.has_begun = true;
        self.write(&format!("process {}", std::process::id())).map_err(|source| self.failed(source))
    }

    /// The last step that this process or one before it has saved.
    pub(super) fn saved(&self) -> Option<u64> {
        self.saved
    }

    /// Notes that a step has been saved. Only a message depends on it, so that it cannot be written is no error.
    pub(super) fn note_saved(&mut self, step: u64) {
        self.saved = Some(step);
        _ = self.write(&format!("process {}", std::process::id()));
    }

    /// For a new run in an old place.
    pub(super) fn forget_saved(&mut self) {
        self.saved = None;
    }

    /// Whether the file at the lock's path is still the one that is locked. It is not where the folder was deleted, moved
    /// away or begun anew.
    pub(super) fn is_in_place(&self) -> Result<bool, RunError> {
        is_in_place(&self.file, &self.path).map_err(|source| RunError::reading(&self.path, source))
    }

    fn failed(&self, source: std::io::Error) -> RunError {
        RunError::from_io("lock", &self.path, 0, source)
    }

    fn write(&mut self, first: &str) -> std::io::Result<()> {
        let saved = self.saved.map_or(String::new(), |step| format!("saved {step}\n"));
        let text = format!("{first}\n{saved}");
        // Over what is there, and cut behind it: a kill in between must not leave a file that says nothing.
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(text.as_bytes())?;
        self.file.set_len(text.len() as u64)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.has_begun {
            _ = self.write("ended");
        }
    }
}

/// What the file says.
struct Note {
    first: String,
    saved: Option<u64>,
}

impl Note {
    fn of(file: &mut File) -> Self {
        let mut text = String::new();
        // Only for messages: that it cannot be read changes nothing else.
        _ = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(256).read_to_string(&mut text));
        let saved = text.lines().find_map(|line| line.strip_prefix("saved ")?.parse().ok());
        Self { first: text.lines().next().unwrap_or_default().trim().to_owned(), saved }
    }

    fn holder(&self) -> String {
        if self.first.is_empty() { "unknown".to_owned() } else { self.first.clone() }
    }
}

/// The last step that a process has saved into a folder, whether or not its checkpoint is still there.
pub(super) fn last_saved(root: &Path) -> Option<u64> {
    Note::of(&mut File::open(root.join(LOCK)).ok()?).saved
}

/// Who trains into a folder, or what became of the last one who did; none in a folder that nobody has locked yet, and on
/// a file system that cannot say.
pub(super) fn activity(root: &Path) -> Option<Activity> {
    let mut file = File::open(root.join(LOCK)).ok()?;
    let is_free = match file.try_lock_shared() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(_)) => return None,
    };
    let note = Note::of(&mut file);
    // Given back at once: a training that starts now must not find it taken. Closing the file would do the same.
    _ = file.unlock();
    Some(match (is_free, note.first.as_str()) {
        (false, _) => Activity::Training { holder: note.holder() },
        (true, "ended") => Activity::Ended,
        (true, "") => return None,
        (true, _) => Activity::Killed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_says_who_trains_and_how_the_last_one_ended() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(activity(folder.path()), None);
        drop(Lock::take(folder.path()).unwrap());
        assert_eq!(activity(folder.path()), None, "somebody looked, and trained nothing");
        let mut lock = Lock::take(folder.path()).unwrap();
        lock.begin().unwrap();
        let holder = format!("process {}", std::process::id());
        assert_eq!(activity(folder.path()), Some(Activity::Training { holder: holder.clone() }));
        let message = Lock::take(folder.path()).unwrap_err().to_string();
        assert!(message.contains(&holder), "{message}");
        lock.note_saved(12);
        drop(lock);
        assert_eq!(activity(folder.path()), Some(Activity::Ended));
        assert_eq!(Lock::take(folder.path()).unwrap().saved(), Some(12), "a later start knows of it");
        std::fs::write(folder.path().join(LOCK), "process 7\nsaved 3\n").unwrap();
        assert_eq!(activity(folder.path()), Some(Activity::Killed));
        drop(Lock::take(folder.path()).unwrap());
        assert_eq!(activity(folder.path()), Some(Activity::Killed), "a command that is refused changes nothing");
    }

    #[test]
    fn whoever_reads_between_two_notes_is_told_something() {
        let folder = tempfile::tempdir().unwrap();
        let mut lock = Lock::take(folder.path()).unwrap();
        lock.begin().unwrap();
        let writer = std::thread::spawn(move || (0..20_000).for_each(|step| lock.note_saved(step % 1000)));
        while !writer.is_finished() {
            let text = std::fs::read_to_string(folder.path().join(LOCK)).unwrap();
            assert!(text.starts_with("process ") || text.starts_with("ended"), "{text:?}");
        }
        writer.join().unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_was_deleted_and_begun_anew_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("run");
        std::fs::create_dir(&root).unwrap();
        let lock = Lock::take(&root).unwrap();
        assert!(lock.is_in_place().unwrap());
        std::fs::remove_dir_all(&root).unwrap();
        assert!(!lock.is_in_place().unwrap());
        std::fs::create_dir(&root).unwrap();
        let _other = Lock::take(&root).unwrap();
        assert!(!lock.is_in_place().unwrap());
    }
}
