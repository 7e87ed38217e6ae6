//! The description of a table: its columns, and where their values are.

use std::collections::BTreeMap;
use std::io::{self, Read};

use super::metadata::texts;
use crate::thrift::{Kind, Thrift, damage};

/// Nodes of a schema and parts of columns that are looked at. Tables have a few; a description has room for millions.
const MOST_NODES: usize = 10_000;
/// Bytes of the name of a column, at most.
const MOST_NAME: usize = 4096;
const MOST_PARTS: usize = 1 << 20;

/// How often a value may stand, as the format numbers it.
const OPTIONAL: i64 = 1;
const REPEATED: i64 = 2;

/// A column of values.
#[derive(Debug)]
pub(super) struct Leaf {
    /// The name of the column, which may be a list of these values.
    pub(super) name: String,
    /// The type of its values.
    pub(super) stored: i64,
    /// Highest level of definition: how many of its nodes may be missing.
    pub(super) definition: u32,
    /// Highest level of repetition: how many of its nodes are lists.
    pub(super) repetition: u32,
}

/// A part of a column: its pages, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) leaf: usize,
    pub(super) codec: i64,
    pub(super) values: i64,
    pub(super) start: i64,
    pub(super) bytes: i64,
}

/// What a table says of itself.
#[derive(Debug, Default)]
pub(super) struct Description {
    pub(super) rows: i64,
    pub(super) leaves: Vec<Leaf>,
    pub(super) parts: Vec<Part>,
    pub(super) texts: BTreeMap<String, String>,
}

/// A node of the schema, before it is known what it is part of.
#[derive(Debug, Default)]
struct Node {
    stored: Option<i64>,
    repetition: i64,
    name: String,
    members: i64,
}

impl Description {
    /// `FileMetaData` of the format.
    pub(super) fn read(thrift: &mut Thrift<impl Read>) -> io::Result<Self> {
        let mut found = Self::default();
        let mut nodes = Vec::new();
        thrift.fields(|thrift, id, kind| match (id, kind) {
            (2, Kind::List) => thrift.list(Kind::Struct, |thrift| {
                nodes.push(node(thrift)?);
                if nodes.len() > MOST_NODES { Err(damage("a table of very many columns")) } else { Ok(()) }
            }),
            (3, Kind::Int) => thrift.int().map(|rows| found.rows = rows),
            (4, Kind::List) => thrift.list(Kind::Struct, |thrift| group(thrift, &mut found.parts)),
            (5, Kind::List) => texts(thrift, &mut found.texts),
            _ => thrift.skip(kind),
        })?;
        found.leaves = leaves(nodes)?;
        if found.parts.iter().any(|part| part.leaf >= found.leaves.len()) {
            return Err(damage("a part of a column that there is not"));
        }
        Ok(found)
    }
}

/// `SchemaElement` of the format.
fn node(thrift: &mut Thrift<impl Read>) -> io::Result<Node> {
    let mut node = Node::default();
    thrift.fields(|thrift, id, kind| {
        match (id, kind) {
            (1, Kind::Int) => node.stored = Some(thrift.int()?),
            (3, Kind::Int) => node.repetition = thrift.int()?,
            (4, Kind::Text) => {
                node.name = thrift.text()?;
                // A column has the name of the outermost group that it is in: a long one would be copied many times.
                if node.name.len() > MOST_NAME {
                    return Err(damage("a column with a very long name"));
                }
            }
            (5, Kind::Int) => node.members = thrift.int()?,
            _ => thrift.skip(kind)?,
        }
        Ok(())
    })?;
    Ok(node)
}

/// The columns of a tree whose nodes stand in the order in which they are met.
fn leaves(nodes: Vec<Node>) -> io::Result<Vec<Leaf>> {
    let mut nodes = nodes.into_iter();
    let root = nodes.next().ok_or_else(|| damage("a table without a schema"))?;
    // Of the groups that are open: members still to come, levels, and the column that it is part of.
    let mut open: Vec<(i64, u32, u32, Option<String>)> = vec![(root.members, 0, 0, None)];
    let mut found = Vec::new();
    for node in nodes {
        while open.last().is_some_and(|group| group.0 <= 0) {
            open.pop();
        }
        let Some((members, definition, repetition, column)) = open.last_mut() else {
            return Err(damage("a schema with more nodes than its groups have"));
        };
        *members -= 1;
        let name = column.clone().unwrap_or(node.name);
        let definition = *definition + u32::from(matches!(node.repetition, OPTIONAL | REPEATED));
        let repetition = *repetition + u32::from(node.repetition == REPEATED);
        match node.stored {
            Some(stored) => found.push(Leaf { name, stored, definition, repetition }),
            None => open.push((node.members, definition, repetition, Some(name))),
        }
    }
    Ok(found)
}

/// `RowGroup` of the format: the parts of its columns, in the order of the columns.
fn group(thrift: &mut Thrift<impl Read>, parts: &mut Vec<Part>) -> io::Result<()> {
    let mut leaf = 0;
    thrift.fields(|thrift, id, kind| match (id, kind) {
        (1, Kind::List) => thrift.list(Kind::Struct, |thrift| {
            parts.push(Part { leaf, ..part(thrift)? });
            leaf += 1;
            if parts.len() > MOST_PARTS { Err(damage("a table of very many parts")) } else { Ok(()) }
        }),
        _ => thrift.skip(kind),
    })
}

/// `ColumnChunk` of the format.
fn part(thrift: &mut Thrift<impl Read>) -> io::Result<Part> {
    let mut part = Part { leaf: 0, codec: 0, values: 0, start: 0, bytes: 0 };
    let mut dictionary = None;
    thrift.fields(|thrift, id, kind| match (id, kind) {
        (3, Kind::Struct) => thrift.numbers(|id, number| {
            match id {
                4 => part.codec = number,
                5 => part.values = number,
                7 => part.bytes = number,
                9 => part.start = number,
                11 => dictionary = Some(number),
                _ => {}
            }
            Ok(())
        }),
        _ => thrift.skip(kind),
    })?;
    // A dictionary stands in front of the values.
    part.start = dictionary.filter(|&at| at > 0).map_or(part.start, |at| at.min(part.start));
    Ok(part)
}
