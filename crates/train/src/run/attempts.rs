//! A run that collapses may begin again with other values, in the same folder.
//!
//! First the decision is written: `attempts.json`, which says what was changed and why. Then everything that the attempt
//! has left is moved into `collapsed-1/`, its `identity.json` last. So whenever a process is killed, the next one knows
//! what is left to do: as long as the folder's identity is that of an attempt that was given up, files are still to be
//! moved. Checkpoints of the attempt are dropped but for the one from before its collapse.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use files::sync_folder_of;
use serde_json::{Value, json};

use super::atomic::replace_with;
use super::checkpoint::Checkpoints;
use super::config::{Comparison, RunConfig};
use super::error::RunError;
use super::folder::{BACKBONE_FILE, CHECKPOINTS, CONFIG, METRICS, NOT_FINITE_FILE, RunFolder};
use super::identity::{IDENTITY, Identity};
use super::lock::Lock;
use super::reader::RunReader;
use super::result::RESULT_FILE;
use super::tensorboard::EVENTS;

/// The file's name in a run folder.
pub(super) const ATTEMPTS: &str = "attempts.json";
/// No list of attempts is larger.
const MOST_BYTES: u64 = 1 << 20;

/// A setting that the next attempt has another value of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its name.
    pub key: String,
    /// Its value in the attempt that collapsed.
    pub from: String,
    /// Its value from now on.
    pub to: String,
}

/// An attempt that collapsed and was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The name that the run had: its checkpoints are not those of the next attempt.
    pub run: String,
    /// Steps that were done.
    pub steps: u64,
    /// The step of the first record that told of the collapse.
    pub since: u64,
    /// The step of the checkpoint that is kept; none where there is none from before the collapse.
    pub healthy: Option<u64>,
    /// How it collapsed, as in "it became uniform".
    pub became: String,
    /// What the next attempt changes.
    pub changes: Vec<Change>,
    /// Why that.
    pub reason: String,
}

impl Attempt {
    /// Why the next attempt has another value of a key; none for any other key. `number` is that of the next attempt.
    pub fn why(&self, key: &str, number: usize) -> Option<String> {
        let change = self.changes.iter().find(|change| change.key == key)?;
        Some(format!("attempt {number}: with {} it became {} at step {}", change.from, self.became, self.since))
    }

    /// As JSON, without the run's name: that differs from one run of a command to the next.
    pub fn to_json(&self) -> Value {
        let Self { steps, since, healthy, became, changes, reason, .. } = self;
        let change = |c: &Change| json!({ "key": c.key, "from": c.from, "to": c.to });
        json!({
            "steps": steps, "since": since, "healthy": healthy, "became": became,
            "changes": changes.iter().map(change).collect::<Vec<_>>(), "reason": reason,
        })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let text = |value: &Value, key: &str| value.get(key)?.as_str().map(str::to_owned);
        let number = |key: &str| value.get(key)?.as_u64();
        let change = |c: &Value| Some(Change { key: text(c, "key")?, from: text(c, "from")?, to: text(c, "to")? });
        Some(Self {
            run: text(value, "run")?,
            steps: number("steps")?,
            since: number("since")?,
            healthy: number("healthy"),
            became: text(value, "became")?,
            changes: value.get("changes")?.as_array()?.iter().map(change).collect::<Option<_>>()?,
            reason: text(value, "reason")?,
        })
    }
}

/// A folder whose run was given up, and in which the next attempt is about to begin. The lock stays held.
#[derive(Debug)]
pub struct Vacated {
    pub(super) root: PathBuf,
    pub(super) lock: Lock,
    pub(super) attempts: Vec<Attempt>,
}

impl Vacated {
    /// The attempts so far, of which the last one was just given up.
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// Begins the next attempt, with these settings.
    pub fn begin(self, config: &dyn RunConfig) -> Result<RunFolder, RunError> {
        RunFolder::open_locked(&self.root, config, self.lock, self.attempts)
    }
}

/// Where what an attempt has left is, counted from 1.
pub(super) fn folder_of(root: &Path, number: usize) -> PathBuf {
    root.join(format!("collapsed-{number}"))
}

/// The attempts of the run in a folder that were given up; none in most runs.
pub(super) fn read(root: &Path) -> Result<Vec<Attempt>, RunError> {
    let path = root.join(ATTEMPTS);
    let text = match files::read_text_bounded(&path, MOST_BYTES) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(Vec::new()),
        Err(error) => return Err(RunError::reading(&path, error)),
    };
    let list = serde_json::from_str::<Value>(&text).ok();
    let list = list.as_ref().and_then(|list| list.as_array()?.iter().map(Attempt::from_json).collect());
    list.ok_or(RunError::BadAttempts { path })
}

/// Writes down that the last of these attempts is given up. What it has left is moved by [`clear`].
pub(super) fn write(root: &Path, attempts: &[Attempt]) -> Result<(), RunError> {
    let entry = |attempt: &Attempt| {
        let mut entry = attempt.to_json();
        entry["run"] = json!(attempt.run);
        entry
    };
    let list = Value::Array(attempts.iter().map(entry).collect());
    replace_with(&root.join(ATTEMPTS), format!("{list:#}\n").as_bytes())
}

/// Moves what the last attempt has left out of the next one's way; does nothing where that has been done. May be repeated
/// after a kill at any point. The folder's lock is held.
pub(super) fn clear(root: &Path, attempts: &[Attempt]) -> Result<(), RunError> {
    let Some(last) = attempts.last() else { return Ok(()) };
    let Some(identity) = Identity::of_folder(root)?.filter(|identity| identity.run == last.run) else { return Ok(()) };
    let aside = folder_of(root, attempts.len());
    fs::create_dir_all(&aside).map_err(|source| RunError::from_io("create", &aside, 0, source))?;
    Checkpoints::new(root.join(CHECKPOINTS), 1, identity).remove_all_but(last.healthy)?;
    let failed = |source| RunError::reading(root, source);
    for entry in fs::read_dir(root).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let is_left = [CONFIG, METRICS, CHECKPOINTS, BACKBONE_FILE, RESULT_FILE, NOT_FINITE_FILE];
        if name.to_str().is_some_and(|name| is_left.contains(&name) || name.starts_with(EVENTS)) {
            move_into(&aside, &root.join(name))?;
        }
    }
    sync(&aside)?;
    move_into(&aside, &root.join(IDENTITY))?;
    sync(&aside)
}

/// An error if settings with which the next attempt is to begin differ from those of the last one in more than that one
/// changed: they are those of another run.
pub(super) fn refuse_other(root: &Path, config: &dyn RunConfig, attempts: &[Attempt]) -> Result<(), RunError> {
    let (Some(last), Some(before)) = (attempts.last(), RunReader::open_any_attempt(root)?) else { return Ok(()) };
    let (saved, path) = before.config()?;
    let Comparison::Other(mut differences) =
        config.compare(&saved).map_err(|source| RunError::Config { path, source })?
    else {
        return Ok(());
    };
    differences.retain(|difference| last.changes.iter().all(|change| change.key != difference.key));
    if differences.is_empty() { Ok(()) } else { Err(RunError::OtherRun { path: root.to_owned(), differences }) }
}

fn move_into(folder: &Path, path: &Path) -> Result<(), RunError> {
    let name = path.file_name().unwrap_or_default();
    match fs::rename(path, folder.join(name)) {
        Err(source) if source.kind() != ErrorKind::NotFound => Err(RunError::from_io("move aside", path, 0, source)),
        _ => Ok(()),
    }
}

/// Makes moves into a folder of the run last, on both sides.
fn sync(aside: &Path) -> Result<(), RunError> {
    let sides = [aside.join(IDENTITY), aside.to_owned()];
    sides.iter().try_for_each(|path| sync_folder_of(path).map_err(|source| RunError::from_io("sync", path, 0, source)))
}
