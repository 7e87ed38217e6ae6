//! The checkpoints of a run: written so that a crash cannot harm an earlier one, read newest first.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use files::safetensors::WriteError;
use files::{finished_name, remove_if_there};

use super::atomic::replace;
use super::error::RunError;
use super::format::{Checkpoint, Damage, TensorRef, unwritten};
use super::identity::Identity;

/// A folder of files `step-00001234.safetensors`, of which those of one run are written and removed. Others may lie among
/// them: they are never used, changed or removed.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    keep: usize,
    owner: Identity,
    /// The newest checkpoint before this step stays, however many newer ones there are.
    spared_before: Option<u64>,
}

/// A checkpoint that could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The file, where it is now.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
    /// Whether the run's own checkpoint is lost. If not, it is somebody else's file.
    pub is_damaged: bool,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path.display(), self.reason)
    }
}

/// Where a run goes on.
#[derive(Debug)]
pub struct Recovered {
    /// The newest usable checkpoint; none in a run that has not saved one yet.
    pub checkpoint: Option<Checkpoint>,
    /// Newer ones that cannot be used, newest first.
    pub skipped: Vec<Skipped>,
}

/// A checkpoint that has been written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The file.
    pub path: PathBuf,
    /// Where somebody else's file of that name is now.
    pub moved: Option<PathBuf>,
}

impl Checkpoints {
    /// The checkpoints of `owner` in `folder`, of which the newest `keep` (at least one) stay.
    pub(super) fn new(folder: PathBuf, keep: usize, owner: Identity) -> Self {
        Self { folder, keep: keep.max(1), owner, spared_before: None }
    }

    /// The same, which also keeps the newest checkpoint from before a step: what a run that has collapsed since may have
    /// to hand over.
    pub fn sparing(self, before: Option<u64>) -> Self {
        Self { spared_before: before, ..self }
    }

    /// All checkpoints by step, newest first. They may be damaged, or another run's.
    pub fn list(&self) -> Result<Vec<(u64, PathBuf)>, RunError> {
        list(&self.folder)
    }

    /// Saves a checkpoint after `step` steps, then removes those that are no longer to be kept.
    ///
    /// The tensors go straight from where they are to the disk. Older checkpoints are removed only when the new one is
    /// durable. Those of a later step are removed too: the run has come back from before them, so they were unusable.
    pub fn write(&self, step: u64, tensors: &[TensorRef<'_>], state: &str) -> Result<Written, RunError> {
        let path = self.folder.join(file_name(step));
        let writer = unwritten(step, tensors, state, &self.owner).map_err(|error| match error {
            WriteError::Tensor { name, problem } => RunError::BadTensor { name, reason: problem.to_string() },
            other => RunError::Io { action: "write", path: path.clone(), source: io::Error::other(other) },
        })?;
        // Somebody may have cleared it away while the run goes on. Only this folder, never those above it: a run that was
        // deleted as a whole does not come back.
        if !self.folder.exists() {
            fs::create_dir(&self.folder).map_err(|source| RunError::from_io("create", &self.folder, 0, source))?;
        }
        let moved = match path.try_exists() {
            Ok(true) if !self.is_own(&path) => Some(move_aside(&path, ".other-run")?),
            _ => None,
        };
        replace(&path, writer.file_size(), |file| writer.write_to(file))
            .map_err(|error| error.keeping(|| self.newest_own()))?;
        let own = self.list()?.into_iter().filter(|(_, path)| self.is_own(path));
        let (later, up_to_now): (Vec<_>, Vec<_>) = own.partition(|&(found, _)| found > step);
        let is_before = |found: u64| self.spared_before.is_some_and(|limit| found < limit);
        let spared = up_to_now.iter().map(|&(found, _)| found).find(|&found| is_before(found));
        let old = up_to_now.iter().skip(self.keep).filter(|(found, _)| Some(*found) != spared);
        for (_, path) in later.iter().chain(old) {
            remove_if_there(path).map_err(|source| RunError::from_io("remove the old checkpoint", path, 0, source))?;
        }
        Ok(Written { path, moved })
    }

    fn is_own(&self, path: &Path) -> bool {
        Checkpoint::is_of(path, &self.owner)
    }

    fn newest_own(&self) -> Option<PathBuf> {
        self.list().unwrap_or_default().into_iter().map(|(_, path)| path).find(|path| self.is_own(path))
    }

    /// The newest own checkpoint whose checksum is right, and the newer ones that were passed over. Changes nothing.
    ///
    /// It is an error if there are checkpoints and none is usable: starting over is not for the program to decide. So is
    /// a file that cannot be read: only a wrong checksum, length or header says that a checkpoint is lost.
    pub fn latest_valid(&self) -> Result<Recovered, RunError> {
        latest_valid(&self.folder, Some(&self.owner))
    }

    /// The newest own checkpoint of a step before this one whose checksum is right; none where there is none.
    pub fn newest_before(&self, limit: u64) -> Result<Option<Checkpoint>, RunError> {
        for (step, path) in self.list()?.into_iter().filter(|&(step, _)| step < limit) {
            match Checkpoint::read_of(&path, Some(&self.owner)) {
                Ok(checkpoint) if checkpoint.step() == step => return Ok(Some(checkpoint)),
                Err(Damage::Io(error)) if error.kind() != ErrorKind::NotFound => {
                    return Err(RunError::reading(&path, error));
                }
                // Another run's, or damaged: an older one may do.
                _ => {}
            }
        }
        Ok(None)
    }

    /// Removes the run's own checkpoints but that of one step, where one is named: a run that is given up needs no more.
    pub(super) fn remove_all_but(&self, kept: Option<u64>) -> Result<(), RunError> {
        let own = self.list()?.into_iter().filter(|(step, path)| Some(*step) != kept && self.is_own(path));
        for (_, path) in own {
            remove_if_there(&path)
                .map_err(|source| RunError::from_io("remove the old checkpoint", &path, 0, source))?;
        }
        Ok(())
    }

    /// As [`Checkpoints::latest_valid`], for the process that goes on training: leftovers of a crash are removed, and
    /// damaged checkpoints are renamed to end in `.damaged`, so that they do not count among those to keep.
    pub fn recover(&self) -> Result<Recovered, RunError> {
        self.recover_by(Checkpoint::read_of)
    }

    /// As [`Checkpoints::recover`], with another way to read a file.
    fn recover_by(&self, read: impl Read) -> Result<Recovered, RunError> {
        let is_leftover = |path: &PathBuf| {
            let name = path.file_name().and_then(OsStr::to_str).and_then(finished_name);
            name.is_some_and(|finished| step_of(Path::new(finished)).is_some())
        };
        for path in files(&self.folder)?.into_iter().filter(is_leftover) {
            remove_if_there(&path).map_err(|source| RunError::from_io("remove the leftover", &path, 0, source))?;
        }
        let mut recovered = latest_valid_by(&self.folder, Some(&self.owner), read)?;
        for skipped in recovered.skipped.iter_mut().filter(|skipped| skipped.is_damaged) {
            skipped.path = move_aside(&skipped.path, ".damaged")?;
        }
        Ok(recovered)
    }
}

/// How a file is read as a checkpoint, of this run where there is one.
trait Read: Fn(&Path, Option<&Identity>) -> Result<Checkpoint, Damage> {}

impl<F: Fn(&Path, Option<&Identity>) -> Result<Checkpoint, Damage>> Read for F {}

/// All checkpoints in a folder by step, newest first. They may be damaged, or of any run.
pub(super) fn list(folder: &Path) -> Result<Vec<(u64, PathBuf)>, RunError> {
    let mut found: Vec<(u64, PathBuf)> =
        files(folder)?.into_iter().filter_map(|path| Some((step_of(&path)?, path))).collect();
    found.sort_by_key(|&(step, _)| Reverse(step));
    Ok(found)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, RunError> {
    let failed = |source| RunError::reading(folder, source);
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed)).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(error)),
    }
}

/// As [`Checkpoints::latest_valid`]. Without an owner, in a run that an earlier version began, any checkpoint will do.
pub(super) fn latest_valid(folder: &Path, owner: Option<&Identity>) -> Result<Recovered, RunError> {
    latest_valid_by(folder, owner, Checkpoint::read_of)
}

fn latest_valid_by(folder: &Path, owner: Option<&Identity>, read: impl Read) -> Result<Recovered, RunError> {
    let mut skipped = Vec::new();
    let last_step = owner.map_or(u64::MAX, |owner| owner.steps);
    for (step, path) in list(folder)? {
        let (reason, is_damaged) = match read(&path, owner) {
            Ok(checkpoint) => match checkpoint.misplaced(step, last_step) {
                None => return Ok(Recovered { checkpoint: Some(checkpoint), skipped }),
                Some(misplaced) => misplaced,
            },
            // A reader beside a running training may see a file vanish: a newer one has been written since.
            Err(Damage::Io(error)) if error.kind() == ErrorKind::NotFound => continue,
            // Nothing is damaged: the disk may answer next time, or another user may read it. Falling back would throw
            // away steps that are there.
            Err(Damage::Io(error)) => return Err(RunError::reading(&path, error)),
            // Nor here: another version of this program can go on from it.
            Err(damage @ Damage::Version { .. }) => {
                return Err(RunError::OtherVersion { path, reason: damage.to_string() });
            }
            Err(damage) => {
                let is_damaged = !matches!(damage, Damage::NotOurs(_) | Damage::Foreign(_));
                (damage.to_string(), is_damaged)
            }
        };
        skipped.push(Skipped { path, reason, is_damaged });
    }
    if skipped.is_empty() {
        return Ok(Recovered { checkpoint: None, skipped });
    }
    Err(RunError::NoValidCheckpoint { folder: folder.to_owned(), skipped })
}

/// Renames a file to one that ends in `ending`, or in `ending` and a number: what was set aside before stays.
fn move_aside(path: &Path, ending: &str) -> Result<PathBuf, RunError> {
    let numbered = |number: usize| {
        let mut aside = path.as_os_str().to_owned();
        aside.push(if number == 1 { ending.to_owned() } else { format!("{ending}-{number}") });
        PathBuf::from(aside)
    };
    let aside = (1..).map(numbered).find(|aside| !aside.exists()).unwrap_or_else(|| numbered(1));
    fs::rename(path, &aside).map_err(|source| RunError::from_io("set the file aside", path, 0, source))?;
    Ok(aside)
}

fn file_name(step: u64) -> String {
    format!("step-{step:08}.safetensors")
}

/// The step in a checkpoint's name; none if that is not exactly how this program names it.
fn step_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let step = name.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse().ok()?;
    (file_name(step) == name).then_some(step)
}

#[cfg(test)]
#[path = "checkpoint_tests.rs"]
mod tests;
