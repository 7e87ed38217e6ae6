//! What can go wrong with a run folder. Each message names the file, the cause and the way out.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::checkpoint::Skipped;
use super::config::Difference;
use super::folder::INITIAL_FILE;

/// Why a run cannot start, go on or be saved.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The path is taken by something that is no folder.
    #[error("{}: is not a folder; give another --out", path.display())]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// The path does not hold a run.
    #[error("{}: holds no run (there is no config.toml in it)", path.display())]
    NotARun {
        /// The path.
        path: PathBuf,
    },
    /// There is nothing at the path.
    #[error("{}: there is no such folder", text::shown(path))]
    NoFolder {
        /// The path.
        path: PathBuf,
    },
    /// The path is a folder of runs.
    #[error(
        "{}: is no run itself, but holds {}: give one of them, {} for instance; `dino-vmf runs {}` lists them",
        text::shown(path), text::count(*runs, "run"), text::shown(first), text::shown(path)
    )]
    HoldsRuns {
        /// The path.
        path: PathBuf,
        /// How many runs are in it.
        runs: usize,
        /// The first of them by name.
        first: PathBuf,
    },
    /// The path is a folder inside a run.
    #[error("{}: is a folder of the run {run}, not the run itself; give {run}", path.display(), run = text::shown(run))]
    InsideRun {
        /// The path.
        path: PathBuf,
        /// The run's folder.
        run: PathBuf,
    },
    /// The folder holds files that are not a run's.
    #[error("{}: already holds other files ({found}); a run needs a folder of its own: give another --out", path.display())]
    Unrelated {
        /// The folder.
        path: PathBuf,
        /// Some of what is in it.
        found: String,
    },
    /// The folder holds a run with other settings.
    #[error(
        "{}: holds another run, which this command does not continue:\n{}\n{}Give another --out, delete the folder if \
         nothing in it is wanted, or give the same --data and the saved settings ({})", path.display(), bullets(differences), hint(differences), saved(path)
    )]
    OtherRun {
        /// The folder.
        path: PathBuf,
        /// The settings that differ.
        differences: Vec<Difference>,
    },
    /// The saved settings cannot be read.
    #[error("{}: the run's saved settings cannot be read: {source}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file that says which run the folder holds is not what was written.
    #[error("{}: does not say which run this is; put back the file that the run was begun with, or give another --out", path.display())]
    BadIdentity {
        /// The file.
        path: PathBuf,
    },
    /// A folder with checkpoints that does not say which run they are of.
    #[error(
        "{}: has checkpoints but no identity.json, which says which of them belong to it: the run was begun by an earlier \
         version of this program, or the file was removed. That version continues the run, or put the file back. Its \
         checkpoints can still be evaluated; to train anew, give another --out", path.display()
    )]
    NoIdentity {
        /// The folder.
        path: PathBuf,
    },
    /// The saved settings are no longer those that the run was begun with, although the command agrees with them.
    #[error(
        "{}: config.toml is not what this run was begun with: somebody has changed it, or another version of this program \
         began the run. Its checkpoints come from other settings, so it is not continued. Put the file back, or give \
         another --out", path.display()
    )]
    SettingsEdited {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is another run's by now, or gone.
    #[error(
        "{}: is no longer the folder that this run was writing to: it has been deleted, moved, or begun anew by another \
         process. Nothing more was written. To keep a run, leave its folder alone until it has ended", path.display()
    )]
    FolderLost {
        /// The folder.
        path: PathBuf,
    },
    /// The list of attempts is not what was written.
    #[error("{}: does not say which attempts of this run collapsed; put the file back, or give another --out", path.display())]
    BadAttempts {
        /// The file.
        path: PathBuf,
    },
    /// Another process has given up an attempt since this one has looked.
    #[error("{}: another process has begun this run anew; run the same command again", path.display())]
    AttemptsChanged {
        /// The folder.
        path: PathBuf,
    },
    /// The checkpoints that a run had saved are not there any more.
    #[error(
        "{}: this run has saved step {step}, but none of its checkpoints is there any more. Put them back, or give another \
         --out to train from the beginning", path.display()
    )]
    CheckpointsGone {
        /// The folder of the checkpoints.
        path: PathBuf,
        /// The last step that was saved.
        step: u64,
    },
    /// Another process trains into the folder.
    #[error("{}: another process ({holder}) is training into this folder; stop it, or give another --out", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
        /// The process, as far as it is known.
        holder: String,
    },
    /// No space left.
    #[error(
        "{}: the disk is full{}. {} Free some space and run the same command again",
        path.display(), bytes(*needed), intact(kept)
    )]
    DiskFull {
        /// The file that did not fit.
        path: PathBuf,
        /// Its size, 0 if unknown.
        needed: u64,
        /// The checkpoint that a new start continues from.
        kept: Option<PathBuf>,
    },
    /// The file is larger than this process may write.
    #[error(
        "{}: is larger than this process may write{}. {} Raise the limit (`ulimit -f`) or ask for another file system, and \
         run the same command again", path.display(), bytes(*needed), intact(kept)
    )]
    TooLarge {
        /// The file that did not fit.
        path: PathBuf,
        /// Its size, 0 if unknown.
        needed: u64,
        /// The checkpoint that a new start continues from.
        kept: Option<PathBuf>,
    },
    /// The folder or disk is read-only.
    #[error("{}: cannot be written ({source}); give an --out where you may write", path.display())]
    NotWritable {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Any other failure of the file system.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A tensor that cannot be stored.
    #[error("tensor `{name}` cannot be saved: {reason}")]
    BadTensor {
        /// Its name.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// A checkpoint of another version of this program, newer than any that can be used.
    #[error("{}: {reason}. Nothing was changed; the version that wrote it continues the run", path.display())]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// The version it has and the one that is read.
        reason: String,
    },
    /// There are checkpoints, but none can be used.
    #[error(
        "{}: no checkpoint is usable:\n{}\nNothing was changed. To train from the beginning, give `pretrain` another --out or \
         move these files away", folder.display(), bullets(skipped)
    )]
    NoValidCheckpoint {
        /// The folder of the checkpoints.
        folder: PathBuf,
        /// Each with what is wrong.
        skipped: Vec<Skipped>,
    },
}

impl RunError {
    /// Sorts a failed write by what a user can do about it. `needed` is the size of what was to be written.
    pub(super) fn from_io(action: &'static str, path: &Path, needed: u64, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => RunError::DiskFull { path, needed, kept: None },
            ErrorKind::FileTooLarge => RunError::TooLarge { path, needed, kept: None },
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => RunError::NotWritable { path, source },
            _ => RunError::Io { action, path, source },
        }
    }

    /// The same error, which names the checkpoint that is left where there was no room for a new one.
    pub(super) fn keeping(self, newest: impl FnOnce() -> Option<PathBuf>) -> Self {
        match self {
            RunError::DiskFull { path, needed, .. } => RunError::DiskFull { path, needed, kept: newest() },
            RunError::TooLarge { path, needed, .. } => RunError::TooLarge { path, needed, kept: newest() },
            other => other,
        }
    }

    /// A failed read: permissions to write do not matter here.
    pub(super) fn reading(path: &Path, source: io::Error) -> Self {
        RunError::Io { action: "read", path: path.to_owned(), source }
    }
}

fn bytes(needed: u64) -> String {
    if needed == 0 { String::new() } else { format!("; {needed} bytes were needed") }
}

/// A word to those who want to train on, or whose weights have changed since.
fn hint(differences: &[Difference]) -> &'static str {
    match differences.iter().any(|difference| difference.key == "epochs") {
        true => {
            "The schedules follow the number of epochs: a run of fewer begins anew, and --extend makes one longer. "
        }
        false => "",
    }
}

/// The flags that name what a run was begun with.
fn saved(path: &Path) -> String {
    let (config, kept) = (path.join("config.toml"), path.join(INITIAL_FILE));
    let config = format!("--recipe {}", text::shell(&config.to_string_lossy()));
    match kept.is_file() {
        // Weights that were given are kept, whatever became of their file.
        true => format!("{config} --init {}, or --adapt", text::shell(&kept.to_string_lossy())),
        false => config,
    }
}

fn bullets<T: std::fmt::Display>(items: &[T]) -> String {
    items.iter().map(|item| format!("  {item}")).collect::<Vec<_>>().join("\n")
}

fn intact(kept: &Option<PathBuf>) -> String {
    match kept {
        Some(path) => format!("The previous checkpoint {} is intact.", path.display()),
        None => "Nothing else was changed.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_is_sorted_by_what_the_user_can_do() {
        let say = |kind: ErrorKind| RunError::from_io("write", Path::new("run/x"), 12, kind.into()).to_string();
        assert!(say(ErrorKind::StorageFull).starts_with("run/x: the disk is full; 12 bytes were needed. Nothing else"));
        assert!(say(ErrorKind::QuotaExceeded).contains("Free some space and run the same command again"));
        assert!(say(ErrorKind::FileTooLarge).starts_with("run/x: is larger than this process may write; 12 bytes"));
        assert!(say(ErrorKind::ReadOnlyFilesystem).contains("give an --out where you may write"));
        assert!(say(ErrorKind::PermissionDenied).contains("give an --out where you may write"));
        assert!(say(ErrorKind::InvalidInput).starts_with("run/x: cannot write: "));
    }

    #[test]
    fn a_full_disk_names_the_checkpoint_that_is_intact() {
        let (path, kept) = ("step-2".into(), Some("step-1".into()));
        let message = RunError::DiskFull { path, needed: 0, kept }.to_string();
        assert!(message.contains("the disk is full. The previous checkpoint step-1 is intact."), "{message}");
    }
}
