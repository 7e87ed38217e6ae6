//! The run folder itself: whose it is, who may write to it, and what is in it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use files::{finished_name, is_unfinished, remove_if_there, sync_folder_of};

use super::atomic::replace_with;
use super::attempts::{self, ATTEMPTS, Attempt, Vacated};
use super::checkpoint::{self, Checkpoints, Recovered};
use super::config::{Comparison, Difference, RunConfig};
use super::error::RunError;
use super::identity::{IDENTITY, Identity};
use super::lock::{LOCK, Lock};
use super::machine::{self, MACHINE, Machine};
use super::metrics::{MetricsLog, Truncated};
use super::reader::RunReader;
use super::result::RESULT_FILE;
use super::tensorboard::EventLog;

pub(super) const CONFIG: &str = "config.toml";
pub(super) const METRICS: &str = "metrics.jsonl";
pub(super) const CHECKPOINTS: &str = "checkpoints";
/// The trained backbone, which a run writes when it stops and at its end.
pub const BACKBONE_FILE: &str = "backbone.safetensors";
/// The page that shows a run.
pub const REPORT_FILE: &str = "report.html";
/// The description of a batch that gave a value which is not finite.
pub const NOT_FINITE_FILE: &str = "not-finite.json";
/// The weights that a run has begun with, where they were given.
pub const INITIAL_FILE: &str = "initial.safetensors";
/// What was remembered of every image when the run was begun.
pub const CENSUS_FILE: &str = "images.census";
/// The files that are replaced as a whole, and of which a process that is killed may leave a beginning behind.
const REPLACED: [&str; 10] = [
    CONFIG,
    IDENTITY,
    ATTEMPTS,
    MACHINE,
    METRICS,
    RESULT_FILE,
    BACKBONE_FILE,
    NOT_FINITE_FILE,
    CENSUS_FILE,
    INITIAL_FILE,
];

/// A run folder that this process, and no other, trains into.
#[derive(Debug)]
pub struct RunFolder {
    root: PathBuf,
    is_new: bool,
    changed: Vec<Difference>,
    /// Changed settings, which take the place of the saved ones when the run goes on.
    unsaved: Option<String>,
    keep: usize,
    identity: Identity,
    lock: Lock,
    attempts: Vec<Attempt>,
}

impl RunFolder {
    /// The attempts of the run in a folder that collapsed and were given up: what they have changed is part of the
    /// settings that continue it.
    pub fn attempts_in(root: &Path) -> Result<Vec<Attempt>, RunError> {
        attempts::read(root)
    }

    /// An error where the folder could not be opened for a run with these settings, because of what is in it. Nothing is written.
    pub fn check(root: &Path, config: &dyn RunConfig) -> Result<(), RunError> {
        refuse_foreign(root)?;
        if is_run(root) { changed(root, config).map(drop) } else { Ok(()) }
    }

    /// Creates the folder for a run with these settings, or opens it if it holds a run that they continue.
    pub fn open(root: &Path, config: &dyn RunConfig) -> Result<Self, RunError> {
        Self::open_after(root, config, &Self::attempts_in(root)?)
    }

    /// The same for settings that take these attempts into account.
    pub fn open_after(root: &Path, config: &dyn RunConfig, known: &[Attempt]) -> Result<Self, RunError> {
        let (lock, attempts) = Self::take(root, known)?;
        Self::open_locked(root, config, lock, attempts)
    }

    /// Takes the lock of a folder, which is made if it is not there, with the attempts that it holds.
    pub(super) fn take(root: &Path, known: &[Attempt]) -> Result<(Lock, Vec<Attempt>), RunError> {
        // Looked at before anything is written: a folder that is not ours stays as it is.
        refuse_foreign(root)?;
        if !root.exists() {
            fs::create_dir_all(root).map_err(|source| RunError::from_io("create", root, 0, source))?;
            sync_folder_of(root).map_err(|source| RunError::from_io("create", root, 0, source))?;
        }
        let lock = Lock::take(root)?;
        // And once more: another process may have started its run here before the lock was ours.
        refuse_foreign(root)?;
        let attempts = attempts::read(root)?;
        if attempts != known {
            return Err(RunError::AttemptsChanged { path: root.to_owned() });
        }
        attempts::clear(root, &attempts)?;
        Ok((lock, attempts))
    }

    pub(super) fn open_locked(
        root: &Path,
        config: &dyn RunConfig,
        mut lock: Lock,
        attempts: Vec<Attempt>,
    ) -> Result<Self, RunError> {
        let is_new = !is_run(root);
        if is_new {
            attempts::refuse_other(root, config, &attempts)?;
        }
        let changed = if is_new { None } else { changed(root, config)? };
        let checkpoints = root.join(CHECKPOINTS);
        let found = if is_new { None } else { Identity::of_folder(root)? };
        let identity = match found {
            Some(found) => found,
            None if !is_new && !checkpoint::list(&checkpoints)?.is_empty() => {
                return Err(RunError::NoIdentity { path: root.to_owned() });
            }
            None => begin(root, config, &mut lock)?,
        };
        if identity.digests != config.digests() || identity.steps != config.total_steps() {
            return Err(RunError::SettingsEdited { path: root.to_owned() });
        }
        lock.begin()?;
        remove_leftovers(root)?;
        fs::create_dir_all(&checkpoints).map_err(|source| RunError::from_io("create", &checkpoints, 0, source))?;
        let unsaved = changed.is_some().then(|| config.to_toml());
        if is_new {
            replace_with(&root.join(CONFIG), config.to_toml().as_bytes())?;
        }
        let (keep, changed) = (config.keep_checkpoints(), changed.unwrap_or_default());
        Ok(Self { root: root.to_owned(), is_new, changed, unsaved, keep, identity, lock, attempts })
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the folder was made by this call, rather than found with a run in it.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Its attempts so far that collapsed and were given up.
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// The name of the run, which its checkpoints carry.
    pub fn run_name(&self) -> &str {
        &self.identity.run
    }

    /// Gives this attempt up: writes down why, and moves what it has left aside. A process that is killed on the way leaves
    /// the rest of that to the next one.
    pub fn vacate(self, attempt: Attempt) -> Result<Vacated, RunError> {
        self.check_own()?;
        let Self { root, lock, mut attempts, .. } = self;
        attempts.push(attempt);
        attempts::write(&root, &attempts)?;
        attempts::clear(&root, &attempts)?;
        Ok(Vacated { root, lock, attempts })
    }

    /// Settings that a run which is continued has had until now, and the values that replace them.
    pub fn changed(&self) -> &[Difference] {
        &self.changed
    }

    /// Saves settings that have changed. Not done by [`RunFolder::open`]: a run that is finished stays what it was.
    pub fn save_changes(&self) -> Result<(), RunError> {
        self.unsaved.as_ref().map_or(Ok(()), |text| replace_with(&self.root.join(CONFIG), text.as_bytes()))
    }

    /// The checkpoints of the run.
    pub fn checkpoints(&self) -> Checkpoints {
        Checkpoints::new(self.root.join(CHECKPOINTS), self.keep, self.identity.clone())
    }

    /// Where the run goes on: see [`Checkpoints::recover`]. Checkpoints that were saved and are gone are an error, as a
    /// run that starts over unasked would cut its log.
    pub fn recover(&self) -> Result<Recovered, RunError> {
        let recovered = self.checkpoints().recover()?;
        match (&recovered.checkpoint, self.lock.saved()) {
            (None, Some(step)) => Err(RunError::CheckpointsGone { path: self.root.join(CHECKPOINTS), step }),
            _ => Ok(recovered),
        }
    }

    /// Notes that a checkpoint has been written.
    pub fn note_saved(&mut self, step: u64) {
        self.lock.note_saved(step);
    }

    /// An error unless the folder is still this run's: somebody may have deleted it, and begun another run in its place.
    /// Asked before anything is written, so that two runs are never mixed. A file that is being written when the folder
    /// goes is gone with it, and cannot be renamed into the new one.
    pub fn check_own(&self) -> Result<(), RunError> {
        let lost = || RunError::FolderLost { path: self.root.clone() };
        if !self.lock.is_in_place()? {
            return Err(lost());
        }
        match Identity::of_folder(&self.root) {
            Ok(Some(found)) if found == self.identity => Ok(()),
            Ok(_) | Err(RunError::BadIdentity { .. }) => Err(lost()),
            // A disk that does not answer is no reason to give the folder up.
            Err(error) => Err(error),
        }
    }

    /// Opens `metrics.jsonl` for a run that goes on after `after` steps, or from its beginning.
    pub fn metrics(&self, after: Option<u64>) -> Result<(MetricsLog, Truncated), RunError> {
        MetricsLog::open(&self.root.join(METRICS), after)
    }

    /// Creates a TensorBoard events file for this start, whose first record has step `first_step`.
    pub fn events(&self, first_step: u64) -> Result<EventLog, RunError> {
        EventLog::create(&self.root, first_step)
    }

    /// Removes the result of a run that goes on: it speaks of a state that is no more.
    pub fn discard_result(&self) -> Result<(), RunError> {
        self.check_own()?;
        let path = self.root.join(RESULT_FILE);
        remove_if_there(&path).map_err(|source| RunError::from_io("remove", &path, 0, source))
    }

    /// Writes down which machine goes on with the run after `step` steps, for people to read.
    pub fn note_machine(&self, machine: &Machine, step: u64) -> Result<(), RunError> {
        self.check_own()?;
        machine::note(&self.root, machine, step)
    }

    /// Writes any other file of the run (a report, the identity of a bad batch) atomically.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, RunError> {
        self.check_own()?;
        let path = self.root.join(name);
        replace_with(&path, bytes)?;
        Ok(path)
    }
}

/// Makes the folder that of a new run.
fn begin(root: &Path, config: &dyn RunConfig, lock: &mut Lock) -> Result<Identity, RunError> {
    let identity = Identity::begin(config.digests(), config.total_steps());
    replace_with(&root.join(IDENTITY), identity.to_json().as_bytes())?;
    // What an earlier run in this place had saved has nothing to do with this one.
    lock.forget_saved();
    Ok(identity)
}

/// Removes what processes that were killed have left of the run's files. Nobody else is writing: the lock is held.
fn remove_leftovers(root: &Path) -> Result<(), RunError> {
    let failed = |source| RunError::reading(root, source);
    for entry in fs::read_dir(root).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if name.to_str().and_then(finished_name).is_some_and(|finished| REPLACED.contains(&finished)) {
            let path = entry.path();
            remove_if_there(&path).map_err(|source| RunError::from_io("remove the leftover", &path, 0, source))?;
        }
    }
    Ok(())
}

/// Whether a folder holds a run.
pub fn is_run(root: &Path) -> bool {
    root.join(CONFIG).is_file()
}

/// In what these settings differ from those of the folder's run, if at all; an error where they are those of another run.
pub(super) fn changed(root: &Path, config: &dyn RunConfig) -> Result<Option<Vec<Difference>>, RunError> {
    let (saved, path) = RunReader::open(root)?.config()?;
    match config.compare(&saved).map_err(|source| RunError::Config { path, source })? {
        Comparison::Same => Ok(None),
        Comparison::Continues(differences) => Ok(Some(differences)),
        Comparison::Other(differences) => Err(RunError::OtherRun { path: root.to_owned(), differences }),
    }
}

/// An error unless the path is free, an empty folder, one that a start of ours left unfinished, or a run.
fn refuse_foreign(root: &Path) -> Result<(), RunError> {
    if !root.exists() {
        return Ok(());
    }
    if !root.is_dir() {
        return Err(RunError::NotAFolder { path: root.to_owned() });
    }
    // The second is left alone for a moment while one attempt makes room for the next.
    if is_run(root) || root.join(ATTEMPTS).is_file() {
        return Ok(());
    }
    let failed = |source| RunError::reading(root, source);
    let mut foreign = Vec::new();
    for entry in fs::read_dir(root).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !is_unfinished_start(&entry.file_name(), &entry.path()) {
            foreign.push(text::escape_name(entry.file_name().as_encoded_bytes()).into_owned());
        }
    }
    if foreign.is_empty() {
        return Ok(());
    }
    foreign.sort();
    let more = foreign.len().saturating_sub(3);
    foreign.truncate(3);
    let found = foreign.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() };
    Err(RunError::Unrelated { path: root.to_owned(), found })
}

/// What a start leaves behind that was killed before it had written its configuration.
fn is_unfinished_start(name: &OsStr, path: &Path) -> bool {
    let is_empty_folder = || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    let is_started = name == LOCK || name == IDENTITY;
    is_started
        || is_unfinished(name, CONFIG)
        || is_unfinished(name, IDENTITY)
        || (name == CHECKPOINTS && is_empty_folder())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Digests, Record};

    /// Settings of two numbers, of which a run may change the second.
    struct Settings(u32, u32);

    impl RunConfig for Settings {
        fn to_toml(&self) -> String {
            format!("{} {}", self.0, self.1)
        }

        fn compare(&self, saved: &str) -> Result<Comparison, Box<dyn std::error::Error + Send + Sync>> {
            let (first, second) = saved.split_once(' ').ok_or("they are not two numbers")?;
            let (first, second): (u32, u32) = (first.parse()?, second.parse()?);
            let difference = |key: &str, saved: u32, now: u32| {
                vec![Difference { key: key.into(), saved: saved.to_string(), now: now.to_string() }]
            };
            Ok(match (first == self.0, second == self.1) {
                (false, _) => Comparison::Other(difference("seed", first, self.0)),
                (true, false) => Comparison::Continues(difference("log_every", second, self.1)),
                (true, true) => Comparison::Same,
            })
        }

        fn digests(&self) -> Digests {
            Digests { recipe: self.0.to_string(), data: "none".into() }
        }

        fn total_steps(&self) -> u64 {
            100
        }

        fn keep_checkpoints(&self) -> usize {
            1
        }
    }

    #[test]
    fn the_same_recipe_continues_a_run_and_a_different_one_is_refused_with_its_differences() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("deep/run");
        assert!(RunFolder::open(&root, &Settings(1, 0)).unwrap().is_new());
        assert!(!RunFolder::open(&root, &Settings(1, 0)).unwrap().is_new());
        let before = fs::read(root.join(CONFIG)).unwrap();
        let message = RunFolder::open(&root, &Settings(2, 0)).unwrap_err().to_string();
        assert!(message.contains("holds another run"), "{message}");
        assert!(message.contains("\n  seed: 1 saved, 2 now\n"), "{message}");
        assert_eq!(fs::read(root.join(CONFIG)).unwrap(), before, "nothing was overwritten");
    }

    #[test]
    fn settings_that_may_change_are_saved_anew() {
        let folder = tempfile::tempdir().unwrap();
        RunFolder::open(folder.path(), &Settings(1, 0)).unwrap();
        let run = RunFolder::open(folder.path(), &Settings(1, 3)).unwrap();
        let changed: Vec<String> = run.changed().iter().map(Difference::to_string).collect();
        assert_eq!(changed, ["log_every: 0 saved, 3 now"]);
        assert_eq!(fs::read_to_string(folder.path().join(CONFIG)).unwrap(), "1 0", "looking changes nothing");
        run.save_changes().unwrap();
        assert_eq!(fs::read_to_string(folder.path().join(CONFIG)).unwrap(), "1 3");
    }

    #[test]
    fn two_processes_cannot_train_into_one_folder() {
        let folder = tempfile::tempdir().unwrap();
        let first = RunFolder::open(folder.path(), &Settings(1, 0)).unwrap();
        let message = RunFolder::open(folder.path(), &Settings(1, 0)).unwrap_err().to_string();
        assert!(message.contains(&format!("another process (process {})", std::process::id())), "{message}");
        drop(first);
        RunFolder::open(folder.path(), &Settings(1, 0)).unwrap();
    }

    #[test]
    fn a_folder_with_other_files_is_refused_and_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["holiday.jpg", "b", "c", "d"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let message = RunFolder::open(folder.path(), &Settings(1, 0)).unwrap_err().to_string();
        assert!(message.contains("already holds other files (b, c, d and 1 more)"), "{message}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
        let file = folder.path().join("b");
        assert!(matches!(RunFolder::open(&file, &Settings(1, 0)), Err(RunError::NotAFolder { .. })));
        assert!(matches!(RunReader::open(folder.path()), Err(RunError::NotARun { .. })));
    }

    #[test]
    fn a_start_that_was_killed_before_its_first_file_can_be_repeated() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(LOCK), "process 1").unwrap();
        fs::write(folder.path().join("config.toml.tmp"), "method = ").unwrap();
        fs::create_dir(folder.path().join(CHECKPOINTS)).unwrap();
        assert!(RunFolder::open(folder.path(), &Settings(1, 0)).unwrap().is_new());
    }

    #[test]
    fn checkpoints_without_a_configuration_are_nobodys_to_overwrite() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(CHECKPOINTS)).unwrap();
        fs::write(folder.path().join("checkpoints/step-00000001.safetensors"), "").unwrap();
        assert!(matches!(RunFolder::open(folder.path(), &Settings(1, 0)), Err(RunError::Unrelated { .. })));
    }

    #[test]
    fn a_damaged_configuration_is_an_error_not_a_new_run() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(CONFIG), "epochs").unwrap();
        let message = RunFolder::open(folder.path(), &Settings(1, 0)).unwrap_err().to_string();
        assert!(message.contains("saved settings cannot be read: they are not two numbers"), "{message}");
    }

    #[test]
    fn a_run_has_its_log_events_checkpoints_and_other_files() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::open(folder.path(), &Settings(1, 0)).unwrap();
        let record = Record::new(0).number("loss", 1.0);
        run.metrics(None).unwrap().0.append(&record).unwrap();
        run.events(0).unwrap().append(&record).unwrap();
        run.checkpoints().write(1, &[], "{}").unwrap();
        run.checkpoints().write(2, &[], "{}").unwrap();
        run.write("report.html", b"<html>").unwrap();
        assert_eq!(fs::read_to_string(run.root().join(METRICS)).unwrap(), "{\"step\":0,\"loss\":1.0}\n");
        let read = RunReader::open(folder.path()).unwrap();
        assert_eq!(read.latest_checkpoint().unwrap().checkpoint.unwrap().step(), 2);
        assert_eq!(read.checkpoints().unwrap().len(), 1);
    }
}
