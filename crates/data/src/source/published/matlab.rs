//! Matrices of numbers in a MATLAB file of version 5 ("MAT-File Format", MathWorks): a header of 128 bytes, then elements of a type,
//! a length and data, padded to eight bytes; an element may be packed by zlib. Anything but plain numeric matrices is
//! passed over. Nothing is believed of a file that its length does not bear out.

use super::OpenError;
use super::listing::broken;
use flate2::read::ZlibDecoder;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use text::thousands;

/// The files of Flowers-102 have a few kilobytes, and unpacked not much more.
const MOST_BYTES: u64 = 16 << 20;
const HEADER: usize = 128;

/// Types of data.
const MATRIX: u32 = 14;
const COMPRESSED: u32 = 15;

/// Numeric matrices by name, column by column.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Variables(BTreeMap<String, Vec<f64>>);

impl Variables {
    /// The whole numbers of a variable.
    pub(super) fn numbers(&self, name: &str) -> Result<Vec<i64>, String> {
        let values = self.0.get(name).ok_or_else(|| {
            let others: Vec<&str> = self.0.keys().map(String::as_str).take(5).collect();
            format!("has no numbers called `{name}`; it has {}", others.join(", "))
        })?;
        let whole = |&value: &f64| (value.fract() == 0.0 && value.abs() < 1e15).then_some(value as i64);
        let numbers: Option<Vec<i64>> = values.iter().map(whole).collect();
        numbers.ok_or_else(|| format!("`{name}` has a value that is no whole number"))
    }
}

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<Variables, OpenError> {
    let refused = |source| OpenError::Io { path: path.to_path_buf(), source };
    let file = std::fs::File::open(path).map_err(refused)?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(refused)?;
    parse(&bytes).map_err(|problem| broken(path, problem))
}

/// Reads the bytes of a file.
pub(super) fn parse(bytes: &[u8]) -> Result<Variables, String> {
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!("is larger than {} bytes: no list of labels", thousands(MOST_BYTES)));
    }
    // Version 0x0100, written in the order of the machine: `IM` means that the least significant byte is the first.
    if bytes.len() < HEADER || bytes[124..HEADER] != [0, 1, b'I', b'M'] {
        return Err("is no MATLAB file of version 5".to_owned());
    }
    let (mut variables, mut rest) = (Variables::default(), &bytes[HEADER..]);
    let mut budget = MOST_BYTES;
    while rest.len() >= 8 {
        let (kind, data, after) = element(rest)?;
        match kind {
            COMPRESSED => {
                let mut unpacked = Vec::new();
                let unpacking = ZlibDecoder::new(data).take(budget + 1).read_to_end(&mut unpacked);
                unpacking.map_err(|error| format!("has a part that cannot be unpacked: {error}"))?;
                let left = budget.checked_sub(unpacked.len() as u64);
                budget = left.ok_or_else(|| format!("unpacks to more than {} bytes", thousands(MOST_BYTES)))?;
                let (kind, data, _) = element(&unpacked)?;
                if kind == MATRIX {
                    variables.0.extend(matrix(data)?);
                }
            }
            MATRIX => variables.0.extend(matrix(data)?),
            _ => {}
        }
        rest = after;
    }
    Ok(variables)
}

/// Type and data of the first element, and what follows it.
fn element(bytes: &[u8]) -> Result<(u32, &[u8], &[u8]), String> {
    let cut = || "ends within an element".to_owned();
    let word = |at: usize| -> Result<u32, String> {
        let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).ok_or_else(cut)?;
        Ok(u32::from_le_bytes(bytes))
    };
    let first = word(0)?;
    // A small element has its length in the upper half of the type, and its data where others have the length.
    let (kind, start, length) = match first >> 16 {
        0 => (first, 8, word(4)? as usize),
        length => (first & 0xffff, 4, length as usize),
    };
    if start == 4 && length > 4 {
        return Err("has a small element that is not small".to_owned());
    }
    let data = bytes.get(start..).and_then(|bytes| bytes.get(..length)).ok_or_else(cut)?;
    let end = if start == 4 { 8 } else { 8 + length };
    // What is packed is not padded.
    let end = if kind == COMPRESSED { end } else { end.next_multiple_of(8) };
    Ok((kind, data, bytes.get(end..).unwrap_or(&[])))
}

/// Name and values of a matrix, if it is one of numbers.
fn matrix(data: &[u8]) -> Result<Option<(String, Vec<f64>)>, String> {
    /// Numeric classes: double, single and the integers.
    const CLASSES: std::ops::RangeInclusive<u8> = 6..=15;
    let (_, flags, rest) = element(data)?;
    let is_numeric = flags.first().is_some_and(|class| CLASSES.contains(class));
    let (_, dimensions, rest) = element(rest)?;
    let sizes = dimensions.chunks_exact(4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    let count = sizes.map(u64::from).try_fold(1u64, u64::checked_mul);
    let (_, name, rest) = element(rest)?;
    let name = String::from_utf8_lossy(name).into_owned();
    if !is_numeric {
        return Ok(None);
    }
    let (kind, values, _) = element(rest)?;
    let values = numbers(kind, values).ok_or_else(|| format!("`{name}` has values of an unknown type"))?;
    if count != Some(values.len() as u64) {
        return Err(format!("`{name}` has not as many values as its size says"));
    }
    Ok(Some((name, values)))
}

/// Values of one of the types that numbers are stored as: a matrix of doubles may be stored as bytes.
fn numbers(kind: u32, data: &[u8]) -> Option<Vec<f64>> {
    macro_rules! of {
        ($type:ty) => {{
            const SIZE: usize = size_of::<$type>();
            let value = |bytes: &[u8]| bytes.try_into().map(|bytes: [u8; SIZE]| <$type>::from_le_bytes(bytes) as f64);
            data.chunks_exact(SIZE).map(value).collect::<Result<Vec<f64>, _>>().ok()
        }};
    }
    match kind {
        1 => of!(i8),
        2 => of!(u8),
        3 => of!(i16),
        4 => of!(u16),
        5 => of!(i32),
        6 => of!(u32),
        7 => of!(f32),
        9 => of!(f64),
        12 => of!(i64),
        13 => of!(u64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scipy_wrote_is_read_packed_or_not() {
        let plain = include_bytes!("../../../tests/fixtures/matlab/plain.mat");
        let packed = include_bytes!("../../../tests/fixtures/matlab/packed.mat");
        for bytes in [&plain[..], &packed[..]] {
            let variables = parse(bytes).unwrap();
            assert_eq!(variables.numbers("labels"), Ok(vec![77, 1, 102, 3]));
            assert_eq!(variables.numbers("wide"), Ok(vec![1, 300, 70_000, -5]));
            assert_eq!(variables.numbers("one"), Ok(vec![9]));
            assert!(variables.numbers("halves").unwrap_err().contains("no whole number"));
            assert!(variables.numbers("text").unwrap_err().contains("has no numbers called `text`"));
        }
    }

    #[test]
    fn damage_is_an_error_and_never_a_panic() {
        let packed = include_bytes!("../../../tests/fixtures/matlab/packed.mat");
        let plain = include_bytes!("../../../tests/fixtures/matlab/plain.mat");
        assert!(parse(b"MATLAB").unwrap_err().contains("no MATLAB file"));
        for bytes in [&plain[..], &packed[..]] {
            for cut in 0..bytes.len() {
                _ = parse(&bytes[..cut]);
            }
            for at in HEADER..bytes.len() {
                let mut damaged = bytes.to_vec();
                for flip in [1, 0x80, 0xff] {
                    damaged[at] ^= flip;
                    _ = parse(&damaged);
                }
            }
        }
    }

    #[test]
    fn a_bomb_is_refused() {
        use std::io::Write;
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        zlib.write_all(&vec![0; 64 << 20]).unwrap();
        let data = zlib.finish().unwrap();
        let mut bytes = vec![0; HEADER];
        bytes[124..].copy_from_slice(&[0, 1, b'I', b'M']);
        bytes.extend(COMPRESSED.to_le_bytes());
        bytes.extend((data.len() as u32).to_le_bytes());
        bytes.extend(data);
        assert!(parse(&bytes).unwrap_err().contains("unpacks to more than"));
    }
}
