//! A run for those who only read it: its settings, its log, its result and its checkpoints.
//!
//! Nothing here writes or waits, so that a run can be read while it trains.

use std::fs::{self, File};
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use files::{Unbounded, read_line_bounded};
use serde_json::Value;

use super::attempts::{self, Attempt};
use super::checkpoint::{self, Recovered};
use super::error::RunError;
use super::folder::{BACKBONE_FILE, CHECKPOINTS, CONFIG, METRICS, is_run};
use super::format::{Checkpoint, Damage};
use super::identity::{IDENTITY, Identity};
use super::lock::{self, Activity};
use super::machine::{self, MachineSince};
use super::result::{RESULT_FILE, ResultError, RunResult, checksum};

/// The settings of a run have a few KiB, and so has a record of its log.
const CONFIG_BYTES: u64 = 1 << 20;
const LINE_BYTES: u64 = 1 << 20;
/// The end of a log in which its last record is looked for.
const END_BYTES: u64 = 1 << 14;

/// A run to be read.
///
/// ```no_run
/// let run = train::run::RunReader::open("runs/photos".as_ref())?;
/// for record in run.metrics()? {
///     println!("{} {}", record["step"], record["loss"]);
/// }
/// # Ok::<(), train::run::RunError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RunReader {
    root: PathBuf,
}

impl RunReader {
    /// The run in a folder; an error where there is none.
    pub fn open(root: &Path) -> Result<Self, RunError> {
        if is_run(root) {
            return Ok(Self { root: root.to_owned() });
        }
        let path = root.to_owned();
        if !root.exists() {
            return Err(RunError::NoFolder { path });
        }
        let above = std::path::absolute(root).ok().and_then(|path| path.parent().map(Path::to_owned));
        if let Some(run) = above.filter(|above| root.is_dir() && is_run(above)) {
            return Err(RunError::InsideRun { path, run });
        }
        let mut within = runs_in(root);
        if within.is_empty() {
            // As the folder of a study, or the one that commands were given in, has them.
            within = runs_in(&root.join("runs"));
        }
        Err(match within.first() {
            Some(first) => RunError::HoldsRuns { path, runs: within.len(), first: first.clone() },
            None => RunError::NotARun { path },
        })
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Its log.
    pub fn log_file(&self) -> PathBuf {
        self.root.join(METRICS)
    }

    /// The file that whoever trains it holds locked.
    pub fn lock_file(&self) -> PathBuf {
        self.root.join(lock::LOCK)
    }

    /// All files that tell of it, but for its checkpoints and its weights. Not all of them need to be there.
    pub fn told_in(&self) -> [PathBuf; 7] {
        let names = [CONFIG, METRICS, RESULT_FILE, IDENTITY, attempts::ATTEMPTS, lock::LOCK, machine::MACHINE];
        names.map(|name| self.root.join(name))
    }

    /// A run that is there, or was until its last attempt was given up and the next one was about to begin; none where
    /// there is neither. What was not changed between the two has the same settings in both.
    pub fn open_any_attempt(root: &Path) -> Result<Option<Self>, RunError> {
        let places = [root.to_owned(), attempts::folder_of(root, attempts::read(root)?.len())];
        Ok(places.into_iter().find(|place| is_run(place)).map(|root| Self { root }))
    }

    /// Its attempts that collapsed and were given up.
    pub fn attempts(&self) -> Result<Vec<Attempt>, RunError> {
        attempts::read(&self.root)
    }

    /// The machines that it was computed on, oldest first; none in a run of an earlier version.
    pub fn machines(&self) -> Vec<MachineSince> {
        machine::read(&self.root)
    }

    /// The text of its settings, and the file that they are in.
    pub fn config(&self) -> Result<(String, PathBuf), RunError> {
        let path = self.root.join(CONFIG);
        let text = files::read_text_bounded(&path, CONFIG_BYTES).map_err(|source| RunError::reading(&path, source))?;
        Ok((text, path))
    }

    /// Whose checkpoints are its own; none in a run that an earlier version began.
    pub fn identity(&self) -> Result<Option<Identity>, RunError> {
        Identity::of_folder(&self.root)
    }

    /// Who trains it, or what became of the last process that did; none if that is not known.
    pub fn activity(&self) -> Option<Activity> {
        lock::activity(&self.root)
    }

    /// The last step that was saved, whether or not its checkpoint is still there; none where nobody has left a word.
    pub fn last_saved(&self) -> Option<u64> {
        lock::last_saved(&self.root)
    }

    /// The checkpoints in its folder by step, newest first. They may be damaged, or another run's.
    pub fn checkpoints(&self) -> Result<Vec<(u64, PathBuf)>, RunError> {
        checkpoint::list(&self.root.join(CHECKPOINTS))
    }

    /// Reads one of them, which must be its own.
    pub fn checkpoint(&self, path: &Path) -> Result<Result<Checkpoint, Damage>, RunError> {
        Ok(Checkpoint::read_of(path, self.identity()?.as_ref()))
    }

    /// Its newest own checkpoint whose checksum is right, and the newer ones that cannot be used.
    pub fn latest_checkpoint(&self) -> Result<Recovered, RunError> {
        checkpoint::latest_valid(&self.root.join(CHECKPOINTS), self.identity()?.as_ref())
    }

    /// The records of its log so far. A line that is no record, such as one that is just being written, is left out.
    pub fn metrics(&self) -> Result<Vec<Value>, RunError> {
        let mut records = Vec::new();
        self.each_record(|record| records.push(record))?;
        Ok(records)
    }

    /// Visits the same records one after the other: the log of a long run is large.
    pub fn each_record(&self, mut visit: impl FnMut(Value)) -> Result<(), RunError> {
        let path = self.root.join(METRICS);
        let failed = |source| RunError::reading(&path, source);
        let file = match fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(error)),
            // Asked before opening: opening a pipe waits for somebody to write.
            Ok(about) if !about.is_file() => return Err(failed(Unbounded::NotAFile.into())),
            Ok(_) => File::open(&path).map_err(failed)?,
        };
        let (mut input, mut line, mut number) = (BufReader::new(file), Vec::new(), 0);
        while read_line_bounded(&mut input, &mut line, &mut number, LINE_BYTES).map_err(failed)? {
            let record = serde_json::from_slice::<Value>(&line);
            record.into_iter().filter(|record| record.get("step").is_some()).for_each(&mut visit);
        }
        Ok(())
    }

    /// The last record that has this key.
    pub fn last_record(&self, key: &str) -> Result<Option<Value>, RunError> {
        let mut last = None;
        self.each_record(|record| {
            if record.get(key).is_some() {
                last = Some(record);
            }
        })?;
        Ok(last)
    }

    /// The step of the last record of its log, of which only the end is read; none where it cannot be told.
    pub fn last_step(&self) -> Option<u64> {
        let path = self.root.join(METRICS);
        let length = fs::metadata(&path).ok().filter(|about| about.is_file())?.len();
        let (mut file, mut end) = (File::open(&path).ok()?, Vec::new());
        file.seek(SeekFrom::Start(length.saturating_sub(END_BYTES))).ok()?;
        file.take(END_BYTES).read_to_end(&mut end).ok()?;
        // The first piece may be half a line, and so may the last.
        let lines = end.rsplit(|byte| *byte == b'\n');
        lines
            .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
            .find_map(|record| record.get("step")?.as_u64())
    }

    /// Whether its backbone is there, byte for byte what a result says it is.
    pub fn has_backbone_of(&self, result: &RunResult) -> bool {
        let found = fs::read(self.root.join(BACKBONE_FILE)).ok();
        found.is_some_and(|bytes| result.backbone == Some(checksum(&bytes)))
    }

    /// Its result, if it has one for this many steps, or one that says why it ended before.
    pub fn result(&self, steps: u64) -> Option<RunResult> {
        self.checked_result(steps).ok().flatten()
    }

    /// The same, where a file that is there and is not the result of so many steps is an error. A run that collapsed has
    /// taken fewer.
    pub fn checked_result(&self, steps: u64) -> Result<Option<RunResult>, ResultError> {
        match RunResult::open(&self.root)? {
            Some(RunResult { steps: found, collapsed: None, .. }) if found != steps => {
                Err(ResultError::OtherSteps { path: self.root.join(RESULT_FILE), found, steps })
            }
            result => Ok(result),
        }
    }
}

/// The runs in a folder, by name.
fn runs_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut runs: Vec<PathBuf> = entries.filter(|path| is_run(path)).collect();
    runs.sort();
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_record_with_a_key_is_found_behind_torn_and_other_lines() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(RunReader::open(folder.path()), Err(RunError::NotARun { .. })));
        let of_runs = tempfile::tempdir().unwrap();
        for name in ["b", "a"] {
            fs::create_dir(of_runs.path().join(name)).unwrap();
            fs::write(of_runs.path().join(name).join(CONFIG), "").unwrap();
        }
        let held = RunReader::open(of_runs.path()).unwrap_err();
        assert!(matches!(&held, RunError::HoldsRuns { runs: 2, first, .. } if first.ends_with("a")), "{held}");
        let of_study = tempfile::tempdir().unwrap();
        fs::rename(of_runs.path(), of_study.path().join("runs")).unwrap();
        let held = RunReader::open(of_study.path()).unwrap_err();
        assert!(matches!(&held, RunError::HoldsRuns { runs: 2, first, .. } if first.ends_with("runs/a")), "{held}");
        fs::write(folder.path().join(CONFIG), "").unwrap();
        fs::create_dir(folder.path().join(CHECKPOINTS)).unwrap();
        let inside = RunReader::open(&folder.path().join(CHECKPOINTS)).unwrap_err();
        assert!(matches!(&inside, RunError::InsideRun { run, .. } if run == folder.path()), "{inside}");
        let run = RunReader::open(folder.path()).unwrap();
        assert_eq!(run.last_record("loss").unwrap(), None, "there is no log yet");
        let lines = "{\"step\":1,\"loss\":3.0}\n{\"step\":2,\"loss\":2.0}\n{\"step\":2,\"knn_top1\":9.0}\n{\"ste";
        fs::write(folder.path().join(METRICS), lines).unwrap();
        assert_eq!(run.metrics().unwrap().len(), 3);
        assert_eq!(run.last_record("loss").unwrap().unwrap()["step"], 2);
        assert_eq!(run.last_record("entropy").unwrap(), None);
        assert_eq!(run.last_step(), Some(2));
    }

    #[test]
    fn files_that_cannot_be_those_of_a_run_are_refused_before_they_fill_the_memory() {
        let folder = tempfile::tempdir().unwrap();
        let sparse = |name: &str| fs::File::create(folder.path().join(name)).unwrap().set_len(1 << 40).unwrap();
        [CONFIG, METRICS, "result.json"].into_iter().for_each(sparse);
        let run = RunReader::open(folder.path()).unwrap();
        assert!(run.config().unwrap_err().to_string().contains("larger than"));
        assert!(run.metrics().unwrap_err().to_string().contains("line 1 is longer than"));
        assert!(run.result(1).is_none());
    }
}
