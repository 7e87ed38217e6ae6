//! The header of a safetensors file.
//!
//! A file is untrusted. Nothing is allocated before the file is known to be as long as the allocation, and the header is
//! checked for overflow, gaps and overlaps before any of it is used.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use ::safetensors::Dtype;
use ::safetensors::tensor::Metadata;

use super::MAX_HEADER;

/// Bytes of the header's length, with which a file begins.
const PREFIX: u64 = 8;

/// What a file holds. The tensors lie within the file, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// All tensors, in the order of the file.
    pub tensors: Vec<Entry>,
    /// What the writer of the file has noted beside the tensors.
    pub metadata: BTreeMap<String, String>,
    /// Where in the file the tensors are: from the end of the header to the end of the file.
    pub data: Range<u64>,
}

/// A tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its shape; empty for a scalar. The number of elements does not overflow: they are in the file.
    pub shape: Vec<usize>,
    /// Where in the file its elements are.
    pub place: Range<u64>,
}

/// Why a file has no usable header.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The file system refused, or the file ended before the length that it had when it was opened.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A folder, a pipe, a device.
    #[error("it is not a regular file")]
    NotAFile,
    /// Too short for any safetensors file.
    #[error("its {length} bytes do not even hold the length of a header")]
    TooShort {
        /// Bytes of the file.
        length: u64,
    },
    /// The first bytes are a length that the format does not allow: most likely a file of another format.
    #[error("it does not begin with the length of a header")]
    NotAHeader {
        /// The bytes with which the file begins, by which its format may be known.
        first: [u8; PREFIX as usize],
    },
    /// The file ends within the header.
    #[error("the header should have {promised} bytes, the file has {length}")]
    HeaderCut {
        /// Bytes of the header, as the file says.
        promised: u64,
        /// Bytes of the file.
        length: u64,
    },
    /// The header is not JSON, or contradicts itself.
    #[error("the header is wrong: {0}")]
    Malformed(#[source] serde_json::Error),
    /// The file is longer or shorter than its header says.
    #[error("the header promises {promised} bytes of tensors, the file has {found}")]
    DataLength {
        /// Bytes of all tensors, as the header says.
        promised: u64,
        /// Bytes behind the header.
        found: u64,
    },
}

/// Opens a file and reads its header. The file stands at the first byte behind it.
pub fn open(path: &Path) -> Result<(File, Header), HeaderError> {
    // Asked before opening: opening a pipe waits for somebody to write.
    if !fs::metadata(path)?.is_file() {
        return Err(HeaderError::NotAFile);
    }
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let header = Header::read(&mut file, length)?;
    Ok((file, header))
}

impl Header {
    /// Reads the header of a file of `length` bytes from its beginning.
    pub fn read(file: &mut impl Read, length: u64) -> Result<Self, HeaderError> {
        let Some(behind_prefix) = length.checked_sub(PREFIX) else {
            return Err(HeaderError::TooShort { length });
        };
        let mut first = [0; PREFIX as usize];
        file.read_exact(&mut first)?;
        let promised = u64::from_le_bytes(first);
        if promised > MAX_HEADER {
            return Err(HeaderError::NotAHeader { first });
        }
        let Some(found) = behind_prefix.checked_sub(promised) else {
            return Err(HeaderError::HeaderCut { promised, length });
        };
        let mut json = vec![0; promised as usize];
        file.read_exact(&mut json)?;
        // Checks types, shapes and sizes, and that the tensors follow each other without gap or overlap.
        let index: Metadata = serde_json::from_slice(&json).map_err(HeaderError::Malformed)?;
        let promised = index.data_len() as u64;
        if promised != found {
            return Err(HeaderError::DataLength { promised, found });
        }
        Ok(Self::of(&index, length - found..length))
    }

    fn of(index: &Metadata, data: Range<u64>) -> Self {
        let entry = |name: String| {
            let info = index.info(&name)?;
            let (start, end) = info.data_offsets;
            let place = data.start + start as u64..data.start + end as u64;
            Some(Entry { name, dtype: info.dtype, shape: info.shape.clone(), place })
        };
        let tensors = index.offset_keys().into_iter().filter_map(entry).collect();
        let metadata = index.metadata().iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect();
        Self { tensors, metadata, data }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Header, HeaderError> {
        Header::read(&mut &bytes[..], bytes.len() as u64)
    }

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
    }

    #[test]
    fn tensors_come_in_the_order_of_the_file_with_their_places() {
        let header = "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[2,6]},\
                      \"b\":{\"dtype\":\"I8\",\"shape\":[2,1],\"data_offsets\":[0,2]},\"__metadata__\":{\"by\":\"us\"}}";
        let read = read(&file(header, &[0; 6])).unwrap();
        let start = 8 + header.len() as u64;
        assert_eq!(read.data, start..start + 6);
        assert_eq!(read.metadata, BTreeMap::from([("by".to_owned(), "us".to_owned())]));
        let b = Entry { name: "b".to_owned(), dtype: Dtype::I8, shape: vec![2, 1], place: start..start + 2 };
        let a = Entry { name: "a".to_owned(), dtype: Dtype::F32, shape: vec![], place: start + 2..start + 6 };
        assert_eq!(read.tensors, [b, a]);
    }

    #[test]
    fn each_way_to_be_wrong_has_its_own_error() {
        let good = file("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", &[0; 4]);
        assert!(read(&good).is_ok());
        assert!(matches!(read(&good[..7]), Err(HeaderError::TooShort { length: 7 })));
        assert!(matches!(read(&good[..20]), Err(HeaderError::HeaderCut { length: 20, .. })));
        let short = read(&good[..good.len() - 1]);
        assert!(matches!(short, Err(HeaderError::DataLength { promised: 4, found: 3 })));
        assert!(matches!(read(&file("{", &[])), Err(HeaderError::Malformed(_))));
        assert!(matches!(read(b"PK\x03\x04\x00\x00\x00\x01"), Err(HeaderError::NotAHeader { first: [b'P', ..] })));
        let longest = (MAX_HEADER + 1).to_le_bytes();
        assert!(matches!(read(&longest), Err(HeaderError::NotAHeader { .. })));
        assert!(
            matches!(read(&MAX_HEADER.to_le_bytes()), Err(HeaderError::HeaderCut { .. })),
            "before it is allocated"
        );
    }

    #[test]
    fn a_file_that_ends_before_its_length_is_an_unexpected_end() {
        let good = file("{}", &[]);
        for length in [3, 9] {
            let error = Header::read(&mut &good[..length], good.len() as u64).unwrap_err();
            assert!(matches!(&error, HeaderError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof));
        }
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(open(folder.path()), Err(HeaderError::NotAFile)));
        let missing = open(&folder.path().join("none"));
        assert!(matches!(missing, Err(HeaderError::Io(error)) if error.kind() == io::ErrorKind::NotFound));
        #[cfg(target_os = "linux")]
        assert!(matches!(open(Path::new("/dev/zero")), Err(HeaderError::NotAFile)));
    }
}
