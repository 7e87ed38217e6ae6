//! Patterns that stand for several files: `shard-{000..146}.tar`, `{train,extra}.tar`, `data/*.parquet`, `data/**/*.tar`.

mod braces;
mod glob;

use super::OpenError;
use braces::{MOST_BYTES, Room, braces};
use glob::{glob, matches};
use std::fs;
use std::path::PathBuf;
use text::escape_name;

/// More files than this is a slip of the pen.
const MOST_FILES: usize = 100_000;

/// Longer text is no path, let alone a pattern.
const LONGEST: usize = 4096;

/// True for text that can stand for several files.
pub(super) fn is_pattern(spec: &str) -> bool {
    spec.contains(['*', '?']) || (spec.contains('{') && spec.contains('}'))
}

/// The files that a pattern stands for: groups in braces in the order written, `*` and `?` in the order of names. What
/// braces spell out has to be there; what a star finds are files only.
pub(super) fn expand(spec: &str) -> Result<Vec<PathBuf>, OpenError> {
    let wrong = |problem: String| OpenError::Format { path: PathBuf::from(spec), problem };
    if spec.len() > LONGEST {
        return Err(wrong("too long for a pattern".to_owned()));
    }
    let mut files = Vec::new();
    for name in braces(spec, &mut Room::default()).map_err(wrong)? {
        if !name.contains(['*', '?']) {
            let path = PathBuf::from(&name);
            match fs::metadata(&path) {
                Ok(about) if about.is_dir() => {
                    return Err(wrong(format!("{} is a folder, not a file", escape_name(name.as_bytes()))));
                }
                Ok(_) => files.push(path),
                Err(error) => return Err(wrong(format!("{}: {error}", escape_name(name.as_bytes())))),
            }
            continue;
        }
        let before = files.len();
        files.extend(glob(&name)?);
        if files.len() == before {
            return Err(wrong("no file has such a name".to_owned()));
        }
        if files.len() > MOST_FILES {
            return Err(wrong(format!("stands for more than {MOST_FILES} files")));
        }
    }
    Ok(files)
}

/// Writes out the braces of a text and matches its lines with each other, without looking for any file. With little
/// room: a fuzzer learns nothing from a hundred thousand names that ten thousand do not show. For fuzzing.
pub(super) fn read_text(text: &str) {
    if text.len() <= LONGEST && is_pattern(text) {
        _ = braces(text, &mut Room(MOST_BYTES / 64));
    }
    let mut lines = text.lines().map(str::as_bytes);
    if let (Some(pattern), Some(name)) = (lines.next(), lines.next()) {
        matches(pattern, name);
    }
}
