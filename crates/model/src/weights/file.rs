//! A safetensors file: its header read and checked, its tensors read one by one.
//!
//! A file is untrusted. Nothing is allocated before the file is known to be as long as the allocation, and the header is
//! checked for overflow, gaps and overlaps before any of it is used.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::Metadata;

use super::error::WeightsError;

/// The longest header that the format allows.
const MAX_HEADER: u64 = 100_000_000;

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
    /// Where its bytes begin in the file.
    start: u64,
    /// How many there are.
    bytes: usize,
}

impl TensorInfo {
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
        let io = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::NotFound => WeightsError::Missing { path: path.to_owned() },
            _ => WeightsError::Io { path: path.to_owned(), source },
        };
        // Asked before opening: opening a pipe waits for somebody to write.
        if !fs::metadata(path).map_err(io)?.is_file() {
            return Err(WeightsError::NotAFile { path: path.to_owned() });
        }
        let mut file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let damaged = |reason: String| WeightsError::Damaged { path: path.to_owned(), reason };
        if length < 8 {
            return Err(damaged(format!("its {length} bytes do not even hold the length of a header")));
        }
        let mut prefix = [0; 8];
        file.read_exact(&mut prefix).map_err(io)?;
        if let Some((kind, way_out)) = other_format(&prefix) {
            return Err(WeightsError::OtherFormat { path: path.to_owned(), kind, way_out });
        }
        let header_length = u64::from_le_bytes(prefix);
        if header_length > MAX_HEADER {
            return Err(WeightsError::Unknown { path: path.to_owned() });
        }
        if header_length > length - 8 {
            return Err(damaged(format!("the header should have {header_length} bytes, the file has {length}")));
        }
        let mut header = vec![0; header_length as usize];
        file.read_exact(&mut header).map_err(io)?;
        // Checks types, shapes and sizes, and that the tensors follow each other without gap or overlap.
        let index: Metadata =
            serde_json::from_slice(&header).map_err(|error| damaged(format!("the header is wrong: {error}")))?;
        let data_length = length - 8 - header_length;
        if index.data_len() as u64 != data_length {
            let promised = index.data_len();
            return Err(damaged(format!(
                "the header promises {promised} bytes of tensors, the file has {data_length}"
            )));
        }
        let info = |name: String| {
            let info = index.info(&name)?;
            let (start, end) = info.data_offsets;
            let (element, shape) = (Element::of(info.dtype), info.shape.clone());
            Some(TensorInfo { name, element, shape, start: 8 + header_length + start as u64, bytes: end - start })
        };
        let tensors = index.offset_keys().into_iter().filter_map(info).collect();
        let metadata = index.metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
        Ok(Self { path: path.to_owned(), file, length, tensors, metadata })
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
        let mut bytes = vec![0; tensor.bytes];
        self.file.seek(SeekFrom::Start(tensor.start))?;
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// What a file is that is often given instead, by its first bytes.
fn other_format(first: &[u8; 8]) -> Option<(&'static str, &'static str)> {
    const SAVE: &str = ". In Python, `safetensors.torch.save_file(state_dict, \"F.safetensors\")` converts it";
    let [low @ .., _, _, _, _] = first;
    // The length of a sound header fits into the lower four bytes.
    if first.ends_with(&[0; 4]) {
        return None;
    }
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
