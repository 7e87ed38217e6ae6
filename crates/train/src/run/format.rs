//! The checkpoint file: safetensors, with step, state and a checksum over everything in its metadata.
//!
//! Any safetensors reader can open it. The checksum covers names, shapes and state as well as the tensors' bytes: a
//! flipped bit in a header can otherwise turn a 3 x 2 matrix into a 2 x 3 one without anybody noticing.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::Metadata;
use serde_json::{Map, Value, json};

use super::error::RunError;

/// Version of the layout that this program writes and reads.
const VERSION: &str = "1";
/// How the file says what it is.
const FORMAT: &str = "dino-vmf checkpoint";
/// A header larger than this is none of ours: a thousand tensors need a tenth of a megabyte.
const MAX_HEADER: u64 = 64 << 20;

/// Type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
}

impl Element {
    fn name(self) -> &'static str {
        match self {
            Element::F32 => "F32",
            Element::F64 => "F64",
        }
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Element::F32 => 4,
            Element::F64 => 8,
        }
    }
}

/// A tensor that lives elsewhere: little-endian, row-major.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorRef<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its shape; empty for a scalar.
    pub shape: &'a [usize],
    /// The type of its elements.
    pub element: Element,
    /// Its elements.
    pub bytes: &'a [u8],
}

impl TensorRef<'_> {
    fn check(&self) -> Result<(), String> {
        let count = self.shape.iter().try_fold(1usize, |count, &side| count.checked_mul(side));
        let expected = count.and_then(|count| count.checked_mul(self.element.size()));
        match expected {
            _ if self.name == "__metadata__" => Err("the name is reserved by the file format".to_owned()),
            Some(expected) if expected == self.bytes.len() => Ok(()),
            _ => Err(format!("shape {:?} does not have {} bytes", self.shape, self.bytes.len())),
        }
    }
}

/// CRC-32C over step, state and every tensor's name, type, shape and bytes, each with its length, in order of name:
/// the order of the file is not enough, since tensors without elements share their place.
fn checksum<'a>(step: u64, state: &str, tensors: impl Iterator<Item = TensorRef<'a>>) -> String {
    let mut tensors: Vec<_> = tensors.collect();
    tensors.sort_by_key(|tensor| tensor.name);
    let mut crc = crc32c::crc32c(VERSION.as_bytes());
    let mut add = |bytes: &[u8]| {
        crc = crc32c::crc32c_append(crc, &(bytes.len() as u64).to_le_bytes());
        crc = crc32c::crc32c_append(crc, bytes);
    };
    add(&step.to_le_bytes());
    add(state.as_bytes());
    for tensor in tensors {
        add(tensor.name.as_bytes());
        add(tensor.element.name().as_bytes());
        add(&tensor.shape.iter().flat_map(|&side| (side as u64).to_le_bytes()).collect::<Vec<u8>>());
        add(tensor.bytes);
    }
    format!("crc32c:{crc:08x}")
}

/// A checkpoint about to be written: the header is ready, the tensors are still where they were.
pub(super) struct Unwritten<'a> {
    header: Vec<u8>,
    tensors: Vec<TensorRef<'a>>,
}

impl<'a> Unwritten<'a> {
    pub(super) fn new(step: u64, tensors: &[TensorRef<'a>], state: &str) -> Result<Self, RunError> {
        let mut tensors = tensors.to_vec();
        // Wider elements first, so that each tensor starts at a multiple of its element's size.
        tensors.sort_by_key(|tensor| std::cmp::Reverse(tensor.element.size()));
        let mut header = Map::new();
        let mut offset = 0;
        for tensor in &tensors {
            let bad = |reason| RunError::BadTensor { name: tensor.name.to_owned(), reason };
            tensor.check().map_err(bad)?;
            let end = offset + tensor.bytes.len();
            let entry = json!({ "dtype": tensor.element.name(), "shape": tensor.shape, "data_offsets": [offset, end] });
            if header.insert(tensor.name.to_owned(), entry).is_some() {
                return Err(bad("two tensors have this name".to_owned()));
            }
            offset = end;
        }
        let checksum = checksum(step, state, tensors.iter().copied());
        let metadata = json!({
            "format": FORMAT, "version": VERSION, "step": step.to_string(), "state": state, "checksum": checksum
        });
        header.insert("__metadata__".to_owned(), metadata);
        let mut header = Value::Object(header).to_string().into_bytes();
        header.resize(header.len().next_multiple_of(8), b' ');
        Ok(Self { header, tensors })
    }

    /// Size of the file.
    pub(super) fn size(&self) -> u64 {
        8 + self.header.len() as u64 + self.tensors.iter().map(|tensor| tensor.bytes.len() as u64).sum::<u64>()
    }

    pub(super) fn write_to(&self, file: &mut impl Write) -> io::Result<()> {
        file.write_all(&(self.header.len() as u64).to_le_bytes())?;
        file.write_all(&self.header)?;
        self.tensors.iter().try_for_each(|tensor| file.write_all(tensor.bytes))
    }
}

/// What is wrong with a checkpoint file.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The file is shorter or longer than its header says, or the header is no header.
    #[error("is damaged: {0}")]
    Layout(String),
    /// A safetensors file, but not a checkpoint.
    #[error("is no checkpoint of this program: {0}")]
    Foreign(&'static str),
    /// A checkpoint of another version of this program.
    #[error("has checkpoint format {found}; this program reads format {VERSION}")]
    Version {
        /// The format it has.
        found: String,
    },
    /// What is in the file is not what was written.
    #[error("is damaged: its checksum is {found}, it was written with {expected}")]
    Checksum {
        /// Of what was written.
        expected: String,
        /// Of what is there.
        found: String,
    },
}

/// A checkpoint that has been read and whose checksum is right.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    step: u64,
    state: String,
    entries: Vec<Entry>,
    data: Vec<u8>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    shape: Vec<usize>,
    element: Element,
    place: Range<usize>,
}

impl Checkpoint {
    /// Reads and verifies a checkpoint file.
    pub fn read(path: &Path) -> Result<Self, Damage> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let layout = |message: &str| Damage::Layout(message.to_owned());
        let mut header_length = [0; 8];
        if length < 8 {
            return Err(layout("it is shorter than a header"));
        }
        file.read_exact(&mut header_length)?;
        let header_length = u64::from_le_bytes(header_length);
        if header_length > MAX_HEADER || header_length > length - 8 {
            return Err(layout("its header is longer than it can be"));
        }
        let mut header = vec![0; header_length as usize];
        file.read_exact(&mut header)?;
        // Checks types, shapes, sizes for overflow, and that the tensors follow each other without gap or overlap.
        let index: Metadata = serde_json::from_slice(&header).map_err(|error| Damage::Layout(error.to_string()))?;
        if index.data_len() as u64 != length - 8 - header_length {
            return Err(layout("its length is not the one in its header"));
        }
        // Somebody else's file, which may be large, is known by its header.
        let (mut checkpoint, expected) = Self::described_by(path, &index)?;
        checkpoint.data = vec![0; index.data_len()];
        file.read_exact(&mut checkpoint.data)?;
        let found = checksum(checkpoint.step, &checkpoint.state, checkpoint.tensors());
        if found == expected { Ok(checkpoint) } else { Err(Damage::Checksum { expected, found }) }
    }

    /// A checkpoint whose tensors are yet to be read, and the checksum they must have.
    fn described_by(path: &Path, index: &Metadata) -> Result<(Self, String), Damage> {
        let metadata = index.metadata().as_ref().ok_or(Damage::Foreign("it has no metadata"))?;
        let entry = |key| metadata.get(key).map(String::as_str);
        if entry("format") != Some(FORMAT) {
            return Err(Damage::Foreign("its metadata does not say so"));
        }
        let version = entry("version").ok_or(Damage::Foreign("it has no version"))?;
        if version != VERSION {
            return Err(Damage::Version { found: version.to_owned() });
        }
        let step = entry("step").and_then(|step| step.parse().ok()).ok_or(Damage::Foreign("it has no step"))?;
        let state = entry("state").ok_or(Damage::Foreign("it has no state"))?.to_owned();
        let expected = entry("checksum").ok_or(Damage::Foreign("it has no checksum"))?.to_owned();
        let mut entries = Vec::new();
        for name in index.offset_keys() {
            let Some(info) = index.info(&name) else { continue };
            let element = match info.dtype {
                Dtype::F32 => Element::F32,
                Dtype::F64 => Element::F64,
                _ => return Err(Damage::Foreign("it has tensors other than F32 and F64")),
            };
            entries.push(Entry {
                name,
                shape: info.shape.clone(),
                element,
                place: info.data_offsets.0..info.data_offsets.1,
            });
        }
        Ok((Self { path: path.to_owned(), step, state, entries, data: Vec::new() }, expected))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Steps done when it was written.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The state that was saved beside the tensors.
    pub fn state(&self) -> &str {
        &self.state
    }

    /// All tensors, in the order of the file.
    pub fn tensors(&self) -> impl Iterator<Item = TensorRef<'_>> {
        self.entries.iter().map(|Entry { name, shape, element, place }| TensorRef {
            name,
            shape,
            element: *element,
            bytes: &self.data[place.clone()],
        })
    }

    /// One tensor by name.
    pub fn tensor(&self, name: &str) -> Option<TensorRef<'_>> {
        self.tensors().find(|tensor| tensor.name == name)
    }
}
