//! `metrics.jsonl`: one JSON object per line, each with its `step`.
//!
//! A resumed run repeats the steps since its checkpoint. So that the log is that of an unbroken run, what lies beyond the
//! checkpoint is cut off first, together with a line that a crash has torn.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::atomic::replace;
use super::error::RunError;
use super::in_place::is_in_place;

/// What was measured at one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    step: u64,
    fields: Vec<(String, Field)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Field {
    Number(f64),
    Whole(i64),
}

impl Record {
    /// A record of what was seen after `step` steps.
    pub fn new(step: u64) -> Self {
        Self { step, fields: Vec::new() }
    }

    /// Adds a number. One that is not finite is written as a string, since JSON has no name for it.
    pub fn number(mut self, key: &str, value: f64) -> Self {
        self.fields.push((key.to_owned(), Field::Number(value)));
        self
    }

    /// Adds a count.
    pub fn whole(mut self, key: &str, value: i64) -> Self {
        self.fields.push((key.to_owned(), Field::Whole(value)));
        self
    }

    /// The step.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// What can be drawn as a curve.
    pub fn scalars(&self) -> impl Iterator<Item = (&str, f64)> {
        self.fields.iter().map(|(key, field)| match field {
            Field::Number(value) => (key.as_str(), *value),
            Field::Whole(value) => (key.as_str(), *value as f64),
        })
    }

    /// The record as one line of JSON, `step` first, the rest in the order of adding.
    pub fn to_json(&self) -> String {
        let mut line = format!("{{\"step\":{}", self.step);
        for (key, field) in &self.fields {
            let value = match field {
                Field::Number(value) if value.is_finite() => Value::from(*value),
                Field::Number(value) => Value::from(value.to_string()),
                Field::Whole(value) => Value::from(*value),
            };
            line += &format!(",{}:{value}", Value::from(key.as_str()));
        }
        line + "}"
    }
}

/// What opening the log for a resumed run did to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// Lines that stay.
    pub kept: u64,
    /// Lines that were cut off: beyond the step, torn, or not of this program.
    pub dropped: u64,
}

/// The open log.
#[derive(Debug)]
pub struct MetricsLog {
    path: PathBuf,
    file: File,
}

impl MetricsLog {
    /// Opens the log of a run that goes on after `step` steps, or from its beginning, for appending.
    pub fn open(path: &Path, after: Option<u64>) -> Result<(Self, Truncated), RunError> {
        let truncated = truncate_after(path, after)?;
        Ok((Self { path: path.to_owned(), file: append_to(path)? }, truncated))
    }

    /// Makes sure that records go into the file that has the log's name. False where somebody had removed it, and a new one
    /// was begun.
    pub fn keep_in_place(&mut self) -> Result<bool, RunError> {
        let is_there = is_in_place(&self.file, &self.path).map_err(|source| RunError::reading(&self.path, source))?;
        if !is_there {
            self.file = append_to(&self.path)?;
        }
        Ok(is_there)
    }

    /// Appends a record. It has left the process when this returns, so a kill cannot lose it. A record that does not fit on
    /// the disk leaves no beginning behind, so that it can be appended later.
    pub fn append(&mut self, record: &Record) -> Result<(), RunError> {
        let line = record.to_json() + "\n";
        let length = self.file.metadata().map(|metadata| metadata.len());
        let written = self.file.write_all(line.as_bytes());
        if let (Err(_), Ok(length)) = (&written, length) {
            // The first failure is the one to report.
            _ = self.file.set_len(length);
        }
        written.map_err(|source| RunError::from_io("write", &self.path, line.len() as u64, source))
    }

    /// Makes all lines survive a power loss. Call it before saving a checkpoint: a resumed run repeats no earlier line.
    pub fn sync(&self) -> Result<(), RunError> {
        self.file.sync_data().map_err(|source| RunError::from_io("write", &self.path, 0, source))
    }
}

fn append_to(path: &Path) -> Result<File, RunError> {
    let opened = File::options().create(true).append(true).open(path);
    opened.map_err(|source| RunError::from_io("open", path, 0, source))
}

/// Atomically cuts off every line beyond step `after` (every line if `None`), and every line that is no record.
fn truncate_after(path: &Path, after: Option<u64>) -> Result<Truncated, RunError> {
    let mut truncated = Truncated { kept: 0, dropped: 0 };
    let mut size = 0;
    let visit = |line: &[u8], keep: bool| {
        if keep {
            truncated.kept += 1;
            size += line.len() as u64;
        } else {
            truncated.dropped += 1;
        }
        Ok(())
    };
    match each_line(path, after, visit) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(truncated),
        other => other.map_err(|source| RunError::reading(path, source))?,
    }
    if truncated.dropped > 0 {
        let copy = |file: &mut io::BufWriter<File>| {
            each_line(path, after, |line, keep| if keep { file.write_all(line) } else { Ok(()) })
        };
        replace(path, size, copy)?;
    }
    Ok(truncated)
}

/// A record has a few KiB.
const LINE_BYTES: u64 = 1 << 20;

/// Calls `visit` with every line, its newline included, and whether it stays.
fn each_line(path: &Path, after: Option<u64>, mut visit: impl FnMut(&[u8], bool) -> io::Result<()>) -> io::Result<()> {
    let mut reader = BufReader::new(File::open(path)?);
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        match files::read_line_bounded(&mut reader, &mut line, &mut number, LINE_BYTES) {
            Ok(true) => {}
            Ok(false) => break,
            // No record is that long: what a crash of the machine may leave, or somebody else's.
            Err(error) if files::is_line_too_long(&error) => {
                files::skip_line(&mut reader)?;
                visit(&line, false)?;
                continue;
            }
            Err(error) => return Err(error),
        }
        let step = || serde_json::from_slice::<Value>(&line).ok()?.get("step")?.as_u64();
        let keep = line.ends_with(b"\n") && step().is_some_and(|step| after.is_some_and(|after| step <= after));
        visit(&line, keep)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn log_of(steps: std::ops::RangeInclusive<u64>, path: &Path, after: Option<u64>) {
        let (mut log, _) = MetricsLog::open(path, after).unwrap();
        for step in steps {
            log.append(&Record::new(step).number("loss", 1.0 / (step + 1) as f64)).unwrap();
        }
        log.sync().unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_log_that_is_removed_while_a_run_goes_on_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let (mut log, _) = MetricsLog::open(&path, None).unwrap();
        log.append(&Record::new(1)).unwrap();
        assert!(log.keep_in_place().unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(!log.keep_in_place().unwrap());
        log.append(&Record::new(2)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"step\":2}\n");
    }

    #[test]
    fn a_record_is_one_line_of_json_with_its_step_first() {
        let record = Record::new(3).number("loss", 0.1).whole("epoch \"2\"", 2);
        assert_eq!(record.to_json(), r#"{"step":3,"loss":0.1,"epoch \"2\"":2}"#);
        assert_eq!(record.scalars().collect::<Vec<_>>(), [("loss", 0.1), ("epoch \"2\"", 2.0)]);
    }

    #[test]
    fn numbers_that_json_has_no_name_for_are_written_as_strings() {
        let line = Record::new(0)
            .number("a", f64::NAN)
            .number("b", f64::INFINITY)
            .number("c", f64::NEG_INFINITY)
            .number("d", f64::MIN_POSITIVE)
            .to_json();
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&value["a"], &value["b"], &value["c"]), (&"NaN".into(), &"inf".into(), &"-inf".into()));
        assert_eq!(value["d"].as_f64(), Some(f64::MIN_POSITIVE));
    }

    #[test]
    fn the_log_of_a_resumed_run_equals_that_of_an_unbroken_one() {
        let folder = tempfile::tempdir().unwrap();
        let (unbroken, resumed) = (folder.path().join("a"), folder.path().join("b"));
        log_of(0..=20, &unbroken, None);
        log_of(0..=13, &resumed, None);
        // The kill tore the next line.
        fs::OpenOptions::new().append(true).open(&resumed).unwrap().write_all(b"{\"step\":14,\"lo").unwrap();
        log_of(11..=20, &resumed, Some(10));
        assert_eq!(fs::read(unbroken).unwrap(), fs::read(resumed).unwrap());
    }

    #[test]
    fn a_whole_line_without_its_newline_is_torn_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        fs::write(&path, "{\"step\":1}\n{\"step\":2}").unwrap();
        let (_, truncated) = MetricsLog::open(&path, Some(5)).unwrap();
        assert_eq!(truncated, Truncated { kept: 1, dropped: 1 });
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"step\":1}\n");
    }

    #[test]
    fn what_is_no_record_is_cut_off_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        fs::write(&path, b"{\"step\":1}\n\0\0\xff\n[]\n{\"step\":\"x\"}\n{\"step\":-1}\n\n{\"step\":2}\n").unwrap();
        let (_, truncated) = MetricsLog::open(&path, Some(2)).unwrap();
        assert_eq!(truncated, Truncated { kept: 2, dropped: 5 });
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"step\":1}\n{\"step\":2}\n");
    }

    #[test]
    fn a_run_without_a_checkpoint_starts_its_log_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        log_of(0..=3, &path, None);
        let (_, truncated) = MetricsLog::open(&path, None).unwrap();
        assert_eq!(truncated, Truncated { kept: 0, dropped: 4 });
        assert_eq!(fs::read(&path).unwrap(), b"");
    }
}
