//! Writing safetensors files, of tensors that may still be elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};

use ::safetensors::Dtype;
use serde_json::{Value, json};

use super::{MAX_HEADER, METADATA};

/// A tensor to be written.
#[derive(Debug)]
pub struct TensorToWrite<'a> {
    /// Its name.
    pub name: &'a str,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its shape; empty for a scalar.
    pub shape: &'a [usize],
    /// Its elements.
    pub content: Content<'a>,
}

/// Writes the elements of one tensor.
type WriteElements<'a> = dyn Fn(&mut dyn Write) -> io::Result<()> + 'a;

/// Where the elements of a tensor come from: little-endian, row-major.
pub enum Content<'a> {
    /// They are in memory.
    Bytes(&'a [u8]),
    /// They are read from a device, or computed, when their turn comes.
    Stream(Box<WriteElements<'a>>),
}

impl fmt::Debug for Content<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Content::Stream(_) => f.write_str("stream"),
        }
    }
}

impl<'a> Content<'a> {
    /// A stream of what `write` writes, which must be as many bytes as the tensor's shape has.
    pub fn stream(write: impl Fn(&mut dyn Write) -> io::Result<()> + 'a) -> Self {
        Content::Stream(Box::new(write))
    }
}

/// Why a file cannot be written as it is asked for.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A tensor that cannot be stored.
    #[error("tensor `{name}` cannot be saved: {problem}")]
    Tensor {
        /// Its name.
        name: String,
        /// What is wrong with it.
        problem: TensorProblem,
    },
    /// More names or metadata than a header may hold.
    #[error("the header would have {bytes} bytes; the format allows {MAX_HEADER}")]
    HeaderTooLong {
        /// Bytes of the header.
        bytes: u64,
    },
    /// A stream failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What is wrong with a tensor that is to be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorProblem {
    /// The format uses the name itself.
    #[error("the name is reserved by the file format")]
    ReservedName,
    /// The name is taken.
    #[error("two tensors have this name")]
    DuplicateName,
    /// The shape is not that of the bytes.
    #[error("shape {shape:?} does not have {bytes} bytes")]
    Size {
        /// The shape.
        shape: Vec<usize>,
        /// The bytes that there are.
        bytes: usize,
    },
    /// The size in bytes is no whole number, or too large to be counted.
    #[error("elements {dtype} of shape {shape:?} have no size in bytes")]
    NoSize {
        /// The type of the elements.
        dtype: Dtype,
        /// The shape.
        shape: Vec<usize>,
    },
}

/// A file about to be written: its header is ready, the tensors are still where they were.
#[derive(Debug)]
pub struct Writer<'a> {
    header: Vec<u8>,
    tensors: Vec<TensorToWrite<'a>>,
    /// Where each tensor ends, counted from the end of the header.
    ends: Vec<usize>,
}

impl<'a> Writer<'a> {
    /// Describes a file of these tensors, in this order, with these metadata.
    ///
    /// Keys of the header are sorted, so that the file depends on its content alone.
    pub fn new<K: Into<String>, V: Into<String>>(
        tensors: Vec<TensorToWrite<'a>>,
        metadata: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, WriteError> {
        let mut entries: BTreeMap<&str, Value> = BTreeMap::new();
        let (mut ends, mut start) = (Vec::with_capacity(tensors.len()), 0);
        for tensor in &tensors {
            let fail = |problem| WriteError::Tensor { name: tensor.name.to_owned(), problem };
            let end = tensor.size().and_then(|size| tensor.counted(size.checked_add(start))).map_err(fail)?;
            let entry = json!({ "data_offsets": [start, end], "dtype": tensor.dtype, "shape": tensor.shape });
            if tensor.name == METADATA {
                return Err(fail(TensorProblem::ReservedName));
            }
            if entries.insert(tensor.name, entry).is_some() {
                return Err(fail(TensorProblem::DuplicateName));
            }
            ends.push(end);
            start = end;
        }
        let metadata: BTreeMap<String, String> = metadata.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        entries.insert(METADATA, json!(metadata));
        let mut header = json!(entries).to_string().into_bytes();
        // The tensors begin at a multiple of eight bytes, for readers that map the file into memory.
        header.resize(header.len().next_multiple_of(8), b' ');
        match header.len() as u64 {
            bytes if bytes > MAX_HEADER => Err(WriteError::HeaderTooLong { bytes }),
            _ => Ok(Self { header, tensors, ends }),
        }
    }

    /// Bytes of the whole file.
    pub fn file_size(&self) -> u64 {
        8 + self.header.len() as u64 + self.ends.last().map_or(0, |&end| end as u64)
    }

    /// Writes the file. A stream that writes more or fewer bytes than its tensor has is an error.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&(self.header.len() as u64).to_le_bytes())?;
        out.write_all(&self.header)?;
        let mut start = 0;
        for (tensor, &end) in self.tensors.iter().zip(&self.ends) {
            match &tensor.content {
                Content::Bytes(bytes) => out.write_all(bytes)?,
                Content::Stream(write) => {
                    let mut exact = Exact { out, left: end - start };
                    write(&mut exact)?;
                    if exact.left > 0 {
                        let (name, left) = (tensor.name, exact.left);
                        return Err(io::Error::other(format!("tensor `{name}` ended {left} bytes before its end")));
                    }
                }
            }
            start = end;
        }
        Ok(())
    }

    /// The file in memory.
    pub fn to_bytes(&self) -> Result<Vec<u8>, WriteError> {
        let mut bytes = Vec::with_capacity(self.file_size() as usize);
        self.write_to(&mut bytes)?;
        Ok(bytes)
    }
}

impl TensorToWrite<'_> {
    /// Bytes of all elements.
    fn size(&self) -> Result<usize, TensorProblem> {
        let bits = self.shape.iter().try_fold(self.dtype.bitsize(), |bits, &side| bits.checked_mul(side));
        let size = bits.filter(|bits| bits.is_multiple_of(8)).map(|bits| bits / 8);
        match &self.content {
            Content::Bytes(bytes) if size != Some(bytes.len()) => {
                Err(TensorProblem::Size { shape: self.shape.to_vec(), bytes: bytes.len() })
            }
            _ => self.counted(size),
        }
    }

    /// A size, where there is one.
    fn counted(&self, size: Option<usize>) -> Result<usize, TensorProblem> {
        size.ok_or_else(|| TensorProblem::NoSize { dtype: self.dtype, shape: self.shape.to_vec() })
    }
}

/// Takes so many bytes and no more.
struct Exact<'a> {
    out: &'a mut dyn Write,
    left: usize,
}

impl Write for Exact<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.left {
            return Err(io::Error::other("a tensor has more bytes than its shape"));
        }
        let written = self.out.write(bytes)?;
        self.left -= written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Header;
    use super::*;

    fn tensor<'a>(name: &'a str, dtype: Dtype, shape: &'a [usize], bytes: &'a [u8]) -> TensorToWrite<'a> {
        TensorToWrite { name, dtype, shape, content: Content::Bytes(bytes) }
    }

    #[test]
    fn the_file_is_this_one_byte_for_byte() {
        let half = Content::stream(|out| out.write_all(&[9]).and_then(|()| out.write_all(&[8])));
        let tensors = vec![
            tensor("z", Dtype::F32, &[1, 2], &[1, 2, 3, 4, 5, 6, 7, 8]),
            TensorToWrite { name: "a", dtype: Dtype::F16, shape: &[], content: half },
        ];
        let writer = Writer::new(tensors, [("who", "\"ü\""), ("format", "pt")]).unwrap();
        let header = "{\"__metadata__\":{\"format\":\"pt\",\"who\":\"\\\"ü\\\"\"},\
                      \"a\":{\"data_offsets\":[8,10],\"dtype\":\"F16\",\"shape\":[]},\
                      \"z\":{\"data_offsets\":[0,8],\"dtype\":\"F32\",\"shape\":[1,2]}}";
        let padded = format!("{header}{}", " ".repeat(header.len().next_multiple_of(8) - header.len()));
        let prefix = [padded.len() as u8, 0, 0, 0, 0, 0, 0, 0];
        let bytes = writer.to_bytes().unwrap();
        assert_eq!(bytes, [&prefix, padded.as_bytes(), &[1, 2, 3, 4, 5, 6, 7, 8, 9, 8]].concat());
        assert_eq!(writer.file_size(), bytes.len() as u64);
    }

    #[test]
    fn the_reference_reader_and_ours_find_what_was_written() {
        let tensors = vec![tensor("b", Dtype::I64, &[1], &[7; 8]), tensor("none", Dtype::F32, &[0, 4], &[])];
        let bytes = Writer::new(tensors, [("key", "value")]).unwrap().to_bytes().unwrap();
        let read = ::safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let b = read.tensor("b").unwrap();
        assert_eq!((b.dtype(), b.shape(), b.data()), (Dtype::I64, &[1][..], &[7; 8][..]));
        assert_eq!(read.tensor("none").unwrap().shape(), [0, 4]);
        let header = Header::read(&mut &bytes[..], bytes.len() as u64).unwrap();
        assert_eq!(header.metadata["key"], "value");
        assert_eq!(header.data.start % 8, 0);
        assert_eq!(header.tensors.iter().find(|entry| entry.name == "b").unwrap().place, header.data);
    }

    #[test]
    fn a_file_without_tensors_is_a_file() {
        let bytes = Writer::new(vec![], [("", ""); 0]).unwrap().to_bytes().unwrap();
        assert_eq!(bytes, [&[24, 0, 0, 0, 0, 0, 0, 0], &b"{\"__metadata__\":{}}     "[..]].concat());
        assert!(Header::read(&mut &bytes[..], bytes.len() as u64).is_ok());
    }

    #[test]
    fn what_contradicts_itself_is_not_written() {
        let problem = |tensors| match Writer::new(tensors, [("", ""); 0]) {
            Err(WriteError::Tensor { problem, .. }) => problem,
            other => panic!("{other:?}"),
        };
        let pair = || tensor("w", Dtype::F32, &[2], &[0; 8]);
        assert_eq!(problem(vec![pair(), pair()]), TensorProblem::DuplicateName);
        assert_eq!(problem(vec![tensor(METADATA, Dtype::U8, &[1], &[0])]), TensorProblem::ReservedName);
        let size = TensorProblem::Size { shape: vec![3], bytes: 8 };
        assert_eq!(problem(vec![tensor("w", Dtype::F32, &[3], &[0; 8])]), size);
        assert_eq!(size.to_string(), "shape [3] does not have 8 bytes");
        let stream =
            |shape| TensorToWrite { content: Content::stream(|_| Ok(())), ..tensor("w", Dtype::F64, shape, &[]) };
        assert!(matches!(problem(vec![stream(&[usize::MAX, 2])]), TensorProblem::NoSize { .. }));
        let half = usize::MAX / 16;
        let halves = [half];
        let last = TensorToWrite { name: "v", ..stream(&halves) };
        let third = TensorToWrite { name: "u", ..stream(&halves) };
        assert!(matches!(problem(vec![stream(&halves), last, third]), TensorProblem::NoSize { .. }), "together");
    }

    #[test]
    fn a_stream_must_have_the_length_of_its_tensor() {
        let write = |bytes: &'static [u8]| {
            let content = Content::stream(move |out| out.write_all(bytes));
            let tensor = TensorToWrite { name: "w", dtype: Dtype::U8, shape: &[3], content };
            Writer::new(vec![tensor], [("", ""); 0]).unwrap().to_bytes().map_err(|error| error.to_string())
        };
        assert!(write(b"abc").is_ok());
        assert_eq!(write(b"ab").unwrap_err(), "tensor `w` ended 1 bytes before its end");
        assert!(write(b"abcd").unwrap_err().contains("more bytes than its shape"));
    }

    #[test]
    fn a_header_that_no_reader_takes_is_not_written() {
        let long = "x".repeat(MAX_HEADER as usize);
        let error = Writer::new(vec![], [("names", long)]).unwrap_err();
        assert!(matches!(error, WriteError::HeaderTooLong { bytes } if bytes > MAX_HEADER), "{error}");
    }
}
