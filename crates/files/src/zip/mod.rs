//! The directory of a zip archive, and where in the file its entries are.
//!
//! `torch.save` writes a zip archive and compresses nothing, so that the bytes of a tensor lie in the file as they are. This
//! reads what the archive claims to hold, without trusting it: entries lie within the file and do not overlap, and no number
//! in the file makes it take more memory than the file has bytes. Compressed entries are listed, and cannot be read.

mod directory;
mod end;
mod error;
mod fields;

use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

pub use error::ZipError;

use directory::LOCAL_LENGTH;
use fields::Fields;

/// The most entries of an archive. A tensor is one; a checkpoint of a large network has some thousand.
pub const MAX_ENTRIES: u64 = 100_000;

/// The longest directory, in bytes.
pub const MAX_DIRECTORY: u64 = 32 << 20;

/// The longest name of an entry, in bytes.
pub const MAX_NAME: usize = 4096;

/// The method of an entry that is stored as it is.
const STORED: u16 = 0;

const LOCAL: &[u8] = b"PK\x03\x04";

/// What an archive holds. Nothing of its entries has been read.
#[derive(Clone, Debug)]
pub struct Archive {
    /// In the order of the directory.
    entries: Vec<Entry>,
    /// Their places there, by their names.
    by_name: Vec<u32>,
}

/// A file within an archive, or a folder, whose name ends with a slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, with the folders it is in. It may be anything, also `../../etc/passwd`.
    pub name: Box<str>,
    /// Its size in bytes; of a compressed entry, the size that it claims to have when it is unpacked.
    pub size: u64,
    /// How it is compressed, by the number that the format gives it: 0 is not at all, 8 deflate.
    pub method: u16,
    /// The CRC-32 of its bytes. None where it is 0: PyTorch writes that when it was told not to compute it.
    pub crc32: Option<u32>,
    /// Bytes that it takes in the file.
    stored: u64,
    is_encrypted: bool,
    /// Where in the file its header is.
    header: u64,
    /// Where in the file the next entry, or the directory, begins.
    limit: u64,
}

impl Archive {
    /// Reads the directory of an archive of `length` bytes.
    pub fn read<R: Read + Seek + ?Sized>(file: &mut R, length: u64) -> Result<Self, ZipError> {
        let end = end::read(file, length)?;
        // No more than the file has, and than is sensible.
        let mut directory = vec![0; (end.directory.end - end.directory.start) as usize];
        file.seek(SeekFrom::Start(end.directory.start))?;
        file.read_exact(&mut directory)?;
        let entries = directory::entries(&directory, end.entries, end.directory.start)?;
        let name = |place: u32| &*entries[place as usize].name;
        let mut by_name: Vec<u32> = (0..entries.len() as u32).collect();
        by_name.sort_unstable_by_key(|&place| name(place));
        if let Some(pair) = by_name.array_windows().find(|[one, other]| name(*one) == name(*other)) {
            return Err(ZipError::DuplicateName { name: name(pair[0]).to_owned() });
        }
        Ok(Self { entries, by_name })
    }

    /// All entries, in the order of the directory.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of a name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        let entry = |&place: &u32| self.entries.get(place as usize);
        let found = self.by_name.binary_search_by_key(&Some(name), |place| entry(place).map(|entry| &*entry.name));
        found.ok().and_then(|found| entry(&self.by_name[found]))
    }

    /// Where in the file the bytes of an entry of this archive are: [`size`](Entry::size) of them. Only an entry that is
    /// stored as it is has them there.
    pub fn place<R: Read + Seek + ?Sized>(&self, file: &mut R, entry: &Entry) -> Result<Range<u64>, ZipError> {
        let name = || entry.name.to_string();
        let bad = |problem| ZipError::BadHeader { name: name(), problem };
        if entry.is_encrypted {
            return Err(ZipError::Encrypted { name: name() });
        }
        if entry.method != STORED {
            return Err(ZipError::Compressed { name: name(), method: entry.method });
        }
        if entry.stored != entry.size {
            return Err(bad("it is stored as it is, and still has two sizes"));
        }
        let mut header = [0; LOCAL_LENGTH as usize];
        file.seek(SeekFrom::Start(entry.header))?;
        file.read_exact(&mut header)?;
        if !header.starts_with(LOCAL) {
            return Err(bad("it does not begin as one does"));
        }
        let header = Fields(&header);
        // Its sizes and checksum may be zero, and follow behind the entry instead.
        if header.u16(8) != STORED {
            return Err(bad("it says that the entry is compressed, the directory that it is not"));
        }
        let name_length = usize::from(header.u16(26));
        let mut name = [0; MAX_NAME];
        let name = name.get_mut(..name_length).ok_or(bad("it has another name than the directory"))?;
        file.read_exact(name)?;
        if name != entry.name.as_bytes() {
            return Err(bad("it has another name than the directory"));
        }
        entry.behind(LOCAL_LENGTH + name_length as u64 + u64::from(header.u16(28)))
    }
}
