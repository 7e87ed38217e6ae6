//! The pages of a column, one after the other, unpacked.
//!
//! A page is refused unless its sizes agree with the file and with what is left of the column.

use super::budget::Allowance;
use super::codec;
use super::footer::Chunk;
use super::header::{Header, PageKind};
use super::schema::{Leaf, Stored};
use super::thrift::{Thrift, damage};
use super::values::{Dictionary, Encoding};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;

/// The number of the encoding of levels.
const RLE: i64 = 3;

/// Values and the levels that say which of them are null.
pub(super) struct DataPage {
    /// Values, nulls included.
    pub values: u32,
    pub encoding: Encoding,
    bytes: Vec<u8>,
    /// Where the levels are. The values come after them.
    levels: Range<usize>,
}

impl DataPage {
    /// The levels as they are stored.
    pub(super) fn levels(&self) -> &[u8] {
        &self.bytes[self.levels.clone()]
    }

    /// The values as they are stored.
    pub(super) fn stored(&self) -> &[u8] {
        &self.bytes[self.levels.end..]
    }
}

/// Pages of a column within a group of rows.
pub(super) struct Pages<'a, F> {
    file: BufReader<F>,
    /// Bytes of the column that have not been read.
    bytes_left: u64,
    /// Values of the column that have not been announced by a page.
    values_left: u64,
    codec: i64,
    stored: Stored,
    /// True where values may be null.
    has_levels: bool,
    dictionary: Option<Dictionary>,
    /// Bytes that pages may still unpack to.
    unpacked: &'a mut Allowance,
}

impl<'a, F: Read + Seek> Pages<'a, F> {
    pub(super) fn new(mut file: F, chunk: &Chunk, leaf: &Leaf, unpacked: &'a mut Allowance) -> io::Result<Self> {
        file.seek(SeekFrom::Start(chunk.start))?;
        Ok(Self {
            file: BufReader::new(file),
            bytes_left: chunk.bytes,
            values_left: chunk.values,
            codec: chunk.codec,
            stored: leaf.stored,
            has_levels: leaf.definition > 0,
            dictionary: None,
            unpacked,
        })
    }

    /// The dictionary of the column, which comes before the pages that refer to it.
    pub(super) fn dictionary(&self) -> Option<&Dictionary> {
        self.dictionary.as_ref()
    }

    /// The next page with values. None when there is no more, or all values of the column have been.
    pub(super) fn next_page(&mut self) -> io::Result<Option<DataPage>> {
        while self.bytes_left > 0 && self.values_left > 0 {
            let before = self.bytes_left;
            let mut thrift = Thrift::new(&mut self.file, self.bytes_left);
            let header = Header::read(&mut thrift)?;
            self.bytes_left = thrift.left();
            self.bytes_left = self.bytes_left.checked_sub(header.packed).ok_or_else(|| {
                damage(format!("a page of {} bytes in a column with {} left", header.packed, self.bytes_left))
            })?;
            // What is read counts too: several columns may claim the same bytes.
            self.unpacked.spend(header.unpacked.max(before - self.bytes_left))?;
            match header.kind {
                Some(PageKind::Dictionary) => self.read_dictionary(&header)?,
                Some(kind) if header.values > 0 => return self.data(&header, kind).map(Some),
                // An index, or a page of nothing.
                _ => _ = io::copy(&mut self.file.by_ref().take(header.packed), &mut io::sink())?,
            }
        }
        Ok(None)
    }

    fn read_dictionary(&mut self, header: &Header) -> io::Result<()> {
        if self.dictionary.is_some() {
            return Err(damage("a column with a second dictionary"));
        }
        let bytes = self.body(header, 0, true)?;
        self.dictionary = Some(Dictionary::new(bytes, header.values, self.stored)?);
        Ok(())
    }

    fn data(&mut self, header: &Header, kind: PageKind) -> io::Result<DataPage> {
        let values = header.values;
        self.values_left = self
            .values_left
            .checked_sub(values.into())
            .ok_or_else(|| damage(format!("a page of {values} values in a column with {} left", self.values_left)))?;
        let encoding = Encoding::of(header.encoding, self.stored)?;
        let (bytes, levels) = if kind == PageKind::DataV2 {
            // Levels of lists come first; without lists they say nothing.
            let (start, bytes) = (header.repetition as usize, header.definition as usize);
            (self.body(header, start + bytes, header.is_packed)?, start..start + bytes)
        } else {
            let bytes = self.body(header, 0, true)?;
            let levels = if self.has_levels { levels(&bytes, header.level_encoding)? } else { 0..0 };
            (bytes, levels)
        };
        Ok(DataPage { values, encoding, bytes, levels })
    }

    /// The bytes of a page after unpacking. The newer kind of page keeps its levels outside of what is packed.
    fn body(&mut self, header: &Header, levels: usize, is_packed: bool) -> io::Result<Vec<u8>> {
        // No more than is left of the column, and that is in the file.
        let mut packed = Vec::with_capacity(header.packed as usize);
        self.file.by_ref().take(header.packed).read_to_end(&mut packed)?;
        if (packed.len() as u64) < header.packed {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if header.checksum.is_some_and(|expected| crc32(&packed) != expected) {
            return Err(damage("the checksum of a page is wrong"));
        }
        let unpacked = header.unpacked as usize;
        if levels > packed.len() || levels > unpacked {
            return Err(damage("a page is smaller than its levels"));
        }
        if self.codec == 0 || !is_packed {
            return Ok(packed);
        }
        let (levels, packed) = packed.split_at(levels);
        let mut bytes = levels.to_vec();
        let size = unpacked - levels.len();
        // No values, no bytes: some writers do not even pack nothing.
        if size > 0 {
            codec::unpack(self.codec, packed, size, &mut bytes)?;
        }
        Ok(bytes)
    }
}

/// Where the levels are in a page of the older kind, which starts with their length.
fn levels(page: &[u8], encoding: i64) -> io::Result<Range<usize>> {
    if encoding != RLE {
        return Err(damage("nulls are marked in a way that was given up long ago; write the file again"));
    }
    let length = page.first_chunk().map(|&length| u32::from_le_bytes(length) as usize);
    match length {
        Some(length) if length <= page.len() - 4 => Ok(4..4 + length),
        _ => Err(damage("a page is smaller than its levels")),
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, Write};

    const PAGE: usize = 1 << 20;

    /// A number as headers have it.
    fn int(value: usize) -> Vec<u8> {
        let mut rest = value << 1;
        let mut bytes = Vec::new();
        while rest > 127 {
            bytes.push(rest as u8 | 128);
            rest >>= 7;
        }
        bytes.push(rest as u8);
        bytes
    }

    /// A page of zeros, packed with gzip: one value without bytes, and many bytes that are no value.
    fn page() -> Vec<u8> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(&vec![0; PAGE]).unwrap();
        let packed = gzip.finish().unwrap();
        // Its kind, both sizes, and that it has one plain value.
        let sizes = [&[0x15, 0, 0x15], &int(PAGE)[..], &[0x15], &int(packed.len())].concat();
        [&sizes[..], &[0x2c, 0x15, 2, 0x15, 0, 0x15, 6, 0, 0], &packed].concat()
    }

    #[test]
    fn many_small_pages_cannot_unpack_to_more_than_is_allowed_in_all() {
        let bytes = page().repeat(5);
        let leaf = Leaf {
            top: 0,
            name: "image".to_owned(),
            depth: 1,
            stored: Stored::Bytes,
            is_text: false,
            definition: 0,
            repeated: false,
        };
        let chunk = Chunk { start: 0, bytes: bytes.len() as u64, unpacked: 0, values: 5, codec: 2 };
        let mut unpacked = Allowance::new("its pages unpack to more bytes", 7 * PAGE as u64);
        let mut read = || {
            let mut pages = Pages::new(Cursor::new(&bytes[..]), &chunk, &leaf, &mut unpacked)?;
            while let Some(page) = pages.next_page()? {
                assert_eq!(page.stored().len(), PAGE);
            }
            io::Result::Ok(())
        };
        assert!(read().is_ok(), "five of seven");
        let error = read().unwrap_err().to_string();
        assert!(error.contains("its pages unpack to more bytes than 7,340,032"), "{error}");
    }
}
