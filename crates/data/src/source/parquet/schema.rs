//! The columns of a parquet file.

use super::thrift::{Kind, Thrift, damage};
use std::io::{self, Read};

/// Groups within groups. Images lie in the first or the second.
const MOST_NESTED: usize = 64;

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    Int32,
    Int64,
    Bytes,
    /// None of those: the name of the type.
    Other(&'static str),
}

impl Stored {
    fn of(code: i64) -> io::Result<Self> {
        Ok(match code {
            0 => Stored::Other("boolean"),
            1 => Stored::Int32,
            2 => Stored::Int64,
            3 => Stored::Other("int96"),
            4 => Stored::Other("float"),
            5 => Stored::Other("double"),
            6 => Stored::Bytes,
            7 => Stored::Other("fixed_len_byte_array"),
            _ => return Err(damage(format!("a column of unknown type {code}"))),
        })
    }
}

/// A column of values. Columns within a group each count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// The column or group at the top that this is in, by number in [`Footer::top`].
    pub top: usize,
    /// Its own name.
    pub name: String,
    /// 1 at the top, 2 in a group there.
    pub depth: usize,
    pub stored: Stored,
    /// Bytes that are said to be text.
    pub is_text: bool,
    /// Levels that may be null, itself included.
    pub definition: i16,
    /// True where a row has any number of values.
    pub repeated: bool,
}

impl Leaf {
    /// Its type, for people.
    pub(super) fn describe(&self) -> &'static str {
        match self.stored {
            _ if self.repeated => "list",
            Stored::Int32 => "int32",
            Stored::Int64 => "int64",
            Stored::Bytes if self.is_text => "string",
            Stored::Bytes => "binary",
            Stored::Other(name) => name,
        }
    }
}

/// A number that cannot be negative.
pub(super) fn size(value: i64) -> io::Result<u64> {
    u64::try_from(value).map_err(|_| damage("a negative size in the footer"))
}

/// The tree of columns, which is stored as a list: a group is followed by what is in it.
pub(super) fn schema<R: Read>(thrift: &mut Thrift<R>) -> io::Result<(Vec<String>, Vec<Leaf>)> {
    let (mut top, mut leaves) = (Vec::new(), Vec::new());
    // Groups that are not complete: members to come, and what they say about their members.
    let mut open: Vec<(u64, i16, bool)> = Vec::new();
    let mut is_first = true;
    thrift.list(Kind::Struct, |thrift| {
        let element = element(thrift)?;
        if std::mem::take(&mut is_first) {
            open.push((element.members, 0, false));
            return Ok(());
        }
        while open.last().is_some_and(|&(members, ..)| members == 0) {
            open.pop();
        }
        let depth = open.len();
        let Some((members, definition, repeated)) = open.last_mut() else {
            return Err(damage("columns outside of every group"));
        };
        *members -= 1;
        let definition = *definition + i16::from(element.repetition != REQUIRED);
        let repeated = *repeated || element.repetition == REPEATED;
        if depth > MOST_NESTED {
            return Err(damage("columns nested too deeply"));
        }
        if depth == 1 {
            top.push(element.name.clone());
        }
        match element.stored {
            Some(stored) if element.members == 0 => leaves.push(Leaf {
                top: top.len() - 1,
                name: element.name,
                depth,
                stored,
                is_text: element.is_text,
                definition,
                repeated,
            }),
            _ => open.push((element.members, definition, repeated)),
        }
        Ok(())
    })?;
    if open.iter().any(|&(members, ..)| members > 0) {
        return Err(damage("a group lacks columns"));
    }
    Ok((top, leaves))
}

const REQUIRED: i64 = 0;
const REPEATED: i64 = 2;

/// A column or group as stored.
#[derive(Default)]
struct Element {
    stored: Option<Stored>,
    repetition: i64,
    name: String,
    members: u64,
    is_text: bool,
}

fn element<R: Read>(thrift: &mut Thrift<R>) -> io::Result<Element> {
    const UTF8: i64 = 0;
    const STRING: i16 = 1;
    let mut element = Element::default();
    thrift.fields(|thrift, id, kind| {
        match (id, kind) {
            (1, Kind::Int) => element.stored = Some(Stored::of(thrift.int()?)?),
            (3, Kind::Int) => element.repetition = thrift.int()?,
            (4, Kind::Text) => element.name = thrift.text()?,
            (5, Kind::Int) => element.members = size(thrift.int()?)?,
            (6, Kind::Int) => element.is_text |= thrift.int()? == UTF8,
            (10, Kind::Struct) => thrift.fields(|thrift, id, kind| {
                element.is_text |= id == STRING;
                thrift.skip(kind)
            })?,
            _ => thrift.skip(kind)?,
        }
        Ok(())
    })?;
    Ok(element)
}
