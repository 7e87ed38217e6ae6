//! The bytes of a pickle, one after the other.

use std::io::{self, BufRead, ErrorKind, Read};

use super::budget::Budget;
use super::error::Problem;

/// The longest line of the instructions that are lines of text, in bytes.
pub const MAX_LINE: u64 = 1 << 20;

/// What is read of a long string before more memory is taken for it than the file has shown to have.
const FIRST: usize = 64 << 10;

/// A reader that counts. It takes no byte behind the pickle.
pub struct Input<'a, R: ?Sized> {
    reader: &'a mut R,
    position: u64,
    line: Vec<u8>,
}

impl<'a, R: BufRead + ?Sized> Input<'a, R> {
    /// Begins where the reader stands.
    pub fn new(reader: &'a mut R) -> Self {
        Self { reader, position: 0, line: Vec::new() }
    }

    /// Bytes taken so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next bytes, as many as the type says.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// The next byte.
    pub fn byte(&mut self) -> Result<u8, Problem> {
        self.array().map(u8::from_le_bytes)
    }

    /// The next `length` bytes. Memory is taken as they come, not because of what `length` says.
    pub fn bytes(&mut self, length: u64, budget: &mut Budget) -> Result<Vec<u8>, Problem> {
        budget.check(length)?;
        let length = length as usize; // not more than the budget
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let before = bytes.len();
            let more = before.max(FIRST).min(length - before);
            budget.grow(&mut bytes, more)?;
            bytes.resize(before + more, 0);
            self.fill(&mut bytes[before..])?;
        }
        Ok(bytes)
    }

    /// The next line, without its end.
    pub fn line(&mut self) -> Result<&[u8], Problem> {
        self.line.clear();
        let read = Read::take(&mut *self.reader, MAX_LINE + 1).read_until(b'\n', &mut self.line)? as u64;
        self.position += read;
        match self.line.pop() {
            Some(b'\n') => Ok(&self.line),
            _ if read > MAX_LINE => Err(Problem::LineTooLong),
            _ => Err(Problem::End),
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Problem> {
        self.reader.read_exact(bytes).map_err(|error: io::Error| match error.kind() {
            ErrorKind::UnexpectedEof => Problem::End,
            _ => Problem::Io(error),
        })?;
        self.position += bytes.len() as u64;
        Ok(())
    }
}
