//! The records at the end of an archive, which say where its directory is.
//!
//! ```text
//! directory   one header for each entry
//! zip64 end   numbers of 64 bits, in archives that need them, and in all of PyTorch's
//! locator     20 bytes: where the zip64 end is
//! end         22 bytes: the same numbers in 16 and 32 bits, all ones where they do not fit; a comment
//! ```

use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

use super::fields::Fields;
use super::{MAX_DIRECTORY, MAX_ENTRIES, ZipError};

const END: &[u8] = b"PK\x05\x06";
const LOCATOR: &[u8] = b"PK\x06\x07";
const END_64: &[u8] = b"PK\x06\x06";

/// Bytes of the end without its comment.
const END_LENGTH: usize = 22;
const LOCATOR_LENGTH: u64 = 20;
const END_64_LENGTH: usize = 56;

/// Bytes of a header in the directory, at least.
const HEADER_LENGTH: u64 = 46;

/// Where the directory is.
pub struct End {
    /// How many entries it has.
    pub entries: u64,
    /// Where in the file it is: no longer than is sensible, and long enough for so many entries.
    pub directory: Range<u64>,
}

/// Reads the end of a file of `length` bytes.
pub fn read<R: Read + Seek + ?Sized>(file: &mut R, length: u64) -> Result<End, ZipError> {
    let (end, record) = find(file, length)?;
    let numbers = Numbers::of_end(&record)?;
    let (numbers, limit) = match locate_64(file, end)? {
        Some(place) => (numbers.agree_with(Numbers::of_end_64(file, place)?)?, place),
        None => (numbers, end),
    };
    numbers.checked(limit)
}

/// Finds the end: where it is, and its bytes without the comment.
fn find<R: Read + Seek + ?Sized>(file: &mut R, length: u64) -> Result<(u64, [u8; END_LENGTH]), ZipError> {
    let longest = END_LENGTH as u64 + u64::from(u16::MAX);
    let start = length.saturating_sub(longest);
    let mut tail = vec![0; (length - start) as usize];
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(&mut tail)?;
    // The comment that a record announces has to end with the file, or the record is not one.
    let is_end = |place: usize, record: &[u8; END_LENGTH]| {
        record.starts_with(END) && place + END_LENGTH + usize::from(Fields(record).u16(20)) == tail.len()
    };
    let found = tail.array_windows().enumerate().rfind(|&(place, record)| is_end(place, record));
    found.map(|(place, record)| (start + place as u64, *record)).ok_or(ZipError::NoEnd)
}

/// Where the zip64 end is, if there is one.
fn locate_64<R: Read + Seek + ?Sized>(file: &mut R, end: u64) -> Result<Option<u64>, ZipError> {
    let Some(place) = end.checked_sub(LOCATOR_LENGTH) else { return Ok(None) };
    let mut locator = [0; LOCATOR_LENGTH as usize];
    file.seek(SeekFrom::Start(place))?;
    file.read_exact(&mut locator)?;
    if !locator.starts_with(LOCATOR) {
        return Ok(None);
    }
    let locator = Fields(&locator);
    if locator.u32(4) != 0 || locator.u32(16) > 1 {
        return Err(ZipError::Split);
    }
    let end_64 = locator.u64(8);
    match place.checked_sub(END_64_LENGTH as u64) {
        Some(last) if end_64 <= last => Ok(Some(end_64)),
        _ => Err(ZipError::BadEnd("its zip64 record is not where it should be")),
    }
}

/// What an end record says.
struct Numbers {
    entries: u64,
    size: u64,
    offset: u64,
}

impl Numbers {
    fn of_end(record: &[u8; END_LENGTH]) -> Result<Self, ZipError> {
        let record = Fields(record);
        // All ones where zip64 has the number.
        let is_first = |disk: u16| matches!(disk, 0 | u16::MAX);
        if !is_first(record.u16(4)) || !is_first(record.u16(6)) || record.u16(8) != record.u16(10) {
            return Err(ZipError::Split);
        }
        Ok(Self { entries: record.u16(10).into(), size: record.u32(12).into(), offset: record.u32(16).into() })
    }

    fn of_end_64<R: Read + Seek + ?Sized>(file: &mut R, place: u64) -> Result<Self, ZipError> {
        let mut record = [0; END_64_LENGTH];
        file.seek(SeekFrom::Start(place))?;
        file.read_exact(&mut record)?;
        if !record.starts_with(END_64) {
            return Err(ZipError::BadEnd("its zip64 record is not where it should be"));
        }
        let record = Fields(&record);
        if record.u32(16) != 0 || record.u32(20) != 0 || record.u64(24) != record.u64(32) {
            return Err(ZipError::Split);
        }
        Ok(Self { entries: record.u64(32), size: record.u64(40), offset: record.u64(48) })
    }

    /// The numbers of 64 bits, unless a smaller one tells something else.
    fn agree_with(&self, wide: Self) -> Result<Self, ZipError> {
        let agree = |small: u64, ones: u64, wide: u64| small == ones || small == wide;
        let ones = u64::from(u32::MAX);
        if !agree(self.entries, u16::MAX.into(), wide.entries)
            || !agree(self.size, ones, wide.size)
            || !agree(self.offset, ones, wide.offset)
        {
            return Err(ZipError::BadEnd("its two records differ"));
        }
        Ok(wide)
    }

    /// The directory, which has to end before `limit`.
    fn checked(&self, limit: u64) -> Result<End, ZipError> {
        if self.entries > MAX_ENTRIES {
            return Err(ZipError::TooManyEntries { found: self.entries });
        }
        if self.size > MAX_DIRECTORY {
            return Err(ZipError::DirectoryTooLong { found: self.size });
        }
        match self.offset.checked_add(self.size) {
            Some(end) if end <= limit && self.entries * HEADER_LENGTH <= self.size => {
                Ok(End { entries: self.entries, directory: self.offset..end })
            }
            Some(end) if end <= limit => Err(ZipError::BadEnd("the directory is too short for its entries")),
            _ => Err(ZipError::BadEnd("the directory is not within the file")),
        }
    }
}
