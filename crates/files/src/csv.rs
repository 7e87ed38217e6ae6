//! Tables as text: records of fields between commas, quoted where a field holds a comma, a quotation mark or a line break.
//!
//! A file is untrusted: a record takes no more memory than its limit, and what is no text is an error.

use std::io::{self, BufRead};

use crate::bounded::read_line_bounded;

/// Why a record was not read.
#[derive(Debug, thiserror::Error)]
pub enum CsvError {
    /// The file system refused, or a line is too long.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A quotation mark that nothing closes, or with something behind it that is no comma.
    #[error("line {line}: {problem}")]
    Record {
        /// The line on which the record begins, counted from 1.
        line: u64,
        /// What is wrong.
        problem: &'static str,
    },
}

/// Reads records one after the other.
///
/// ```
/// let mut records = files::csv::Records::new(&b"row,name\n0,\"a, b\"\n"[..], 1000);
/// let mut fields = Vec::new();
/// assert!(records.next(&mut fields)? && records.next(&mut fields)?);
/// assert_eq!(fields, ["0", "a, b"]);
/// assert!(!records.next(&mut fields)?);
/// # Ok::<(), files::csv::CsvError>(())
/// ```
#[derive(Debug)]
pub struct Records<R> {
    input: R,
    /// Bytes of a record, at most.
    limit: u64,
    lines: u64,
    line: Vec<u8>,
    record: Vec<u8>,
}

impl<R: BufRead> Records<R> {
    /// Reads from here on, records of at most `limit` bytes.
    pub fn new(input: R, limit: u64) -> Self {
        Self { input, limit, lines: 0, line: Vec::new(), record: Vec::new() }
    }

    /// Puts the fields of the next record into `fields`, which are overwritten; none are left where the file ends.
    pub fn next(&mut self, fields: &mut Vec<String>) -> Result<bool, CsvError> {
        fields.clear();
        self.record.clear();
        let (first, mut is_quoted) = (self.lines + 1, false);
        loop {
            let left = self.limit.saturating_sub(self.record.len() as u64);
            if !read_line_bounded(&mut self.input, &mut self.line, &mut self.lines, left)? {
                if self.record.is_empty() {
                    return Ok(false);
                }
                return Err(CsvError::Record { line: first, problem: "a quotation mark is never closed" });
            }
            self.record.extend_from_slice(&self.line);
            // Within quotation marks a line break is part of the field: there, they have not come in pairs yet.
            is_quoted ^= self.line.iter().filter(|&&byte| byte == b'"').count() % 2 == 1;
            if !is_quoted {
                break;
            }
        }
        let wrong = |problem| CsvError::Record { line: first, problem };
        let text = std::str::from_utf8(&self.record).map_err(|_| wrong("it is no text in UTF-8"))?;
        let text = text.strip_suffix('\n').unwrap_or(text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        // Some programs begin a file with a mark of its encoding.
        let mut rest = if first == 1 { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text };
        loop {
            let (field, behind) = field(rest).ok_or(wrong("a quotation mark stands where none can"))?;
            fields.push(field);
            match behind {
                None => return Ok(true),
                Some(behind) => rest = behind,
            }
        }
    }

    /// Lines read so far.
    pub fn lines(&self) -> u64 {
        self.lines
    }
}

/// The first field, and what is behind its comma.
fn field(text: &str) -> Option<(String, Option<&str>)> {
    let Some(mut rest) = text.strip_prefix('"') else {
        let (field, behind) = text.split_once(',').map_or((text, None), |(field, behind)| (field, Some(behind)));
        return (!field.contains('"')).then(|| (field.to_owned(), behind));
    };
    let mut field = String::new();
    loop {
        let (part, behind) = rest.split_once('"')?;
        field.push_str(part);
        match behind.strip_prefix('"') {
            // Two of them are one.
            Some(behind) => {
                field.push('"');
                rest = behind;
            }
            None if behind.is_empty() => return Some((field, None)),
            None => return Some((field, Some(behind.strip_prefix(',')?))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], limit: u64) -> Result<Vec<Vec<String>>, String> {
        let (mut records, mut found, mut fields) = (Records::new(bytes, limit), Vec::new(), Vec::new());
        while records.next(&mut fields).map_err(|error| error.to_string())? {
            found.push(fields.clone());
        }
        Ok(found)
    }

    #[test]
    fn fields_come_out_as_they_went_in() {
        let found = all("\u{feff}a,b,\r\n\"x,\"\"y\"\"\",\"two\nlines\",é\n\n,".as_bytes(), 100).unwrap();
        assert_eq!(found, [vec!["a", "b", ""], vec!["x,\"y\"", "two\nlines", "é"], vec![""], vec!["", ""]]);
        assert!(all(b"", 10).unwrap().is_empty());
    }

    #[test]
    fn what_is_no_table_is_refused_with_its_line() {
        assert_eq!(all(b"a\n\"b\nc\n", 100).unwrap_err(), "line 2: a quotation mark is never closed");
        assert_eq!(all(b"a\nb\"c\"\n", 100).unwrap_err(), "line 2: a quotation mark stands where none can");
        assert_eq!(all(b"\"b\"c,d\n", 100).unwrap_err(), "line 1: a quotation mark stands where none can");
        assert_eq!(all(b"\xff\n", 100).unwrap_err(), "line 1: it is no text in UTF-8");
    }

    #[test]
    fn a_record_takes_no_more_memory_than_its_limit() {
        assert!(all(&[b'x'; 1000], 100).unwrap_err().contains("longer than 100 bytes"));
        let lines = [&b"\""[..], &b"x\n".repeat(1000)].concat();
        assert!(all(&lines, 100).is_err(), "a field of many lines");
    }
}
