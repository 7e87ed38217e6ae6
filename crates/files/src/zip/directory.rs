//! The directory of an archive.

use std::ops::Range;

use super::fields::Fields;
use super::{Entry, MAX_NAME, ZipError};

const HEADER: &[u8] = b"PK\x01\x02";

/// Bytes of a header before the name of its entry.
const HEADER_LENGTH: usize = 46;

/// Bytes of the header before an entry, without its name and what follows it.
pub const LOCAL_LENGTH: u64 = 30;

/// The kind of extra field that has the numbers of 64 bits.
const ZIP_64: u16 = 1;

/// The entries of a directory, in its order, each with its place in the file; `start` is where the directory begins.
pub fn entries(mut directory: &[u8], count: u64, start: u64) -> Result<Vec<Entry>, ZipError> {
    let mut entries = Vec::with_capacity(count as usize); // the directory is long enough for so many
    for number in 1..=count {
        entries.push(next(&mut directory, number)?);
    }
    if !directory.is_empty() {
        return Err(ZipError::BadEnd("the directory has more than its entries"));
    }
    separate(&mut entries, start)?;
    Ok(entries)
}

/// Takes the next header from the directory.
fn next(directory: &mut &[u8], number: u64) -> Result<Entry, ZipError> {
    let bad = |problem| ZipError::BadDirectory { number, problem };
    let mut take = |length: usize| {
        let (taken, rest) = directory.split_at_checked(length).ok_or(bad("the directory ends within it"))?;
        *directory = rest;
        Ok::<_, ZipError>(taken)
    };
    let header = take(HEADER_LENGTH)?;
    if !header.starts_with(HEADER) {
        return Err(bad("it does not begin as an entry does"));
    }
    let header = Fields(header);
    let (name, extra, comment) = (header.u16(28).into(), header.u16(30).into(), header.u16(32).into());
    if name > MAX_NAME {
        return Err(ZipError::NameTooLong { number, found: name });
    }
    let (name, extra, _) = (take(name)?, take(extra)?, take(comment)?);
    let mut wide = zip_64(extra).chunks_exact(8).map(|bytes| Fields(bytes).u64(0));
    // The numbers of 64 bits are those that do not fit, in this order.
    let mut number_of = |place| match header.u32(place) {
        u32::MAX => wide.next().ok_or(bad("a number of zip64 is missing")),
        fits => Ok(fits.into()),
    };
    let (size, stored, header_at) = (number_of(24)?, number_of(20)?, number_of(42)?);
    if !matches!(header.u16(34), 0 | u16::MAX) {
        return Err(ZipError::Split);
    }
    let name = std::str::from_utf8(name).map_err(|_| bad("its name is not text in UTF-8"))?;
    Ok(Entry {
        name: name.into(),
        size,
        method: header.u16(10),
        crc32: Some(header.u32(16)).filter(|&crc32| crc32 != 0),
        stored,
        is_encrypted: header.u16(8) & 1 != 0,
        header: header_at,
        limit: 0,
    })
}

/// What the extra field of zip64 holds; nothing if there is none.
fn zip_64(mut extra: &[u8]) -> &[u8] {
    while let Some((head, rest)) = extra.split_at_checked(4) {
        let length = usize::from(Fields(head).u16(2));
        let Some((field, behind)) = rest.split_at_checked(length) else { break };
        if Fields(head).u16(0) == ZIP_64 {
            return field;
        }
        extra = behind;
    }
    &[]
}

/// Gives each entry the part of the file up to the header of the next one, or to the directory: they cannot overlap.
fn separate(entries: &mut [Entry], start: u64) -> Result<(), ZipError> {
    let mut order: Vec<u32> = (0..entries.len() as u32).collect();
    order.sort_unstable_by_key(|&place| entries[place as usize].header);
    let mut limit = start;
    for &place in order.iter().rev() {
        let entry = &mut entries[place as usize];
        entry.limit = limit;
        limit = entry.header;
        // What else there is between header and entry is only known when it is read.
        entry.behind(LOCAL_LENGTH + entry.name.len() as u64)?;
    }
    Ok(())
}

impl Entry {
    /// Where the bytes of the entry are, if its header has so many.
    pub(super) fn behind(&self, header: u64) -> Result<Range<u64>, ZipError> {
        let start = self.header.checked_add(header);
        let end = start.and_then(|start| start.checked_add(self.stored));
        match (start, end) {
            (Some(start), Some(end)) if end <= self.limit => Ok(start..end),
            _ => Err(ZipError::Overlap { name: self.name.to_string() }),
        }
    }
}
