//! Whole files into memory, up to a size that the caller knows to be sensible.
//!
//! A path from a command line or in a folder may lead to anything: a device that never ends, a pipe that nobody writes
//! to, a file of a hundred gigabytes under the name of a short text. None of them may fill the memory or hang a command.

use std::fs::{self, File};
use std::io::{self, BufRead, ErrorKind, Read};
use std::path::Path;

use thiserror::Error;

/// Why a file was not read. It comes inside an [`io::Error`], so that it takes the way of every other failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unbounded {
    /// A device, a socket, a folder, or a pipe where none makes sense.
    #[error("not a regular file")]
    NotAFile,
    /// It is longer than anything that makes sense.
    #[error("larger than {limit} bytes, the most that is read of such a file")]
    TooLarge {
        /// The most that is read.
        limit: u64,
    },
    /// One line of it is.
    #[error("line {line} is longer than {limit} bytes, the most that is read of a line")]
    LineTooLong {
        /// The line, counted from 1.
        line: u64,
        /// The most that is read.
        limit: u64,
    },
}

impl From<Unbounded> for io::Error {
    fn from(why: Unbounded) -> Self {
        let kind = match why {
            Unbounded::NotAFile => ErrorKind::InvalidInput,
            Unbounded::TooLarge { .. } => ErrorKind::FileTooLarge,
            Unbounded::LineTooLong { .. } => ErrorKind::InvalidData,
        };
        io::Error::new(kind, why)
    }
}

/// Reads a regular file of at most `limit` bytes.
pub fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    read_bounded_into(path, limit, &mut bytes)?;
    Ok(bytes)
}

/// The same into `bytes`, which is overwritten: of many files in turn only the largest takes memory.
pub fn read_bounded_into(path: &Path, limit: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    bytes.clear();
    // Asked before opening: opening a pipe waits for somebody to write.
    if !fs::metadata(path)?.is_file() {
        return Err(Unbounded::NotAFile.into());
    }
    read_to_limit(File::open(path)?, limit, bytes)
}

/// As [`read_bounded`], for a text in UTF-8.
pub fn read_text_bounded(path: &Path, limit: u64) -> io::Result<String> {
    text(read_bounded(path, limit)?)
}

/// As [`read_text_bounded`], and a pipe is read to its end too: `--recipe <(sed ...)` is one.
pub fn read_text_or_pipe_bounded(path: &Path, limit: u64) -> io::Result<String> {
    let kind = fs::metadata(path)?.file_type();
    if !kind.is_file() && !is_pipe(kind) {
        return Err(Unbounded::NotAFile.into());
    }
    let mut bytes = Vec::new();
    read_to_limit(File::open(path)?, limit, &mut bytes)?;
    text(bytes)
}

/// Reads the next line into `line`, which is overwritten, its newline included; nothing at the end. `number` counts
/// lines. The memory taken is never more than `limit`, however long the line is.
pub fn read_line_bounded(
    input: &mut impl BufRead,
    line: &mut Vec<u8>,
    number: &mut u64,
    limit: u64,
) -> io::Result<bool> {
    line.clear();
    *number += 1;
    // A line of exactly `limit` bytes, and its newline.
    let read = input.take(limit + 1).read_until(b'\n', line)? as u64;
    if read > limit && !line.ends_with(b"\n") {
        return Err(Unbounded::LineTooLong { line: *number, limit }.into());
    }
    Ok(read > 0)
}

/// Reads on to the end of a line whose beginning was too long.
pub fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let (used, is_end) = match input.fill_buf()? {
            [] => return Ok(()),
            some => some.iter().position(|&byte| byte == b'\n').map_or((some.len(), false), |at| (at + 1, true)),
        };
        input.consume(used);
        if is_end {
            return Ok(());
        }
    }
}

/// Whether an error is that of a line above the limit.
pub fn is_line_too_long(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(inner, Some(Unbounded::LineTooLong { .. }))
}

fn read_to_limit(file: File, limit: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    // A size, where the system knows one, saves growing the buffer; the limit holds whether or not it is true.
    let said = file.metadata()?.len();
    if said > limit {
        return Err(Unbounded::TooLarge { limit }.into());
    }
    bytes.reserve(said as usize + 1);
    file.take(limit + 1).read_to_end(bytes)?;
    if bytes.len() as u64 > limit {
        return Err(Unbounded::TooLarge { limit }.into());
    }
    Ok(())
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(ErrorKind::InvalidData, format!("not text in UTF-8: byte {at} is no part of a character"))
    })
}

#[cfg(unix)]
fn is_pipe(kind: fs::FileType) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&kind)
}

#[cfg(not(unix))]
fn is_pipe(_: fs::FileType) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn why(error: io::Error) -> Unbounded {
        *error.get_ref().and_then(|inner| inner.downcast_ref()).unwrap()
    }

    #[test]
    fn a_file_is_read_up_to_the_limit_and_refused_beyond_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_text_bounded(&path, 5).unwrap(), "12345");
        let mut bytes = b"of another file".to_vec();
        read_bounded_into(&path, 5, &mut bytes).unwrap();
        assert_eq!(bytes, b"12345");
        assert_eq!(why(read_bounded(&path, 4).unwrap_err()), Unbounded::TooLarge { limit: 4 });
        fs::write(&path, b"ab\xffc").unwrap();
        assert!(read_text_bounded(&path, 5).unwrap_err().to_string().contains("byte 2"));
    }

    #[test]
    fn a_huge_file_is_refused_before_anything_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        // A terabyte that takes no room on the disk.
        if File::create(&path).unwrap().set_len(1 << 40).is_ok() {
            assert_eq!(why(read_bounded(&path, 1 << 20).unwrap_err()), Unbounded::TooLarge { limit: 1 << 20 });
        }
    }

    #[test]
    fn folders_and_devices_are_no_files() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(why(read_bounded(folder.path(), 9).unwrap_err()), Unbounded::NotAFile);
        #[cfg(target_os = "linux")]
        for read in [read_text_bounded, read_text_or_pipe_bounded] {
            assert_eq!(why(read(Path::new("/dev/zero"), 9).unwrap_err()), Unbounded::NotAFile);
        }
    }

    #[test]
    fn a_line_takes_no_more_memory_than_its_limit() {
        let mut input = BufReader::new(io::repeat(b'x'));
        let (mut line, mut number) = (Vec::new(), 0);
        let refused = read_line_bounded(&mut input, &mut line, &mut number, 1000).unwrap_err();
        assert_eq!(why(refused), Unbounded::LineTooLong { line: 1, limit: 1000 });
        assert!(line.capacity() < 10_000);
        let mut input = BufReader::new(&b"ab\ncde\nf"[..]);
        let mut number = 0;
        let mut next = || {
            let there = read_line_bounded(&mut input, &mut line, &mut number, 3).unwrap();
            there.then(|| line.clone())
        };
        assert_eq!(
            [next(), next(), next(), next()].map(|line| line.map(|line| line.len())),
            [Some(3), Some(4), Some(1), None]
        );
    }
}
