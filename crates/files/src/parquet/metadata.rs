//! The texts in the description of a file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::MAGIC;
use crate::thrift::{Kind, Thrift, damage};

/// Length of the description and the magic.
const TAIL: u64 = 8;

/// The longest description that is looked at: others are of tables with very many groups, which nobody here writes.
const MAX_DESCRIPTION: u64 = 64 << 20;

/// The texts that a parquet file says of itself, by key. An error for any other file; one that is not a plain file is
/// not opened.
pub fn metadata(path: &Path) -> io::Result<BTreeMap<String, String>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(damage("not a parquet file"));
    }
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    of_bytes(BufReader::new(file), bytes)
}

/// Where the description of a file of so many bytes is: its start and its length. The file is left at its start.
pub(super) fn description(file: &mut (impl Read + Seek), bytes: u64) -> io::Result<(u64, u64)> {
    let magic = MAGIC.len() as u64;
    let Some(end) = bytes.checked_sub(TAIL).filter(|&end| end >= magic) else {
        return Err(damage("not a parquet file: too short"));
    };
    let mut tail = [0; TAIL as usize];
    file.seek(SeekFrom::Start(end))?;
    file.read_exact(&mut tail)?;
    let [a, b, c, d, ending @ ..] = tail;
    let length = u64::from(u32::from_le_bytes([a, b, c, d]));
    let start = end.checked_sub(length).filter(|&start| start >= magic);
    let (Some(start), true) = (start, ending == *MAGIC && length <= MAX_DESCRIPTION) else {
        return Err(damage("not a parquet file, or one with a description that cannot be meant"));
    };
    file.seek(SeekFrom::Start(start))?;
    Ok((start, length))
}

/// The next field of a description, which is its texts by key.
pub(super) fn texts(thrift: &mut Thrift<impl Read>, found: &mut BTreeMap<String, String>) -> io::Result<()> {
    thrift.list(Kind::Struct, |thrift| {
        let (mut key, mut value) = (None, None);
        thrift.fields(|thrift, id, kind| match (id, kind) {
            (1, Kind::Text) => thrift.text().map(|text| key = Some(text)),
            (2, Kind::Text) => thrift.text().map(|text| value = Some(text)),
            _ => thrift.skip(kind),
        })?;
        found.extend(key.zip(value));
        Ok(())
    })
}

fn of_bytes(mut file: impl Read + Seek, bytes: u64) -> io::Result<BTreeMap<String, String>> {
    let (_, length) = description(&mut file, bytes)?;
    let mut found = BTreeMap::new();
    Thrift::new(file, length).fields(|thrift, id, kind| match (id, kind) {
        (5, Kind::List) => texts(thrift, &mut found),
        _ => thrift.skip(kind),
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::TableWriter;
    use super::*;
    use std::io::Cursor;

    #[test]
    fn texts_are_read_as_they_were_written_and_damage_is_an_error() {
        let said = [("format", "features"), ("é", "\"quoted\"\n"), ("empty", "")];
        let bytes = TableWriter::new(Vec::new(), &[]).unwrap().finish(&said).unwrap();
        let read = |bytes: &[u8]| of_bytes(Cursor::new(bytes), bytes.len() as u64);
        let found = read(&bytes).unwrap();
        assert_eq!(found, said.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect());
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "{length}");
        }
        let mut claim = bytes.clone();
        let at = claim.len() - 8;
        claim[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(read(&claim).is_err());
        assert!(metadata(Path::new(env!("CARGO_MANIFEST_DIR"))).is_err(), "a folder");
    }
}
