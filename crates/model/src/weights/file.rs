//! A safetensors file of weights: its header checked, its tensors read one by one.
//!
//! A file is untrusted: a tensor's bytes are allocated only because the file has as many.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use files::safetensors::{self, Dtype, Entry, HeaderError};
use half::{bf16, f16};

use super::error::WeightsError;

/// Type of a tensor's elements.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    /// 64-bit float.
    F64,
    /// 32-bit float.
    F32,
    /// 16-bit float of IEEE 754.
    F16,
    /// The upper half of a 32-bit float.
    Bf16,
    /// Anything else, by the format's name for it: no weights.
    Other(String),
}

impl Element {
    fn of(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F64 => Element::F64,
            Dtype::F32 => Element::F32,
            Dtype::F16 => Element::F16,
            Dtype::BF16 => Element::Bf16,
            other => Element::Other(other.to_string()),
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Element::F64 => "F64",
            Element::F32 => "F32",
            Element::F16 => "F16",
            Element::Bf16 => "BF16",
            Element::Other(name) => name,
        })
    }
}

/// A tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// Type of its elements.
    pub element: Element,
    /// Its extents; empty for a scalar.
    pub shape: Vec<usize>,
    /// Where in the file its bytes are.
    place: Range<u64>,
}

impl TensorInfo {
    fn of(entry: Entry) -> Self {
        let Entry { name, dtype, shape, place } = entry;
        Self { name, element: Element::of(dtype), shape, place }
    }

    /// Number of elements. Cannot overflow: their bytes are in the file.
    pub fn values(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The elements of a tensor, without loss.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// From F32, F16 or BF16.
    F32(Vec<f32>),
    /// From F64.
    F64(Vec<f64>),
}

/// An open safetensors file whose header is sound.
#[derive(Debug)]
pub struct WeightsFile {
    path: PathBuf,
    file: File,
    length: u64,
    tensors: Vec<TensorInfo>,
    metadata: BTreeMap<String, String>,
}

impl WeightsFile {
    /// Opens a file and reads its header.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let (file, header) = safetensors::open(path).map_err(|error| unreadable(path, error))?;
        let tensors = header.tensors.into_iter().map(TensorInfo::of).collect();
        Ok(Self { path: path.to_owned(), file, length: header.data.end, tensors, metadata: header.metadata })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
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
        if let Element::Other(element) = &tensor.element {
            let (path, name, element) = (self.path.clone(), tensor.name.clone(), element.clone());
            return Err(WeightsError::ElementType { path, name, element });
        }
        let bytes = self.bytes(tensor).map_err(|source| WeightsError::Io { path: self.path.clone(), source })?;
        let (values, finite) = convert(&tensor.element, &bytes);
        if finite {
            Ok(values)
        } else {
            Err(WeightsError::NotFinite { path: self.path.clone(), name: tensor.name.clone() })
        }
    }

    fn bytes(&mut self, tensor: &TensorInfo) -> io::Result<Vec<u8>> {
        let Range { start, end } = tensor.place;
        let mut bytes = vec![0; (end - start) as usize];
        self.file.seek(SeekFrom::Start(start))?;
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// The error for a file without a sound header.
fn unreadable(path: &Path, error: HeaderError) -> WeightsError {
    let path = path.to_owned();
    match error {
        HeaderError::Io(error) if error.kind() == ErrorKind::NotFound => WeightsError::Missing { path },
        HeaderError::Io(source) => WeightsError::Io { path, source },
        HeaderError::NotAFile => WeightsError::NotAFile { path },
        HeaderError::NotAHeader { first } => match other_format(&first) {
            Some((kind, way_out)) => WeightsError::OtherFormat { path, kind, way_out },
            None => WeightsError::Unknown { path },
        },
        damage => WeightsError::Damaged { path, reason: damage.to_string() },
    }
}

/// What a file is that is often given instead, by its first bytes.
fn other_format(first: &[u8; 8]) -> Option<(&'static str, &'static str)> {
    const SAVE: &str = ". In Python, `safetensors.torch.save_file(state_dict, \"F.safetensors\")` converts it";
    let [low @ .., _, _, _, _] = first;
    match low {
        [b'P', b'K', 3, 4] => Some(("a PyTorch file (or another zip archive)", SAVE)),
        [0x80, 2..=5, ..] => Some(("a Python pickle (an old PyTorch file)", SAVE)),
        [0x89, b'H', b'D', b'F'] => Some(("an HDF5 file", "")),
        [b'G', b'G', b'U', b'F'] => Some(("a GGUF file", "")),
        [0x93, b'N', b'U', b'M'] => Some(("a NumPy array", "")),
        _ => None,
    }
}

/// Elements from little-endian bytes, and whether all are finite. Other types than the four have none.
fn convert(element: &Element, bytes: &[u8]) -> (Values, bool) {
    let single = |values: Vec<f32>| {
        let finite = values.iter().all(|x| x.is_finite());
        (Values::F32(values), finite)
    };
    match element {
        Element::F64 => {
            let values: Vec<f64> = bytes.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect();
            let finite = values.iter().all(|x| x.is_finite());
            (Values::F64(values), finite)
        }
        Element::F32 => single(bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()),
        Element::F16 => single(bytes.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect()),
        Element::Bf16 => single(bytes.as_chunks().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32()).collect()),
        Element::Other(_) => single(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_becomes_single_without_loss() {
        let bits: [u16; 4] = [0x3c00, 0xc500, 0x0001, 0x7bff];
        let bytes: Vec<u8> = bits.iter().flat_map(|b| b.to_le_bytes()).collect();
        // IEEE 754 binary16: 1, -5, the smallest subnormal 2^-24, the largest value 65504.
        let (values, finite) = convert(&Element::F16, &bytes);
        assert_eq!((values, finite), (Values::F32(vec![1.0, -5.0, 2f32.powi(-24), 65504.0]), true));
        let (values, finite) = convert(&Element::Bf16, &0x40a0u16.to_le_bytes());
        assert_eq!((values, finite), (Values::F32(vec![5.0]), true));
        assert!(!convert(&Element::F16, &0x7c00u16.to_le_bytes()).1, "infinity");
        assert!(!convert(&Element::Bf16, &0x7fc0u16.to_le_bytes()).1, "not a number");
    }
}
