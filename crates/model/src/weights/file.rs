//! A file of weights, whatever it is packed in: its list of tensors, read without trusting it, and their elements one by one.
//!
//! - safetensors, in one file or in several with an index;
//! - PyTorch's own, as `torch.save` writes it today and as it did before version 1.6;
//! - a folder of Hugging Face's or timm's with one of these in it, and a configuration that says more.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use files::safetensors::{self, Entry, HeaderError};
use tensor::{DType, Tensor};

use super::error::WeightsError;
use super::values::{Element, Values, convert, is_finite};
use super::{configuration, shards, torch};

/// A tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// Type of its elements.
    pub element: Element,
    /// Its extents; empty for a scalar.
    pub shape: Vec<usize>,
    pub(super) place: Place,
}

/// Where the elements of a tensor are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Which of the files.
    pub file: usize,
    /// The bytes of all elements, little-endian.
    pub bytes: Range<u64>,
    /// Steps from one element to the next along each axis, in elements; none where they lie row by row.
    pub strides: Option<Vec<usize>>,
    /// The CRC-32 of these bytes, where the file has it.
    pub crc32: Option<u32>,
}

impl TensorInfo {
    fn of(entry: Entry) -> Self {
        let Entry { name, dtype, shape, place } = entry;
        let place = Place { file: 0, bytes: place, strides: None, crc32: None };
        Self { name, element: Element::of(dtype), shape, place }
    }

    /// Number of elements. Cannot overflow: their bytes are in the file.
    pub fn values(&self) -> usize {
        self.shape.iter().product()
    }
}

/// What tensors are packed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// A safetensors file.
    Safetensors,
    /// PyTorch's zip archive.
    Torch,
    /// What PyTorch wrote before version 1.6: pickles, and the elements behind them.
    LegacyTorch,
    /// Several files with an index.
    Shards,
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Packing::Safetensors => "safetensors",
            Packing::Torch => "PyTorch",
            Packing::LegacyTorch => "PyTorch before 1.6",
            Packing::Shards => "files with an index",
        })
    }
}

/// An open file of weights whose list of tensors is sound.
#[derive(Debug)]
pub struct WeightsFile {
    path: PathBuf,
    packing: Packing,
    files: Vec<File>,
    length: u64,
    tensors: Vec<TensorInfo>,
    metadata: BTreeMap<String, String>,
    /// For the bytes of the tensor that is being read.
    scratch: Vec<u8>,
}

impl WeightsFile {
    /// Opens a file, or a folder with a model of Hugging Face's or timm's, and reads what it holds.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let path = if path.is_dir() { shards::in_folder(path)? } else { path.to_owned() };
        let mut file = if shards::is_index(&path) { shards::open(&path)? } else { Self::open_alone(&path)? };
        // What the file says itself counts more.
        for (key, value) in configuration::beside(&path)? {
            file.metadata.entry(key.to_owned()).or_insert(value);
        }
        Ok(file)
    }

    /// The same of one file that needs no other.
    pub(super) fn open_alone(path: &Path) -> Result<Self, WeightsError> {
        let (file, header) = match safetensors::open(path) {
            Err(HeaderError::NotAHeader { first }) if torch::is_one(&first) => return torch::open(path),
            opened => opened.map_err(|error| unreadable(path, error))?,
        };
        let tensors = header.tensors.into_iter().map(TensorInfo::of).collect();
        let (packing, length) = (Packing::Safetensors, header.data.end);
        Ok(Self::new(path, packing, vec![file], length, tensors, header.metadata))
    }

    pub(super) fn new(
        path: &Path,
        packing: Packing,
        files: Vec<File>,
        length: u64,
        tensors: Vec<TensorInfo>,
        metadata: BTreeMap<String, String>,
    ) -> Self {
        Self { path: path.to_owned(), packing, files, length, tensors, metadata, scratch: Vec::new() }
    }

    /// One file of several: the files, their tensors and their size in bytes.
    pub(super) fn into_parts(self) -> (Vec<File>, Vec<TensorInfo>, u64) {
        (self.files, self.tensors, self.length)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What its tensors are packed in.
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// Its size in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.length
    }

    /// All tensors, in the order of the file.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// One tensor by name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// What the writer of the file has noted beside the tensors.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Reads the elements of one of the file's tensors. They are finite.
    pub fn read(&mut self, tensor: &TensorInfo) -> Result<Values, WeightsError> {
        let Some(size) = tensor.element.size() else {
            let (path, name, element) = (self.path.clone(), tensor.name.clone(), tensor.element.to_string());
            return Err(WeightsError::ElementType { path, name, element });
        };
        // Fresh memory for every tensor costs more than reading it.
        let mut scratch = std::mem::take(&mut self.scratch);
        let read = self.bytes(&tensor.place, &mut scratch).map(|bytes| {
            let is_sound = tensor.place.crc32.is_none_or(|crc32| crc32fast::hash(bytes) == crc32);
            is_sound.then(|| match &tensor.place.strides {
                None => convert(&tensor.element, bytes),
                Some(strides) => convert(&tensor.element, &gather(bytes, size, &tensor.shape, strides)),
            })
        });
        self.scratch = scratch;
        self.judged(tensor, read)
    }

    /// The same into a parameter of as many elements: without a copy between where the file has what the device stores.
    pub(super) fn read_into(&mut self, tensor: &TensorInfo, parameter: &mut Tensor) -> Result<(), WeightsError> {
        let is_as_stored = tensor.element == Element::F32 && parameter.dtype() == DType::F32;
        if !is_as_stored || tensor.place.strides.is_some() || tensor.values() != parameter.len() {
            self.read(tensor)?.copy_to(parameter);
            return Ok(());
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let read = self.bytes(&tensor.place, &mut scratch).map(|bytes| {
            let is_sound = tensor.place.crc32.is_none_or(|crc32| crc32fast::hash(bytes) == crc32);
            is_sound.then(|| is_finite(bytes) && parameter.copy_from_le_bytes(bytes))
        });
        self.scratch = scratch;
        self.judged(tensor, read.map(|read| read.map(|is_finite| ((), is_finite))))
    }

    /// What was read, if its checksum is right and it is finite.
    fn judged<T>(&self, tensor: &TensorInfo, read: io::Result<Option<(T, bool)>>) -> Result<T, WeightsError> {
        let path = || self.path.clone();
        match read.map_err(|source| WeightsError::Io { path: path(), source })? {
            Some((values, true)) => Ok(values),
            Some((_, false)) => Err(WeightsError::NotFinite { path: path(), name: tensor.name.clone() }),
            None => {
                let name = text::excerpt(&tensor.name);
                let reason = format!("the checksum of tensor `{name}` is not that of its bytes");
                Err(WeightsError::Damaged { path: path(), reason })
            }
        }
    }

    fn bytes<'a>(&mut self, place: &Place, scratch: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        let Range { start, end } = place.bytes;
        let length = (end - start) as usize;
        if scratch.len() < length {
            scratch.resize(length, 0);
        }
        let bytes = &mut scratch[..length];
        let file = self.files.get_mut(place.file).ok_or(ErrorKind::NotFound)?;
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(bytes)?;
        Ok(bytes)
    }
}

/// Elements of `size` bytes in rows, from where they lie `strides` apart. The bytes reach from the first to the last.
fn gather(bytes: &[u8], size: usize, shape: &[usize], strides: &[usize]) -> Vec<u8> {
    let count: usize = shape.iter().product();
    let mut gathered = Vec::with_capacity(count * size);
    let mut index = vec![0; shape.len()];
    for _ in 0..count {
        let at = size * index.iter().zip(strides).map(|(i, stride)| i * stride).sum::<usize>();
        gathered.extend_from_slice(&bytes[at..at + size]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    gathered
}

/// The error for a file without a sound header.
fn unreadable(path: &Path, error: HeaderError) -> WeightsError {
    let path = path.to_owned();
    match error {
        HeaderError::Io(error) if error.kind() == ErrorKind::NotFound => WeightsError::Missing { path },
        HeaderError::Io(source) => WeightsError::Io { path, source },
        HeaderError::NotAFile => WeightsError::NotAFile { path },
        HeaderError::NotAHeader { first } => match other_format(&first) {
            Some(kind) => WeightsError::OtherFormat { path, kind },
            None => WeightsError::Unknown { path },
        },
        damage => WeightsError::Damaged { path, reason: damage.to_string() },
    }
}

/// What a file is that is often given instead, by its first bytes.
fn other_format(first: &[u8; 8]) -> Option<&'static str> {
    // `version https://git-lfs.github.com/spec/v1`
    if first == b"version " {
        return Some("a text that begins as the pointers of git-lfs do: `git lfs pull` fetches the file");
    }
    let [low @ .., _, _, _, _] = first;
    match low {
        [0x89, b'H', b'D', b'F'] => Some("an HDF5 file"),
        [b'G', b'G', b'U', b'F'] => Some("a GGUF file"),
        [0x93, b'N', b'U', b'M'] => Some("a NumPy array"),
        [0x08, 3..=20, ..] => Some("an ONNX model"),
        [b'P', b'A', b'R', b'1'] => Some("a Parquet table"),
        [0x1f, 0x8b, ..] | [b'7', b'z', 0xbc, 0xaf] | [0xfd, b'7', b'z', b'X'] | [b'B', b'Z', b'h', _] => {
            Some("a compressed file: unpack it first")
        }
        [b'<', b'!', ..] | [b'<', b'h' | b'H', ..] | [b'<', b'?', ..] => {
            Some("a web page in the place of the file: download it again")
        }
        [b'{', ..] => Some("a JSON file, perhaps a configuration: give the folder, or the weights beside it"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transposed_tensor_is_put_into_rows() {
        // [[0, 1, 2], [3, 4, 5]] seen as its transpose.
        let bytes: Vec<u8> = (0..6).collect();
        assert_eq!(gather(&bytes, 1, &[3, 2], &[1, 3]), [0, 3, 1, 4, 2, 5]);
        assert_eq!(gather(&bytes, 2, &[2], &[2]), [0, 1, 4, 5]);
        assert_eq!(gather(&bytes, 1, &[], &[]), [0], "a scalar");
        assert!(gather(&bytes, 1, &[0, 2], &[1, 1]).is_empty());
    }
}
