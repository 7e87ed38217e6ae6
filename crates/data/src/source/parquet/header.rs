//! What stands before a page: its kind and sizes, all of them claims.

use super::thrift::{Kind, Thrift, damage};
use std::io::{self, Read};

/// What a page holds. Data have an older and a newer layout, and files of today have either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    Data,
    DataV2,
    Dictionary,
}

/// What stands before a page.
#[derive(Default)]
pub(super) struct Header {
    /// None for an index, which holds no values.
    pub kind: Option<PageKind>,
    /// Bytes as stored.
    pub packed: u64,
    /// Bytes after unpacking.
    pub unpacked: u64,
    pub checksum: Option<u32>,
    /// Values, nulls included.
    pub values: u32,
    /// How values and levels are written, by the numbers of the format.
    pub encoding: i64,
    pub level_encoding: i64,
    /// Bytes of the levels, in the newer kind of page.
    pub definition: u32,
    pub repetition: u32,
    /// False where a page of the newer kind is stored as it is, whatever its column says.
    pub is_packed: bool,
}

impl Header {
    pub(super) fn read<R: Read>(thrift: &mut Thrift<R>) -> io::Result<Self> {
        let mut header = Self { is_packed: true, ..Self::default() };
        let mut described = None;
        thrift.fields(|thrift, id, kind| {
            match (id, kind) {
                (1, Kind::Int) => {
                    header.kind = match thrift.int()? {
                        0 => Some(PageKind::Data),
                        1 => None,
                        2 => Some(PageKind::Dictionary),
                        3 => Some(PageKind::DataV2),
                        other => return Err(damage(format!("a page of unknown kind {other}"))),
                    }
                }
                (2, Kind::Int) => header.unpacked = count(thrift.int()?)?.into(),
                (3, Kind::Int) => header.packed = count(thrift.int()?)?.into(),
                (4, Kind::Int) => header.checksum = Some(thrift.int()? as u32),
                (5, Kind::Struct) => {
                    described = Some(PageKind::Data);
                    thrift.numbers(|id, value| {
                        match id {
                            1 => header.values = count(value)?,
                            2 => header.encoding = value,
                            3 => header.level_encoding = value,
                            _ => {}
                        }
                        Ok(())
                    })?;
                }
                (7, Kind::Struct) => {
                    described = Some(PageKind::Dictionary);
                    thrift.numbers(|id, value| {
                        match id {
                            1 => header.values = count(value)?,
                            2 => header.encoding = value,
                            _ => {}
                        }
                        Ok(())
                    })?;
                }
                (8, Kind::Struct) => {
                    described = Some(PageKind::DataV2);
                    thrift.numbers(|id, value| {
                        match id {
                            1 => header.values = count(value)?,
                            4 => header.encoding = value,
                            5 => header.definition = count(value)?,
                            6 => header.repetition = count(value)?,
                            7 => header.is_packed = value != 0,
                            _ => {}
                        }
                        Ok(())
                    })?;
                }
                _ => thrift.skip(kind)?,
            }
            Ok(())
        })?;
        if header.kind.is_some() && header.kind != described {
            return Err(damage("a page is not what its header says"));
        }
        Ok(header)
    }
}

/// A number that fits the 31 bits it has in the format.
fn count(value: i64) -> io::Result<u32> {
    i32::try_from(value)
        .ok()
        .and_then(|v| u32::try_from(v).ok())
        .ok_or_else(|| damage(format!("a page of size {value}")))
}
