//! The folder of a study: its runs, their logs, and the table.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use study::{RunOutcome, Score, StudyRun, Summary, cells_csv, markdown, runs_csv};

use train::run::RunReader;

use super::figure::figure;
use crate::error::CliError;
use crate::eval;

/// The copy of the study's file, by which the folder is known as one.
const STUDY_FILE: &str = "study.toml";
/// Held while a process works on the study.
const LOCK: &str = ".lock";
/// How the name of a result ends that a run has not printed to its end.
const UNFINISHED: &str = "json.new";
/// What a run printed is never larger.
const MOST_BYTES: u64 = 1 << 20;
/// Characters of an error that a table can bear.
const MOST_OF_ERROR: usize = 300;

/// Images of another kind, by what `other` of the study says, and the digest of each.
pub type Others = BTreeMap<String, String>;

/// A study's folder, taken by this process.
#[derive(Debug)]
pub struct StudyFolder {
    root: PathBuf,
    others: Others,
    /// Closed with this, which gives the lock back.
    _lock: File,
}

impl StudyFolder {
    /// Opens or makes the folder. One that holds something else is left alone.
    pub fn open(root: &Path, text: &str, others: Others) -> Result<Self, CliError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| CliError::StudyFolder { path, what: error.to_string() }
        };
        let wrong = |what: String| CliError::StudyFolder { path: root.to_owned(), what };
        let copy = root.join(STUDY_FILE);
        let is_empty = match fs::read_dir(root) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(failed(root)(error)),
        };
        if !is_empty && !copy.is_file() {
            return Err(wrong("holds something else than a study; give another --out".to_owned()));
        }
        // A copy comes first: a folder with a lock alone would not be known again.
        fs::create_dir_all(root).map_err(failed(root))?;
        if !copy.exists() {
            files::replace_with(&copy, text.as_bytes()).map_err(failed(&copy))?;
        }
        let path = root.join(LOCK);
        let lock = File::options().create(true).write(true).truncate(false).open(&path).map_err(failed(&path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(wrong("another process is at work on this study".to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(&path)(error)),
        }
        files::replace_with(&copy, text.as_bytes()).map_err(failed(&copy))?;
        for folder in ["runs", "logs"].map(|name| root.join(name)) {
            fs::create_dir_all(&folder).map_err(failed(&folder))?;
        }
        Ok(Self { root: root.to_owned(), others, _lock: lock })
    }

    /// Where a run is.
    pub fn run(&self, run: &StudyRun) -> PathBuf {
        run_in(&self.root, run)
    }

    /// What a run says of itself.
    pub fn log(&self, run: &StudyRun) -> PathBuf {
        self.root.join("logs").join(format!("{}.log", run.name))
    }

    fn printed_path(&self, run: &StudyRun) -> PathBuf {
        self.root.join("logs").join(format!("{}.json", run.name))
    }

    /// Where the evaluation of a run is.
    pub fn evaluation(&self, run: &StudyRun) -> PathBuf {
        self.root.join("evaluations").join(&run.name)
    }

    /// What the evaluation of a run has stored; none where there is nothing, or only what is of another network: the run's
    /// result names the one that it has left.
    fn evaluated(&self, run: &StudyRun) -> Option<Value> {
        let text =
            files::read_text_bounded(&self.evaluation(run).join(eval::RESULTS), eval::MOST_BYTES_OF_RESULTS).ok()?;
        let mut stored: Value = serde_json::from_str(&text).ok()?;
        // How well it tells other images than those that are asked for now is another question. They may have been elsewhere.
        let digest = run.other.as_ref().and_then(|other| self.others.get(other));
        let is_asked = |other: &Value| other["data_digest"].as_str() == digest.map(String::as_str);
        if let Some(found) = stored.get_mut("results").and_then(Value::as_object_mut) {
            found.retain(|protocol, result| protocol != "certainty" || is_asked(&result["other"]));
        }
        let trained = self.printed(run)?;
        (trained["backbone"].is_string() && stored[eval::OF_BACKBONE] == trained["backbone"]).then_some(stored)
    }

    /// What the evaluation of a run found, for each of these; empty where there is none.
    pub fn scores(&self, run: &StudyRun, scores: &[&Score]) -> Vec<Option<f64>> {
        let read = |stored: Value| scores.iter().map(|score| score.read(&stored)).collect();
        self.evaluated(run).map_or(Vec::new(), read)
    }

    /// Of these protocols those that found nothing, and why.
    pub fn skipped<'a>(&self, run: &StudyRun, protocols: &'a [String]) -> Vec<(&'a str, String)> {
        let stored = self.evaluated(run).unwrap_or_default();
        let why = |protocol: &str| stored["skipped"][protocol].as_str().map(str::to_owned);
        protocols.iter().filter_map(|protocol| Some((protocol.as_str(), why(protocol)?))).collect()
    }

    /// Makes the place for an evaluation; results of a network that the run does not have any more are no use to anybody.
    pub fn make_ready_to_evaluate(&self, run: &StudyRun) -> io::Result<()> {
        let place = self.evaluation(run);
        fs::create_dir_all(&place)?;
        match self.evaluated(run) {
            Some(_) => Ok(()),
            None => files::remove_if_there(&place.join(eval::RESULTS)),
        }
    }

    /// A file for what a command says of a run. What earlier ones said stays.
    pub fn log_of(&self, run: &StudyRun, command: &Command) -> io::Result<File> {
        let words: Vec<_> = command.get_args().map(|word| text::shell(&word.to_string_lossy())).collect();
        let mut log = File::options().create(true).append(true).open(self.log(run))?;
        writeln!(log, "$ dino-vmf {}", words.join(" "))?;
        Ok(log)
    }

    /// A file for the result that a run prints, which counts once it is [taken](Self::take_result).
    pub fn result_of(&self, run: &StudyRun) -> io::Result<File> {
        File::create(self.printed_path(run).with_extension(UNFINISHED))
    }

    /// Takes the result that a run has just printed in the place of the one before; none where it printed none, and what an
    /// earlier start printed stays.
    pub fn take_result(&self, run: &StudyRun) -> io::Result<Option<RunOutcome>> {
        let (new, path) = (self.printed_path(run).with_extension(UNFINISHED), self.printed_path(run));
        let outcome = read_object(&new).and_then(|object| RunOutcome::of_json(&object));
        match outcome {
            Some(outcome) => fs::rename(&new, &path).map(|()| Some(outcome)),
            None => files::remove_if_there(&new).map(|()| None),
        }
    }

    /// Forgets the result of a run that is gone: the one that is begun in its place is another.
    pub fn forget_result_without_run(&self, run: &StudyRun) -> io::Result<()> {
        match RunReader::open_any_attempt(&self.run(run)) {
            Ok(None) => files::remove_if_there(&self.printed_path(run)),
            _ => Ok(()),
        }
    }

    /// The object that a run has printed as its result.
    pub fn printed(&self, run: &StudyRun) -> Option<Value> {
        read_object(&self.printed_path(run))
    }

    /// The error that a run's last start ended with, on one line.
    pub fn error(&self, run: &StudyRun) -> Option<String> {
        let text = files::read_text_bounded(&self.log(run), MOST_BYTES).ok()?;
        let since = text.rfind("\n$ ").map_or(0, |at| at + 1);
        let (_, error) = text[since..].rsplit_once("\nerror: ")?;
        Some(text::shortened(&error.split_whitespace().collect::<Vec<_>>().join(" "), MOST_OF_ERROR).into_owned())
    }

    /// Writes the table as it is now.
    pub fn write(&self, summary: &Summary<'_>) -> Result<(), CliError> {
        let texts = [
            ("table.md", markdown(summary)),
            ("table.csv", cells_csv(summary)),
            ("runs.csv", runs_csv(summary)),
            ("figure.svg", figure(summary)),
        ];
        for (name, text) in texts {
            let path = self.root.join(name);
            let failed = |error: io::Error| CliError::StudyFolder { path: path.clone(), what: error.to_string() };
            files::replace_with(&path, text.as_bytes()).map_err(failed)?;
        }
        Ok(())
    }
}

/// Where a run is in the folder of its study.
pub fn run_in(root: &Path, run: &StudyRun) -> PathBuf {
    root.join("runs").join(&run.name)
}

fn read_object(path: &Path) -> Option<Value> {
    serde_json::from_str(&files::read_text_bounded(path, MOST_BYTES).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(root: &Path, text: &str) -> Result<StudyFolder, CliError> {
        StudyFolder::open(root, text, Others::new())
    }

    fn example() -> StudyRun {
        StudyRun { name: "r".into(), cell: 0, seed: 0, source: "".into(), other: None, settings: vec![] }
    }

    #[test]
    fn a_folder_is_taken_by_one_and_never_from_somebody_else() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("photo.png"), "x").unwrap();
        let message = open(place.path(), "").unwrap_err().to_string();
        assert!(message.contains("holds something else than a study"), "{message}");
        let root = place.path().join("study");
        let first = open(&root, "seeds = [0]").unwrap();
        let message = open(&root, "").unwrap_err().to_string();
        assert!(message.contains("another process"), "{message}");
        assert_eq!(
            fs::read_to_string(root.join(STUDY_FILE)).unwrap(),
            "seeds = [0]",
            "a refused start changes nothing"
        );
        drop(first);
        open(&root, "seeds = [0]").unwrap();
    }

    #[test]
    fn the_error_of_a_run_is_that_of_its_last_start() {
        let place = tempfile::tempdir().unwrap();
        let folder = open(&place.path().join("s"), "").unwrap();
        let run = example();
        assert_eq!(folder.error(&run), None);
        fs::write(folder.log(&run), "$ a\nerror: first\n$ b\nnote\nerror: second:\n  more\n").unwrap();
        assert_eq!(folder.error(&run).as_deref(), Some("second: more"));
        fs::write(folder.log(&run), "$ a\nerror: first\n$ b\nall well\n").unwrap();
        assert_eq!(folder.error(&run), None);
        assert_eq!(folder.printed(&run), None);
        let print = |text: &str| folder.result_of(&run).unwrap().write_all(text.as_bytes()).unwrap();
        print("{\"steps\": 3, \"outcome\": \"finished\", \"judgement\": \"learnt\"}");
        assert_eq!(folder.printed(&run), None, "it may not be whole yet");
        assert_eq!(folder.take_result(&run).unwrap().unwrap().steps, 3);
        assert_eq!(folder.printed(&run).unwrap()["steps"], 3);
        print("");
        assert!(folder.take_result(&run).unwrap().is_none());
        assert_eq!(folder.printed(&run).unwrap()["steps"], 3, "a start that failed takes nothing away");
        fs::create_dir_all(folder.run(&run)).unwrap();
        fs::write(folder.run(&run).join("config.toml"), "").unwrap();
        folder.forget_result_without_run(&run).unwrap();
        assert!(folder.printed(&run).is_some());
        fs::remove_dir_all(folder.run(&run)).unwrap();
        folder.forget_result_without_run(&run).unwrap();
        assert!(folder.printed(&run).is_none(), "the run that it was of is gone");
        // Whatever a file holds.
        fs::create_dir_all(folder.evaluation(&run)).unwrap();
        fs::write(folder.evaluation(&run).join(eval::RESULTS), "[]").unwrap();
        assert_eq!(folder.scores(&run, &[]), Vec::new());
    }

    #[test]
    fn a_log_has_the_commands_as_a_shell_takes_them() {
        let place = tempfile::tempdir().unwrap();
        let folder = open(&place.path().join("s"), "").unwrap();
        for word in ["a b", "c"] {
            let mut log = folder.log_of(&example(), Command::new("x").args(["eval", word])).unwrap();
            log.write_all(b"all well\n").unwrap();
        }
        let said = fs::read_to_string(folder.log(&example())).unwrap();
        assert_eq!(said, "$ dino-vmf eval 'a b'\nall well\n$ dino-vmf eval c\nall well\n");
    }

    #[test]
    fn evaluations_count_for_the_network_that_the_run_has_left() {
        let place = tempfile::tempdir().unwrap();
        let (folder, run) = (open(&place.path().join("s"), "").unwrap(), example());
        let protocols = ["linear".to_owned(), "knn".to_owned()];
        let found = || (folder.scores(&run, &Score::of_protocols(&protocols[..1])), folder.skipped(&run, &protocols));
        let trained =
            |backbone: &str| fs::write(folder.printed_path(&run), format!("{{\"backbone\": {backbone}}}")).unwrap();
        let stored = folder.evaluation(&run).join(eval::RESULTS);
        folder.make_ready_to_evaluate(&run).unwrap();
        let text = "{\"backbone\":\"a\",\"results\":{\"linear\":{\"top1\":50}},\"skipped\":{\"knn\":\"no labels\"}}";
        fs::write(&stored, text).unwrap();
        assert_eq!(found(), (vec![], vec![]), "nothing is known of the run");
        trained("\"a\"");
        assert_eq!(found(), (vec![Some(50.0)], vec![("knn", "no labels".to_owned())]));
        folder.make_ready_to_evaluate(&run).unwrap();
        assert!(stored.exists());
        for other in ["\"b\"", "null"] {
            trained(other);
            assert_eq!(found(), (vec![], vec![]), "{other}");
        }
        folder.make_ready_to_evaluate(&run).unwrap();
        assert!(!stored.exists());
    }
}
