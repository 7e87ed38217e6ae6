//! Logs that grow: read on from where the last look ended, or looked at here and there where only the shape matters.
//!
//! The log of a long run has gigabytes. Neither way of reading takes more memory than one piece of it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// What is read at a time; no record is as long as that.
const PIECE: u64 = 1 << 20;
/// How much of what was read last is remembered, to know the log again.
const REMEMBERED: usize = 96;
/// A log that is read whole even for a glance.
const SHORT: u64 = 256 << 10;
/// Places at which a longer one is looked at, and the bytes that are read there: a few records.
const PLACES: u64 = 48;
const AT_A_PLACE: u64 = 4 << 10;
/// Its end, which tells how the run is doing now.
const END: u64 = 96 << 10;

/// What is met in a log.
#[derive(Debug, PartialEq)]
pub(super) enum Met {
    /// It is another log than before, or was cut back: all that was read of it is void.
    Anew,
    /// A record.
    Record(Value),
}

/// A log, and how far it was read.
#[derive(Debug)]
pub(super) struct Tail {
    path: PathBuf,
    at: u64,
    /// The bytes before `at`.
    before: Vec<u8>,
    /// Whether `at` is within a line that is too long for a record.
    is_skipping: bool,
}

/// How far a look went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// Bytes that were read since the log began.
    pub(super) read: u64,
    /// Bytes that it has.
    pub(super) length: u64,
    /// Whether there is more to read than a look was allowed.
    pub(super) is_behind: bool,
}

impl Tail {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, at: 0, before: Vec::new(), is_skipping: false }
    }

    /// Visits what was added since the last time, about `most` bytes of it. A line that is not finished is left for the next
    /// time, and one that is no record is left out.
    pub(super) fn read_on(&mut self, most: u64, mut visit: impl FnMut(Met)) -> io::Result<Reach> {
        let Some((mut file, length)) = open(&self.path)? else {
            if self.at > 0 {
                self.forget();
                visit(Met::Anew);
            }
            return Ok(Reach { read: 0, length: 0, is_behind: false });
        };
        if !self.is_the_same(&mut file, length)? {
            self.forget();
            visit(Met::Anew);
        }
        let (first, mut piece) = (self.at, Vec::new());
        while self.at < length && self.at - first < most {
            read_at(&mut file, self.at, PIECE.min(length - self.at), &mut piece)?;
            let Some(used) = self.take_lines(&piece, &mut visit) else { break };
            self.before = piece[used.saturating_sub(REMEMBERED)..used].to_vec();
            self.at += used as u64;
        }
        let is_behind = self.at < length && self.at - first >= most;
        Ok(Reach { read: self.at, length, is_behind })
    }

    fn forget(&mut self) {
        (self.at, self.is_skipping) = (0, false);
        self.before.clear();
    }

    /// A run that is continued from a checkpoint has cut its log back, and may have filled it again since.
    fn is_the_same(&self, file: &mut File, length: u64) -> io::Result<bool> {
        if length < self.at {
            return Ok(false);
        }
        let (size, mut found) = (self.before.len() as u64, Vec::new());
        read_at(file, self.at - size, size, &mut found)?;
        Ok(found == self.before)
    }

    /// Visits the complete lines of a piece; how many bytes they are. None where it has none, and more is to come.
    fn take_lines(&mut self, piece: &[u8], visit: &mut impl FnMut(Met)) -> Option<usize> {
        let Some(end) = piece.iter().rposition(|&byte| byte == b'\n') else {
            self.is_skipping |= piece.len() as u64 == PIECE;
            return (self.is_skipping && !piece.is_empty()).then_some(piece.len());
        };
        for line in piece[..end].split(|&byte| byte == b'\n').skip(usize::from(self.is_skipping)) {
            record(line).into_iter().for_each(|record| visit(Met::Record(record)));
        }
        self.is_skipping = false;
        Some(end + 1)
    }
}

/// Visits records of a whole log: all of a short one; of a long one some that lie evenly, and its end. Says of each whether
/// it is of the end, whose records stand closer than those before.
pub(super) fn glance(path: &Path, mut visit: impl FnMut(Value, bool)) -> io::Result<()> {
    let Some((mut file, length)) = open(path)? else { return Ok(()) };
    let mut piece = Vec::new();
    let end = if length <= SHORT { 0 } else { length - END };
    for place in (0..PLACES).map(|i| i * (end / PLACES)).filter(|_| end > 0) {
        read_at(&mut file, place, AT_A_PLACE, &mut piece)?;
        let with_loss = |record: &Value| record.get("loss").is_some();
        let mut records = lines(&piece, place == 0).filter_map(record).filter(with_loss);
        records.next().into_iter().for_each(|record| visit(record, false));
    }
    read_at(&mut file, end, length - end, &mut piece)?;
    lines(&piece, end == 0).filter_map(record).for_each(|record| visit(record, end > 0));
    Ok(())
}

/// The complete lines of a piece: the first is one only at the beginning of a log.
fn lines(piece: &[u8], is_beginning: bool) -> impl Iterator<Item = &[u8]> {
    let end = piece.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
    piece[..end].split(|&byte| byte == b'\n').skip(usize::from(!is_beginning))
}

fn record(line: &[u8]) -> Option<Value> {
    serde_json::from_slice::<Value>(line).ok().filter(|record| record.get("step").is_some())
}

/// The log and its length; none where there is none yet.
fn open(path: &Path) -> io::Result<Option<(File, u64)>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        // Asked before opening: opening a pipe waits for somebody to write.
        Ok(about) if !about.is_file() => Err(files::Unbounded::NotAFile.into()),
        Ok(_) => {
            let file = File::open(path)?;
            let length = file.metadata()?.len();
            Ok(Some((file, length)))
        }
    }
}

fn read_at(file: &mut File, at: u64, most: u64, piece: &mut Vec<u8>) -> io::Result<()> {
    piece.clear();
    file.seek(SeekFrom::Start(at))?;
    file.take(most).read_to_end(piece).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn log(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        fs::write(&path, text).unwrap();
        (folder, path)
    }

    fn append(path: &Path, text: &str) {
        File::options().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// The steps that are met, with -1 where all is void.
    fn steps(tail: &mut Tail, most: u64) -> Vec<i64> {
        let mut met = Vec::new();
        tail.read_on(most, |what| match what {
            Met::Anew => met.push(-1),
            Met::Record(record) => met.push(record["step"].as_i64().unwrap()),
        })
        .unwrap();
        met
    }

    #[test]
    fn only_what_is_new_is_read_and_a_torn_line_waits_for_its_end() {
        let (_folder, path) = log("{\"step\":1}\n{\"step\":2}\n{\"st");
        let mut tail = Tail::new(path.clone());
        assert_eq!(steps(&mut tail, u64::MAX), [1, 2]);
        assert_eq!(steps(&mut tail, u64::MAX), [0; 0]);
        append(&path, "ep\":3}\nnonsense\n[]\n{\"step\":4}\n");
        assert_eq!(steps(&mut tail, u64::MAX), [3, 4]);
    }

    #[test]
    fn a_log_that_was_cut_back_is_read_anew_also_where_it_has_grown_again() {
        let text: String =
            (0..100).map(|step| format!("{{\"step\":{step},\"loss\":{}}}\n", 0.1 * step as f64)).collect();
        let (_folder, path) = log(&text);
        let mut tail = Tail::new(path.clone());
        assert_eq!(steps(&mut tail, u64::MAX).len(), 100);
        fs::write(&path, "{\"step\":0}\n").unwrap();
        assert_eq!(steps(&mut tail, u64::MAX), [-1, 0]);
        // As long as before, and other numbers.
        fs::write(&path, text.replace("0.1", "0.2")).unwrap();
        assert_eq!(steps(&mut tail, u64::MAX).len(), 101);
        append(&path, "{\"step\":100}\n");
        assert_eq!(steps(&mut tail, u64::MAX), [100]);
        fs::remove_file(&path).unwrap();
        assert_eq!(steps(&mut tail, u64::MAX), [-1]);
        assert_eq!(steps(&mut tail, u64::MAX), [0; 0]);
    }

    #[test]
    fn a_look_is_bounded_and_the_next_one_goes_on() {
        let text: String =
            (0..60_000).map(|step| format!("{{\"step\":{step},\"filling\":\"{}\"}}\n", "x".repeat(40))).collect();
        let (_folder, path) = log(&text);
        let (mut tail, mut all) = (Tail::new(path), Vec::new());
        let mut looks = 0;
        while all.len() < 60_000 {
            all.extend(steps(&mut tail, 1));
            looks += 1;
        }
        assert!(all.iter().copied().eq(0..60_000));
        assert!(looks as u64 >= text.len() as u64 / PIECE, "{looks} looks");
    }

    #[test]
    fn a_line_without_end_is_passed_over_and_takes_no_memory() {
        let (_folder, path) = log("{\"step\":1}\n");
        append(&path, &"x".repeat(3 << 20));
        let mut tail = Tail::new(path.clone());
        assert_eq!(steps(&mut tail, u64::MAX), [1]);
        append(&path, "{\"step\":7}\n{\"step\":8}\n");
        assert_eq!(steps(&mut tail, u64::MAX), [8], "the first of them ends the long line");
        fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        let mut sparse = Tail::new(path);
        assert!(sparse.read_on(4 << 20, |_| ()).unwrap().is_behind);
    }

    #[test]
    fn a_glance_at_a_long_log_sees_its_shape_and_its_end() {
        let text: String =
            (0..50_000).map(|step| format!("{{\"step\":{step},\"loss\":{}}}\n", 7.0 - step as f64 * 1e-4)).collect();
        let (_folder, path) = log(&(text + "{\"step\":49999,\"knn_top1\":50.0}\n{\"torn"));
        let (mut before, mut end) = (Vec::new(), Vec::new());
        glance(&path, |record, is_end| {
            let kept = if is_end { &mut end } else { &mut before };
            kept.push(record);
        })
        .unwrap();
        assert_eq!(before.len() as u64, PLACES);
        let steps: Vec<u64> = before.iter().map(|record| record["step"].as_u64().unwrap()).collect();
        assert!(steps.is_sorted() && steps[0] == 0 && steps[24] > 20_000);
        assert_eq!(end.last().unwrap()["knn_top1"], 50.0);
        let (_folder, short) = log("{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":1}\n");
        let mut seen = 0;
        glance(&short, |_, is_end| seen += usize::from(!is_end)).unwrap();
        assert_eq!(seen, 2);
    }
}
