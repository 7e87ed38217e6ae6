//! The checkpoint file: safetensors, with step, state, the run it belongs to and a checksum over everything in its
//! metadata.
//!
//! Any safetensors reader can open it. The checksum covers names, shapes and state as well as the tensors' bytes: a
//! flipped bit in a header can otherwise turn a 3 x 2 matrix into a 2 x 3 one without anybody noticing.
//!
//! Format 1 did not say which run a checkpoint belongs to. It is still read by whoever names the file, for an evaluation,
//! but no run goes on from it.

use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use files::safetensors::{self, Content, Dtype, Header, HeaderError, TensorToWrite, WriteError, Writer};

use super::identity::Identity;

/// Version of the layout that this program writes.
const VERSION: &str = "2";
/// The one before, which has no run in it.
const NAMELESS: &str = "1";
/// How the file says what it is.
const FORMAT: &str = "dino-vmf checkpoint";

/// Type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
}

impl Element {
    fn dtype(self) -> Dtype {
        match self {
            Element::F32 => Dtype::F32,
            Element::F64 => Dtype::F64,
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

/// CRC-32C over the version, `texts` (step, state, run), and every tensor's name, type, shape and bytes, each with its
/// length, in order of name: the order of the file is not enough, since tensors without elements share their place.
fn checksum<'a>(version: &str, step: u64, texts: &[&str], tensors: impl Iterator<Item = TensorRef<'a>>) -> String {
    let mut tensors: Vec<_> = tensors.collect();
    tensors.sort_by_key(|tensor| tensor.name);
    let mut crc = crc32c::crc32c(version.as_bytes());
    let mut add = |bytes: &[u8]| {
        crc = crc32c::crc32c_append(crc, &(bytes.len() as u64).to_le_bytes());
        crc = crc32c::crc32c_append(crc, bytes);
    };
    add(&step.to_le_bytes());
    texts.iter().for_each(|text| add(text.as_bytes()));
    for tensor in tensors {
        add(tensor.name.as_bytes());
        add(tensor.element.dtype().to_string().as_bytes());
        add(&tensor.shape.iter().flat_map(|&side| (side as u64).to_le_bytes()).collect::<Vec<u8>>());
        add(tensor.bytes);
    }
    format!("crc32c:{crc:08x}")
}

/// A checkpoint about to be written: the header is ready, the tensors are still where they were.
pub(super) fn unwritten<'a>(
    step: u64,
    tensors: &[TensorRef<'a>],
    state: &str,
    identity: &Identity,
) -> Result<Writer<'a>, WriteError> {
    let mut tensors = tensors.to_vec();
    // Wider elements first, so that each tensor starts at a multiple of its element's size.
    tensors.sort_by_key(|tensor| std::cmp::Reverse(tensor.element.size()));
    let [run, recipe, data] = identity.metadata();
    let step_text = step.to_string();
    let checksum = checksum(VERSION, step, &[state, run.1, recipe.1, data.1], tensors.iter().copied());
    let (format, version) = (("format", FORMAT), ("version", VERSION));
    let (step, state, checksum) = (("step", step_text.as_str()), ("state", state), ("checksum", checksum.as_str()));
    let metadata = [format, version, run, recipe, data, step, state, checksum];
    let to_write = |TensorRef { name, shape, element, bytes }: TensorRef<'a>| TensorToWrite {
        name,
        dtype: element.dtype(),
        shape,
        content: Content::Bytes(bytes),
    };
    Writer::new(tensors.into_iter().map(to_write).collect(), metadata)
}

/// Why a file is no checkpoint to go on from.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// The file system refused. The checkpoint may be as good as it was: this is no damage to it.
    #[error("cannot be read: {0}")]
    Io(io::Error),
    /// The file is shorter or longer than its header says, or the header is no header.
    #[error("is damaged: {0}")]
    Layout(String),
    /// A safetensors file, but not a checkpoint.
    #[error("is no checkpoint of this program: {0}")]
    Foreign(&'static str),
    /// A checkpoint of another version of this program.
    #[error("has checkpoint format {found}; this program reads formats {NAMELESS} and {VERSION}")]
    Version {
        /// The format it has.
        found: String,
    },
    /// A checkpoint that the run which looks for its own must not use.
    #[error("{0}")]
    NotOurs(String),
    /// What is in the file is not what was written.
    #[error("is damaged: its checksum is {found}, it was written with {expected}")]
    Checksum {
        /// Of what was written.
        expected: String,
        /// Of what is there.
        found: String,
    },
}

impl From<io::Error> for Damage {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // The file has become shorter than it was when it was opened.
            ErrorKind::UnexpectedEof => Damage::Layout("it ends before its last tensor does".to_owned()),
            _ => Damage::Io(error),
        }
    }
}

impl From<HeaderError> for Damage {
    fn from(error: HeaderError) -> Self {
        let layout = |message: &str| Damage::Layout(message.to_owned());
        match error {
            HeaderError::Io(error) => error.into(),
            HeaderError::NotAFile => Damage::Io(io::Error::new(ErrorKind::InvalidInput, "it is not a file")),
            HeaderError::TooShort { .. } => layout("it is shorter than a header"),
            HeaderError::NotAHeader { .. } | HeaderError::HeaderCut { .. } => {
                layout("its header is longer than it can be")
            }
            HeaderError::Malformed(error) => Damage::Layout(error.to_string()),
            HeaderError::DataLength { .. } => layout("its length is not the one in its header"),
        }
    }
}

/// A checkpoint that has been read and whose checksum is right.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    step: u64,
    state: String,
    run: Option<String>,
    entries: Vec<Entry>,
    data: Vec<u8>,
}

/// What a checkpoint's header says for the checksum, beside what [`Checkpoint`] keeps.
struct Sealed {
    version: String,
    checksum: String,
    /// The run, its recipe and its data; nothing in a file of an earlier version.
    names: Vec<String>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    shape: Vec<usize>,
    element: Element,
    place: Range<usize>,
}

impl Checkpoint {
    /// Reads and verifies a checkpoint file, whichever run it belongs to.
    pub fn read(path: &Path) -> Result<Self, Damage> {
        Self::read_of(path, None)
    }

    /// Why a checkpoint that can be read is not what its name says, for a run of `last_step` steps, and whether that is damage.
    pub fn misplaced(&self, named: u64, last_step: u64) -> Option<(String, bool)> {
        if named > last_step {
            return Some((format!("lies beyond step {last_step}, the last of this run"), false));
        }
        let step = self.step();
        (step != named).then(|| (format!("is damaged: it holds step {step}, not the one in its name"), true))
    }

    /// The same for a checkpoint that must belong to this run, where there is one.
    pub(super) fn read_of(path: &Path, owner: Option<&Identity>) -> Result<Self, Damage> {
        let (mut file, header) = safetensors::open(path)?;
        Self::read_tensors(path, header, &mut file, owner)
    }

    /// Whether a file is a checkpoint of this run, going by its header alone: its tensors may be damaged.
    pub(super) fn is_of(path: &Path, owner: &Identity) -> bool {
        let header = safetensors::open(path).map_err(Damage::from);
        header.is_ok_and(|(_, header)| Self::described_by(path, header, Some(owner)).is_ok())
    }

    /// Reads the tensors that a header describes from a file that stands behind it, and verifies them.
    pub(super) fn read_tensors(
        path: &Path,
        header: Header,
        file: &mut impl Read,
        owner: Option<&Identity>,
    ) -> Result<Self, Damage> {
        let length = (header.data.end - header.data.start) as usize;
        // Somebody else's file, which may be large, is known by its header.
        let (mut checkpoint, sealed) = Self::described_by(path, header, owner)?;
        checkpoint.data = vec![0; length];
        file.read_exact(&mut checkpoint.data)?;
        let texts: Vec<&str> = std::iter::once(&checkpoint.state).chain(&sealed.names).map(String::as_str).collect();
        let found = checksum(&sealed.version, checkpoint.step, &texts, checkpoint.tensors());
        let expected = sealed.checksum;
        if found == expected { Ok(checkpoint) } else { Err(Damage::Checksum { expected, found }) }
    }

    /// A checkpoint whose tensors are yet to be read, and what its checksum is to be compared with.
    fn described_by(path: &Path, header: Header, owner: Option<&Identity>) -> Result<(Self, Sealed), Damage> {
        let Header { tensors, metadata, data } = header;
        if metadata.is_empty() {
            return Err(Damage::Foreign("it has no metadata"));
        }
        let entry = |key| metadata.get(key).map(String::as_str);
        if entry("format") != Some(FORMAT) {
            return Err(Damage::Foreign("its metadata does not say so"));
        }
        let version = entry("version").ok_or(Damage::Foreign("it has no version"))?;
        if ![NAMELESS, VERSION].contains(&version) {
            return Err(Damage::Version { found: version.to_owned() });
        }
        if let Some(reason) = owner.and_then(|owner| owner.objection(&metadata)) {
            return Err(Damage::NotOurs(reason));
        }
        let names: Vec<String> = match version {
            NAMELESS => Vec::new(),
            _ => ["run", "recipe", "data"].iter().filter_map(|&key| metadata.get(key).cloned()).collect(),
        };
        let step = entry("step").and_then(|step| step.parse().ok()).ok_or(Damage::Foreign("it has no step"))?;
        let state = entry("state").ok_or(Damage::Foreign("it has no state"))?.to_owned();
        let checksum = entry("checksum").ok_or(Damage::Foreign("it has no checksum"))?.to_owned();
        let mut entries = Vec::with_capacity(tensors.len());
        for safetensors::Entry { name, dtype, shape, place } in tensors {
            let element = match dtype {
                Dtype::F32 => Element::F32,
                Dtype::F64 => Element::F64,
                _ => return Err(Damage::Foreign("it has tensors other than F32 and F64")),
            };
            let place = (place.start - data.start) as usize..(place.end - data.start) as usize;
            entries.push(Entry { name, shape, element, place });
        }
        let sealed = Sealed { version: version.to_owned(), checksum, names };
        let run = sealed.names.first().cloned();
        Ok((Self { path: path.to_owned(), step, state, run, entries, data: Vec::new() }, sealed))
    }

    /// The name of the run that it belongs to; none in a file of an earlier version.
    pub fn run(&self) -> Option<&str> {
        self.run.as_deref()
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

#[cfg(test)]
pub(super) mod tests {
    use super::super::identity::tests::named;
    use super::*;

    const STATE: &str = "{\"epoch\": 7, \"name\": \"\\\"ü\"}";

    /// Tensors of a checkpoint after `step` steps: both types, a scalar, no elements, and values that are hard to keep.
    pub(in crate::run) fn with_tensors<R>(step: u64, body: impl FnOnce(&[TensorRef<'_>]) -> R) -> R {
        let weight = [1.0, f32::NAN, -0.0, step as f32, 5.0, 6.0];
        let weight: Vec<u8> = weight.iter().flat_map(|x| x.to_le_bytes()).collect();
        let center = 0.1f64.to_le_bytes();
        let tensors = [
            TensorRef { name: "student.weight", shape: &[3, 2], element: Element::F32, bytes: &weight },
            TensorRef { name: "center", shape: &[], element: Element::F64, bytes: &center },
            TensorRef { name: "none", shape: &[0, 4], element: Element::F32, bytes: &[] },
            TensorRef { name: "nothing", shape: &[4, 0], element: Element::F32, bytes: &[] },
        ];
        body(&tensors)
    }

    fn written() -> Vec<u8> {
        with_tensors(7, |tensors| unwritten(7, tensors, STATE, &named("mine")).unwrap().to_bytes().unwrap())
    }

    fn read(mut bytes: &[u8]) -> Result<Checkpoint, Damage> {
        let length = bytes.len() as u64;
        let header = Header::read(&mut bytes, length)?;
        Checkpoint::read_tensors(Path::new("test"), header, &mut bytes, None)
    }

    /// A file with these metadata and the tensors of step 7.
    fn file_of(metadata: &str) -> Vec<u8> {
        let header = format!(
            "{{\"__metadata__\":{{{metadata}}},\
            \"center\":{{\"data_offsets\":[0,8],\"dtype\":\"F64\",\"shape\":[]}},\
            \"none\":{{\"data_offsets\":[32,32],\"dtype\":\"F32\",\"shape\":[0,4]}},\
            \"nothing\":{{\"data_offsets\":[32,32],\"dtype\":\"F32\",\"shape\":[4,0]}},\
            \"student.weight\":{{\"data_offsets\":[8,32],\"dtype\":\"F32\",\"shape\":[3,2]}}}}"
        );
        let mut header = header.into_bytes();
        header.resize(header.len().next_multiple_of(8), b' ');
        let tensors =
            b"\x9a\x99\x99\x99\x99\x99\xb9\x3f\0\0\x80\x3f\0\0\xc0\x7f\0\0\0\x80\0\0\xe0\x40\0\0\xa0\x40\0\0\xc0\x40";
        [&(header.len() as u64).to_le_bytes(), &header[..], tensors].concat()
    }

    #[test]
    fn the_file_is_this_one_byte_for_byte() {
        let bytes = written();
        assert_eq!(
            bytes,
            file_of(
                "\"checksum\":\"crc32c:0cee5720\",\"data\":\"d\",\"format\":\"dino-vmf checkpoint\",\"recipe\":\"r\",\
                 \"run\":\"mine\",\"state\":\"{\\\"epoch\\\": 7, \\\"name\\\": \\\"\\\\\\\"ü\\\"}\",\"step\":\"7\",\
                 \"version\":\"2\""
            )
        );
        let reference = ::safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(reference.tensor("student.weight").unwrap().shape(), [3, 2]);
    }

    #[test]
    fn a_file_of_the_format_before_is_read_and_is_no_runs_own() {
        let bytes = file_of(
            "\"checksum\":\"crc32c:f4ed0b2e\",\"format\":\"dino-vmf checkpoint\",\
             \"state\":\"{\\\"epoch\\\": 7, \\\"name\\\": \\\"\\\\\\\"ü\\\"}\",\"step\":\"7\",\"version\":\"1\"",
        );
        let checkpoint = read(&bytes).unwrap();
        assert_eq!((checkpoint.step(), checkpoint.run()), (7, None));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.safetensors");
        std::fs::write(&path, bytes).unwrap();
        let refused = Checkpoint::read_of(&path, Some(&named("mine"))).unwrap_err().to_string();
        assert!(refused.contains("does not say which run it belongs to"), "{refused}");
    }

    #[test]
    fn no_change_of_a_single_byte_passes_unnoticed() {
        let good = written();
        let header = u64::from_le_bytes(good[..8].try_into().unwrap()) as usize;
        let padding = good[..8 + header].iter().rev().take_while(|&&byte| byte == b' ').count();
        let mut bad = good.clone();
        for i in 0..good.len() {
            for flip in [1, 0x20, 0x80] {
                bad[i] ^= flip;
                let harmless = (8 + header - padding..8 + header).contains(&i);
                assert!(read(&bad).is_err() || harmless, "byte {i} ^ {flip}");
                bad[i] = good[i];
            }
        }
    }

    #[test]
    fn a_file_cut_or_grown_at_any_place_is_damaged() {
        let good = written();
        for length in 0..good.len() {
            assert!(matches!(read(&good[..length]), Err(Damage::Layout(_))), "length {length}");
        }
        assert!(matches!(read(&[&good[..], &[0]].concat()), Err(Damage::Layout(_))));
        assert!(read(&vec![0; good.len()]).is_err(), "a file that a power loss left full of zeros");
    }

    #[test]
    fn hostile_headers_are_refused_before_memory_is_taken() {
        let huge =
            "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387900],\"data_offsets\":[0,18446744073709551600]}}";
        let wrap =
            "{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693951],\"data_offsets\":[0,18446744073709551608]}}";
        let foreign = "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}\0\0\0\0";
        for header in [huge, wrap, "{", foreign] {
            let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
            let message = read(&bytes).unwrap_err().to_string();
            assert!(message.contains("damaged"), "{message}");
        }
        let message = read(&[&u64::MAX.to_le_bytes()[..], b"{}"].concat()).unwrap_err().to_string();
        assert!(message.contains("longer than it can be"), "{message}");
        let length = foreign.len() as u64 - 4;
        let bytes = [&length.to_le_bytes(), foreign.as_bytes()].concat();
        assert!(matches!(read(&bytes), Err(Damage::Foreign("it has no metadata"))));
    }
}
