//! `.npy` files: an array with its shape and type in front. The header is a Python dictionary, read here without Python, and
//! nothing it claims is believed before the file's size says the same.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::element::Element;

/// The most bytes of a header. NumPy's own are below 200; it refuses beyond 10,000.
const MAX_HEADER: usize = 10_000;
const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Bytes that are read at once, a multiple of every element.
const PIECE: usize = 1 << 16;

/// Why an `.npy` file was not read.
#[derive(Debug, thiserror::Error)]
pub enum NpyError {
    /// The file system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A device, a pipe or a folder.
    #[error("not a regular file")]
    NotAFile,
    /// It does not begin as such a file does.
    #[error("not a NumPy array (.npy)")]
    NotNpy,
    /// Its header makes no sense.
    #[error("its header is damaged: {0}")]
    Header(&'static str),
    /// Elements that are no plain numbers.
    #[error("its elements are `{0}`, which are not plain numbers")]
    Element(String),
    /// Floats where whole numbers are needed.
    #[error("its elements are floats where whole numbers are needed; save it with `.astype(\"int32\")`")]
    NotIntegers,
    /// Whole numbers where floats are needed.
    #[error("its elements are whole numbers where floats are needed; save it with `.astype(\"float32\")`")]
    NotFloats,
    /// A whole number beyond 63 bits.
    #[error("element {0} is larger than any index")]
    TooLarge(usize),
    /// The size of the file is not what the header says.
    #[error("it has {there} bytes of elements, and its shape says {said}. Was it copied to its end?")]
    Length {
        /// Bytes behind the header.
        there: u64,
        /// Bytes that the shape needs.
        said: u64,
    },
}

/// An open `.npy` file whose header is sound and whose length is right.
#[derive(Debug)]
pub struct NpyFile<R = BufReader<File>> {
    input: R,
    element: Element,
    shape: Vec<usize>,
    is_fortran: bool,
}

impl NpyFile {
    /// Opens a file and reads its header.
    pub fn open(path: &Path) -> Result<Self, NpyError> {
        // Asked before opening: opening a pipe waits for somebody to write.
        if !fs::metadata(path)?.is_file() {
            return Err(NpyError::NotAFile);
        }
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Self::read(BufReader::new(file), length)
    }
}

impl<R: Read> NpyFile<R> {
    /// Reads the header of an array that is `length` bytes long with it.
    pub fn read(mut input: R, length: u64) -> Result<Self, NpyError> {
        let (header, before) = header(&mut input)?;
        let Header { element, shape, is_fortran } = parse(&header)?;
        let count = shape.iter().try_fold(element.size() as u64, |bytes, &side| bytes.checked_mul(side as u64));
        let said = count.ok_or(NpyError::Header("its shape is larger than any file"))?;
        let there = length.saturating_sub(before);
        if there != said {
            return Err(NpyError::Length { there, said });
        }
        Ok(Self { input, element, shape, is_fortran })
    }

    /// The extents of the array.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// All elements as whole numbers, the last axis fastest. Whoever calls this has looked at the [`shape`](Self::shape): it takes
    /// eight bytes for each element, sixteen for an array in Fortran's order.
    pub fn integers(self) -> Result<Vec<i64>, NpyError> {
        if !self.element.is_integer() {
            return Err(NpyError::NotIntegers);
        }
        self.elements(|element, bytes| element.integer(bytes))
    }

    /// All elements of an array of floats, in the same order. It takes half as much.
    pub fn floats(self) -> Result<Vec<f32>, NpyError> {
        if self.element.is_integer() {
            return Err(NpyError::NotFloats);
        }
        self.elements(|element, bytes| element.float(bytes).map(|value| value as f32))
    }

    fn elements<T: Copy>(mut self, value: impl Fn(&Element, &[u8]) -> Option<T>) -> Result<Vec<T>, NpyError> {
        let (count, size) = (self.shape.iter().product::<usize>(), self.element.size());
        let mut values = Vec::with_capacity(count);
        let mut piece = vec![0; PIECE.min(count * size)];
        while values.len() < count {
            let bytes = &mut piece[..PIECE.min((count - values.len()) * size)];
            self.input.read_exact(bytes)?;
            for element in bytes.chunks_exact(size) {
                values.push(value(&self.element, element).ok_or(NpyError::TooLarge(values.len()))?);
            }
        }
        Ok(if self.is_fortran { by_rows(&values, &self.shape) } else { values })
    }
}

/// Elements with the first axis fastest, put into the order with the last axis fastest.
fn by_rows<T: Copy>(values: &[T], shape: &[usize]) -> Vec<T> {
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = 1;
    for &side in shape {
        strides.push(stride);
        stride *= side;
    }
    let (mut index, mut place) = (vec![0; shape.len()], 0);
    let mut ordered = Vec::with_capacity(values.len());
    for _ in 0..values.len() {
        ordered.push(values[place]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            place += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            place -= strides[axis] * index[axis];
            index[axis] = 0;
        }
    }
    ordered
}

/// The text of the header, and the number of bytes up to its end.
fn header(input: &mut impl Read) -> Result<(Vec<u8>, u64), NpyError> {
    let mut begin = [0; 8];
    read_or(input, &mut begin, NpyError::NotNpy)?;
    if &begin[..6] != MAGIC {
        return Err(NpyError::NotNpy);
    }
    let short = || NpyError::Header("it ends within it");
    let (length, prefix) = match begin[6] {
        1 => {
            let mut bytes = [0; 2];
            read_or(input, &mut bytes, short())?;
            (usize::from(u16::from_le_bytes(bytes)), 10)
        }
        2 | 3 => {
            let mut bytes = [0; 4];
            read_or(input, &mut bytes, short())?;
            (u32::from_le_bytes(bytes) as usize, 12)
        }
        _ => return Err(NpyError::Header("its version is not known")),
    };
    if length > MAX_HEADER {
        return Err(NpyError::Header("it is longer than any array needs"));
    }
    let mut header = vec![0; length];
    read_or(input, &mut header, short())?;
    Ok((header, prefix + length as u64))
}

fn read_or(input: &mut impl Read, bytes: &mut [u8], short: NpyError) -> Result<(), NpyError> {
    input.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => short,
        _ => error.into(),
    })
}

struct Header {
    element: Element,
    shape: Vec<usize>,
    is_fortran: bool,
}

/// Reads `{'descr': '<i4', 'fortran_order': False, 'shape': (3, 2), }`.
fn parse(header: &[u8]) -> Result<Header, NpyError> {
    let damaged = NpyError::Header;
    let text = std::str::from_utf8(header).map_err(|_| damaged("it is no text"))?.trim();
    let inside =
        text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).ok_or(damaged("it is no dictionary"))?;
    let (mut element, mut shape, mut is_fortran) = (None, None, None);
    let mut rest = inside.trim_start();
    while !rest.is_empty() {
        let (key, after) = quoted(rest).ok_or(damaged("a key is no text"))?;
        let value = after.trim_start().strip_prefix(':').ok_or(damaged("a key has no value"))?.trim_start();
        let end = match key {
            "descr" => {
                let Some((name, end)) = quoted(value) else { return Err(NpyError::Element("a record".to_owned())) };
                element = Some(Element::of(name).ok_or_else(|| NpyError::Element(name.chars().take(40).collect()))?);
                end
            }
            "fortran_order" => match (value.strip_prefix("True"), value.strip_prefix("False")) {
                (Some(end), _) => {
                    is_fortran = Some(true);
                    end
                }
                (None, Some(end)) => {
                    is_fortran = Some(false);
                    end
                }
                (None, None) => return Err(damaged("`fortran_order` is neither True nor False")),
            },
            "shape" => {
                let (sides, end) = tuple(value).ok_or(damaged("`shape` is no tuple of numbers"))?;
                shape = Some(sides);
                end
            }
            _ => return Err(damaged("it has a key that no array has")),
        };
        let end = end.trim_start();
        rest = end.strip_prefix(',').unwrap_or(end).trim_start();
        if !rest.is_empty() && !end.starts_with(',') {
            return Err(damaged("a value does not end where it should"));
        }
    }
    match (element, shape, is_fortran) {
        (Some(element), Some(shape), Some(is_fortran)) => Ok(Header { element, shape, is_fortran }),
        _ => Err(damaged("it lacks `descr`, `shape` or `fortran_order`")),
    }
}

/// A quoted text without escapes, and what is behind it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].split_once(quote)
}

/// `(3, 2)`, `(3,)`, `()`, and what is behind it.
fn tuple(text: &str) -> Option<(Vec<usize>, &str)> {
    let (inside, rest) = text.strip_prefix('(')?.split_once(')')?;
    let inside = inside.trim();
    if inside.is_empty() {
        return Some((Vec::new(), rest));
    }
    let sides = inside.strip_suffix(',').unwrap_or(inside).split(',');
    // Python 2 writes 3L for some.
    let sides = sides.map(|side| side.trim().trim_end_matches('L').parse().ok()).collect::<Option<_>>()?;
    Some((sides, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> tempfile::NamedTempFile {
        let header = format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
        with_header(header.as_bytes(), data)
    }

    fn with_header(header: &[u8], data: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let length = (header.len() as u16).to_le_bytes();
        file.write_all(&[b"\x93NUMPY\x01\x00", &length[..], header, data].concat()).unwrap();
        file
    }

    fn refused(file: &tempfile::NamedTempFile) -> String {
        NpyFile::open(file.path()).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn rows_come_out_of_either_order() {
        let rows = file("'<u2'", "False", "(2, 3)", &[0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0]);
        let npy = NpyFile::open(rows.path()).unwrap();
        assert_eq!(npy.shape(), [2, 3]);
        assert_eq!(npy.integers().unwrap(), [0, 1, 2, 3, 4, 5]);
        let columns = file("'|i1'", "True", "(2, 3)", &[0, 3, 1, 4, 2, 0xff]);
        assert_eq!(NpyFile::open(columns.path()).unwrap().integers().unwrap(), [0, 1, 2, 3, 4, -1]);
        let single = file("\">i8\"", "True", "(1,)", &7i64.to_be_bytes());
        assert_eq!(NpyFile::open(single.path()).unwrap().integers().unwrap(), [7]);
        let halves = file("'<f2'", "True", "(2, 2)", &[0, 0x3c, 0, 0xc0, 0, 0, 0, 0x7c]);
        assert_eq!(NpyFile::open(halves.path()).unwrap().floats().unwrap(), [1.0, 0.0, -2.0, f32::INFINITY]);
        let none = file("'<i4'", "True", "(3, 0)", &[]);
        assert!(NpyFile::open(none.path()).unwrap().integers().unwrap().is_empty());
    }

    #[test]
    fn a_claim_that_the_file_does_not_keep_is_refused_before_memory_is_taken() {
        let claims = file("'<i8'", "False", "(1000000000, 70)", &[0; 16]);
        assert_eq!(
            refused(&claims),
            "it has 16 bytes of elements, and its shape says 560000000000. Was it copied to its end?"
        );
        let overflow = file("'<i8'", "False", "(18446744073709551615, 18446744073709551615)", &[]);
        assert!(refused(&overflow).contains("larger than any file"));
        assert!(refused(&file("'<i4'", "False", "(2,)", &[0; 7])).contains("7 bytes"));
        assert!(refused(&file("'<i4'", "False", "(2,)", &[0; 9])).contains("9 bytes"));
    }

    #[test]
    fn other_arrays_and_other_files_are_named() {
        assert!(refused(&file("'|O'", "False", "(1,)", &[0])).contains("`|O`"), "an object array is a pickle");
        assert!(refused(&file("[('a', '<i4')]", "False", "(1,)", &[0; 4])).contains("a record"));
        let floats = file("'<f4'", "False", "(1,)", &[0; 4]);
        assert!(matches!(NpyFile::open(floats.path()).unwrap().integers(), Err(NpyError::NotIntegers)));
        let whole = file("'<i4'", "False", "(1,)", &[0; 4]);
        assert!(matches!(NpyFile::open(whole.path()).unwrap().floats(), Err(NpyError::NotFloats)));
        let large = file("'<u8'", "False", "(2,)", &[[0; 8], [255; 8]].concat());
        assert!(matches!(NpyFile::open(large.path()).unwrap().integers(), Err(NpyError::TooLarge(1))));
        for header in [
            &b"{}"[..],
            b"",
            b"{'descr': '<i4'",
            b"{'descr' '<i4'}",
            b"{'descr': '<i4', 'fortran_order': 0, 'shape': ()}",
            b"{'descr': '<i4', 'fortran_order': False, 'shape': (a,)}",
            b"{'descr': '<i4', 'fortran_order': False, 'shape': (-1,)}",
            b"{'descr': '<i4' 'fortran_order': False, 'shape': (1,)}",
            b"{'descr': '<i4', 'more': 1}",
            b"\xff\xfe",
        ] {
            assert!(refused(&with_header(header, &[])).contains("header"), "{header:?}");
        }
        let mut other = tempfile::NamedTempFile::new().unwrap();
        other.write_all(b"PK\x03\x04").unwrap();
        assert!(matches!(NpyFile::open(other.path()), Err(NpyError::NotNpy)));
        assert!(matches!(NpyFile::open(std::env::temp_dir().as_path()), Err(NpyError::NotAFile)));
    }
}
