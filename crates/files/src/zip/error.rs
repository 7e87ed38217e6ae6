//! Why an archive, or an entry of it, was not read.

use std::io;

use super::{MAX_DIRECTORY, MAX_ENTRIES, MAX_NAME};

/// What is wrong with an archive.
#[derive(Debug, thiserror::Error)]
pub enum ZipError {
    /// The file system refused, or the file ended before the length that it had when it was opened.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The record is missing with which every archive ends.
    #[error("it does not end as a zip archive does. Was it copied or downloaded to its end?")]
    NoEnd,
    /// The records at its end contradict each other or the length of the file.
    #[error("the end of the archive is damaged: {0}")]
    BadEnd(&'static str),
    /// A part of an archive that was cut into several files.
    #[error("it is one of several files of an archive; put them together first")]
    Split,
    /// More entries than any file of weights has.
    #[error("{found} entries are more than {MAX_ENTRIES}, the most that is read")]
    TooManyEntries {
        /// Entries, as the archive says.
        found: u64,
    },
    /// A longer directory than any file of weights has.
    #[error("a directory of {found} bytes is longer than {MAX_DIRECTORY}, the most that is read")]
    DirectoryTooLong {
        /// Its length, as the archive says.
        found: u64,
    },
    /// The directory contradicts itself.
    #[error("entry {number} of the directory is damaged: {problem}")]
    BadDirectory {
        /// The entry, counted from 1.
        number: u64,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A name that no sensible archive has.
    #[error("entry {number} of the directory has a name of {found} bytes; the most that is read is {MAX_NAME}")]
    NameTooLong {
        /// The entry, counted from 1.
        number: u64,
        /// Bytes of its name.
        found: usize,
    },
    /// Which of the two would be read is anybody's guess.
    #[error("two entries have the name {name:?}")]
    DuplicateName {
        /// Their name.
        name: String,
    },
    /// An entry reaches into the next one, or out of the part of the file that entries are in.
    #[error("entry {name:?} reaches beyond its place in the file")]
    Overlap {
        /// Its name.
        name: String,
    },
    /// What stands before the bytes of an entry contradicts the directory.
    #[error("the header of entry {name:?} is damaged: {problem}")]
    BadHeader {
        /// Its name.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// An entry that is not stored as it is.
    #[error(
        "entry {name:?} is compressed (method {method}), and torch.save compresses nothing; load the file with PyTorch and \
         save it again with torch.save"
    )]
    Compressed {
        /// Its name.
        name: String,
        /// How, by the number that the format gives it; 8 is deflate.
        method: u16,
    },
    /// An entry that cannot be read without a password.
    #[error("entry {name:?} is encrypted; unpack the archive and save its content again with torch.save")]
    Encrypted {
        /// Its name.
        name: String,
    },
}
