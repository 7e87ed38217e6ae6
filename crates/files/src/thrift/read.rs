//! Reading structures that a file holds.
//!
//! Every length in a file is a claim. Nothing here takes memory for a claim: a list is walked element by element, a text
//! is read as far as there are bytes, and nesting ends at a fixed depth.

use std::io::{self, Read};

/// Structures within structures: parquet has fewer than ten.
const MOST_NESTED: u32 = 24;

/// What a field or an element of a list is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A flag, whose value is part of its type.
    Flag(bool),
    /// A byte.
    Byte,
    /// A whole number.
    Int,
    /// A floating-point number.
    Double,
    /// Bytes, or a text.
    Text,
    /// A list, or a set.
    List,
    /// A structure.
    Struct,
}

impl Kind {
    fn of(code: u8) -> io::Result<Self> {
        Ok(match code {
            1 => Kind::Flag(true),
            2 => Kind::Flag(false),
            3 => Kind::Byte,
            4..=6 => Kind::Int,
            7 => Kind::Double,
            8 => Kind::Text,
            9 | 10 => Kind::List,
            12 => Kind::Struct,
            _ => return Err(damage(format!("a field of unknown type {code}"))),
        })
    }
}

/// Reads values one after the other, and no more than `left` bytes.
#[derive(Debug)]
pub struct Thrift<R> {
    bytes: R,
    left: u64,
    depth: u32,
}

impl<R: Read> Thrift<R> {
    /// Reads from here on.
    pub fn new(bytes: R, left: u64) -> Self {
        Self { bytes, left, depth: 0 }
    }

    /// Bytes that may still be read.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Calls `visit` with the number and type of every field of a struct. It reads the value or skips it.
    pub fn fields(&mut self, mut visit: impl FnMut(&mut Self, i16, Kind) -> io::Result<()>) -> io::Result<()> {
        self.nested(|this| {
            let mut id = 0i16;
            loop {
                let [start] = this.take()?;
                if start == 0 {
                    return Ok(());
                }
                id = match start >> 4 {
                    0 => i16::try_from(this.int()?).map_err(|_| damage("a field number out of range"))?,
                    step => id.checked_add(i16::from(step)).ok_or_else(|| damage("a field number out of range"))?,
                };
                visit(this, id, Kind::of(start & 15)?)?;
            }
        })
    }

    /// Calls `visit` with every field of a struct that is a whole number or a flag, and passes over all others.
    pub fn numbers(&mut self, mut visit: impl FnMut(i16, i64) -> io::Result<()>) -> io::Result<()> {
        self.fields(|this, id, kind| match kind {
            Kind::Int => this.int().and_then(|value| visit(id, value)),
            Kind::Flag(flag) => visit(id, i64::from(flag)),
            kind => this.skip(kind),
        })
    }

    /// Calls `visit` for every element of a list, each of which has to be of type `kind`.
    pub fn list(&mut self, kind: Kind, mut visit: impl FnMut(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.elements(|this, found| if found == kind { visit(this) } else { Err(damage("a list of the wrong type")) })
    }

    fn elements(&mut self, mut visit: impl FnMut(&mut Self, Kind) -> io::Result<()>) -> io::Result<()> {
        self.nested(|this| {
            let [start] = this.take()?;
            let count = match start >> 4 {
                15 => this.varint()?,
                count => u64::from(count),
            };
            // An element takes a byte at least, so the claim cannot make this loop longer than the file.
            if count > this.left {
                return Err(damage(format!("a list of {count} elements in {} bytes", this.left)));
            }
            (0..count).try_for_each(|_| visit(this, Kind::of(start & 15)?))
        })
    }

    /// A whole number of any size.
    pub fn int(&mut self) -> io::Result<i64> {
        self.varint().map(signed)
    }

    /// A text; bytes that are not UTF-8 are replaced.
    pub fn text(&mut self) -> io::Result<String> {
        let length = self.length()?;
        let mut text = Vec::new();
        self.bytes.by_ref().take(length).read_to_end(&mut text)?;
        if (text.len() as u64) < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= length;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Passes over a value.
    pub fn skip(&mut self, kind: Kind) -> io::Result<()> {
        match kind {
            Kind::Flag(_) => Ok(()),
            Kind::Byte => self.take::<1>().map(|_| ()),
            Kind::Int => self.varint().map(|_| ()),
            Kind::Double => self.take::<8>().map(|_| ()),
            Kind::Text => {
                let length = self.length()?;
                self.left -= length;
                let skipped = io::copy(&mut self.bytes.by_ref().take(length), &mut io::sink())?;
                if skipped == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
            }
            Kind::Struct => self.fields(|this, _, kind| this.skip(kind)),
            Kind::List => self.elements(|this, kind| match kind {
                // Alone in a list, a flag has no field to be part of.
                Kind::Flag(_) => this.skip(Kind::Byte),
                kind => this.skip(kind),
            }),
        }
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        if self.depth == MOST_NESTED {
            return Err(damage("structures nested too deeply"));
        }
        self.depth += 1;
        let done = read(self);
        self.depth -= 1;
        done
    }

    fn length(&mut self) -> io::Result<u64> {
        let length = self.varint()?;
        if length > self.left {
            return Err(damage(format!("a text of {length} bytes in {}", self.left)));
        }
        Ok(length)
    }

    fn varint(&mut self) -> io::Result<u64> {
        varint(|| self.take().map(|[byte]| byte))
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.left = self.left.checked_sub(N as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut bytes = [0; N];
        self.bytes.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// A number of seven bits a byte, the lowest first, as parquet also writes it within pages.
pub fn varint(mut next: impl FnMut() -> io::Result<u8>) -> io::Result<u64> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let byte = next()?;
        value |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return Ok(value);
        }
    }
    Err(damage("a number without an end"))
}

/// A whole number that was stored with its sign in the lowest bit.
pub fn signed(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// What a file holds is not what it should be.
pub fn damage(problem: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem.into())
}
