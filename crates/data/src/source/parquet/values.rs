//! The values of a page, one after the other.
//!
//! A value is its bytes as they stand in the file, which for a whole number are 4 or 8, the lowest first. Nothing is
//! copied, and nothing is held for a count that is only claimed.

use super::delta::Delta;
use super::runs::{MOST_BITS, Runs, take};
use super::schema::Stored;
use super::thrift::damage;
use std::io;

/// How the values of a page are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain,
    /// As references to a dictionary.
    Dictionary,
    /// As differences, for whole numbers.
    Delta,
}

impl Encoding {
    /// By its number in the format. The delta encodings of bytes are for texts that begin alike, as images never do.
    pub(super) fn of(code: i64, stored: Stored) -> io::Result<Self> {
        Ok(match code {
            0 => Encoding::Plain,
            2 | 8 => Encoding::Dictionary,
            5 if stored != Stored::Bytes => Encoding::Delta,
            5..=7 => {
                return Err(damage("a delta encoding of bytes; write it again with the plain or dictionary encoding"));
            }
            _ => return Err(damage(format!("encoding {code} is not known"))),
        })
    }
}

/// Takes a value off the front.
fn plain<'a>(bytes: &mut &'a [u8], stored: Stored) -> io::Result<&'a [u8]> {
    match stored {
        Stored::Int32 => take(bytes, 4),
        Stored::Int64 => take(bytes, 8),
        Stored::Bytes => {
            let length = take(bytes, 4)?.iter().rev().fold(0, |length, &byte| length << 8 | usize::from(byte));
            take(bytes, length)
        }
        Stored::Other(name) => Err(damage(format!("values of type {name}"))),
    }
}

/// The number that a value is.
pub(super) fn number(value: &[u8]) -> io::Result<i64> {
    match (value.try_into(), value.try_into()) {
        (Ok(four), _) => Ok(i32::from_le_bytes(four).into()),
        (_, Ok(eight)) => Ok(i64::from_le_bytes(eight)),
        _ => Err(damage(format!("a whole number of {} bytes", value.len()))),
    }
}

/// Values that pages refer to.
pub(super) struct Dictionary {
    bytes: Vec<u8>,
    /// Where each value starts.
    starts: Vec<u32>,
    stored: Stored,
}

impl Dictionary {
    /// Of a page that has to hold `count` values, which always are plain.
    pub(super) fn new(bytes: Vec<u8>, count: u32, stored: Stored) -> io::Result<Self> {
        let (mut starts, mut rest) = (Vec::new(), &bytes[..]);
        for _ in 0..count {
            let start = bytes.len() - rest.len();
            starts.push(u32::try_from(start).map_err(|_| damage("a dictionary of more than 4 GiB"))?);
            plain(&mut rest, stored).map_err(|_| {
                damage(format!("a dictionary of {} bytes is too small for its {count} values", bytes.len()))
            })?;
        }
        Ok(Self { bytes, starts, stored })
    }

    fn get(&self, index: u32) -> io::Result<&[u8]> {
        match self.starts.get(index as usize) {
            Some(&start) => plain(&mut &self.bytes[start as usize..], self.stored),
            None => Err(damage(format!("a page refers to value {index} of a dictionary of {}", self.starts.len()))),
        }
    }
}

/// The values of a page. Nulls are not among them.
pub(super) enum Values<'a> {
    Plain { bytes: &'a [u8], stored: Stored },
    Dictionary { indices: Runs<'a>, dictionary: &'a Dictionary },
    Delta { values: Delta<'a>, size: usize, latest: [u8; 8] },
}

impl<'a> Values<'a> {
    pub(super) fn new(
        encoding: Encoding,
        bytes: &'a [u8],
        stored: Stored,
        dictionary: Option<&'a Dictionary>,
    ) -> io::Result<Self> {
        match (encoding, bytes) {
            // Where all are null, some writers leave out what every encoding starts with.
            (Encoding::Plain, _) | (_, []) => Ok(Values::Plain { bytes, stored }),
            (Encoding::Dictionary, &[width, ref indices @ ..]) => {
                let dictionary = dictionary.ok_or_else(|| damage("a page refers to a dictionary that is not there"))?;
                if u32::from(width) > MOST_BITS {
                    return Err(damage(format!("references of {width} bits to a dictionary")));
                }
                Ok(Values::Dictionary { indices: Runs::new(indices, width.into()), dictionary })
            }
            (Encoding::Delta, _) => {
                let size = if stored == Stored::Int32 { 4 } else { 8 };
                Ok(Values::Delta { values: Delta::new(bytes)?, size, latest: [0; 8] })
            }
        }
    }

    pub(super) fn next(&mut self) -> io::Result<&[u8]> {
        match self {
            Values::Plain { bytes, stored } => plain(bytes, *stored),
            Values::Dictionary { indices, dictionary } => dictionary.get(indices.next()?),
            Values::Delta { values, size, latest } => {
                // Numbers of 4 bytes wrap around at these: what is above does not count.
                *latest = values.next()?.to_le_bytes();
                Ok(&latest[..*size])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All values up to the end or an error.
    fn all(encoding: Encoding, bytes: &[u8], stored: Stored, dictionary: Option<&Dictionary>) -> Vec<Vec<u8>> {
        let Ok(mut values) = Values::new(encoding, bytes, stored, dictionary) else { return Vec::new() };
        (0..99).map_while(|_| values.next().ok().map(<[u8]>::to_vec)).collect()
    }

    fn numbers(encoding: Encoding, bytes: &[u8], stored: Stored, dictionary: Option<&Dictionary>) -> Vec<i64> {
        all(encoding, bytes, stored, dictionary).iter().map(|value| number(value).unwrap()).collect()
    }

    const TEXTS: &[u8] = b"\x03\0\0\0cat\0\0\0\0\x02\0\0\0ox";

    #[test]
    fn plain_bytes_have_their_length_before_them() {
        assert_eq!(all(Encoding::Plain, TEXTS, Stored::Bytes, None), [&b"cat"[..], b"", b"ox"]);
        // A length that is a lie, and one that is cut off.
        assert_eq!(all(Encoding::Plain, &TEXTS[..TEXTS.len() - 1], Stored::Bytes, None).len(), 2);
        assert_eq!(all(Encoding::Plain, &TEXTS[..10], Stored::Bytes, None).len(), 1);
        assert!(all(Encoding::Plain, b"\xff\xff\xff\xffcat", Stored::Bytes, None).is_empty());
    }

    #[test]
    fn plain_numbers_have_the_lowest_byte_first() {
        let bytes = [0x02, 0x01, 0, 0, 0xff, 0xff, 0xff, 0xff, 0];
        assert_eq!(numbers(Encoding::Plain, &bytes, Stored::Int32, None), [0x102, -1]);
        let bytes = [0, 0, 0, 0, 0x02, 0x01, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0];
        assert_eq!(numbers(Encoding::Plain, &bytes, Stored::Int64, None), [0x102_0000_0000, -2]);
        assert!(number(b"abc").is_err());
        assert!(all(Encoding::Plain, &[0; 99], Stored::Other("double"), None).is_empty());
    }

    #[test]
    fn references_start_with_their_number_of_bits() {
        let texts = Dictionary::new(TEXTS.to_vec(), 3, Stored::Bytes).unwrap();
        let found = |bytes: &[u8]| all(Encoding::Dictionary, bytes, Stored::Bytes, Some(&texts));
        // Twice number 2, then 0 1 2 0 1 2 0 0 with two bits each.
        let bytes = [2, 2 << 1, 2, 0b11, 0b0010_0100, 0b0000_1001];
        assert_eq!(found(&bytes).concat(), b"oxoxcatoxcatoxcatcat");
        assert_eq!(found(&bytes).len(), 10);
        // No bits: all are the first.
        assert_eq!(found(&[0, 4 << 1]), [b"cat"; 4]);
        // Beyond the dictionary; bits that no reference has; no dictionary at all.
        assert!(found(&[2, 2 << 1, 3]).is_empty());
        assert!(found(&[33, 2 << 1, 0, 0, 0, 0, 0]).is_empty());
        assert!(all(Encoding::Dictionary, &bytes, Stored::Bytes, None).is_empty());
    }

    #[test]
    fn a_dictionary_of_numbers() {
        for (stored, size) in [(Stored::Int32, 4), (Stored::Int64, 8)] {
            let bytes: Vec<u8> = [7i64, -9].iter().flat_map(|value| value.to_le_bytes()[..size].to_vec()).collect();
            let dictionary = Dictionary::new(bytes.clone(), 2, stored).unwrap();
            assert_eq!(numbers(Encoding::Dictionary, &[1, 2 << 1, 1], stored, Some(&dictionary)), [-9, -9]);
            assert!(Dictionary::new(bytes, 3, stored).is_err());
        }
    }

    #[test]
    fn a_dictionary_that_is_smaller_than_it_claims_is_an_error() {
        let error = Dictionary::new(TEXTS.to_vec(), u32::MAX, Stored::Bytes).err().unwrap().to_string();
        assert!(error.contains("17 bytes is too small for its 4294967295 values"), "{error}");
    }

    #[test]
    fn differences_of_small_numbers_wrap_around_at_their_size() {
        // The largest of 4 bytes, then 1 more.
        let bytes = [0x80, 0x01, 4, 2, 0xfe, 0xff, 0xff, 0xff, 0x0f, 2, 0, 0, 0, 0];
        assert_eq!(numbers(Encoding::Delta, &bytes, Stored::Int32, None), [(1 << 31) - 1, -(1 << 31)]);
        assert_eq!(numbers(Encoding::Delta, &bytes, Stored::Int64, None), [(1 << 31) - 1, 1 << 31]);
    }

    #[test]
    fn a_page_of_nulls_may_hold_nothing() {
        for encoding in [Encoding::Plain, Encoding::Dictionary, Encoding::Delta] {
            assert!(Values::new(encoding, &[], Stored::Int64, None).unwrap().next().is_err());
        }
    }
}
