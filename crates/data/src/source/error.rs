//! Why a source or an image cannot be read. A message names the thing, and the way out.

use super::{cache, parts};
use crate::decode::{self, DecodeError};
use std::path::{Path, PathBuf};
use text::{printable, shown, thousands};
use thiserror::Error;

/// Why an image could not be read. The message starts with the image's name.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file system refused.
    #[error("{name}: {}", self.reason())]
    Io {
        /// The image.
        name: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is larger than any sensible image.
    #[error("{name}: {}", self.reason())]
    FileTooLarge {
        /// The image.
        name: String,
        /// [`decode::DecodeLimits::file_bytes`].
        limit: u64,
    },
    /// The bytes are not an image we can use.
    #[error("{name}: {}", self.reason())]
    Decode {
        /// The image.
        name: String,
        /// What is wrong with them.
        source: DecodeError,
    },
    /// There is no such image.
    #[error("there is no image {index}: the source holds {len}")]
    NoSuchImage {
        /// The number asked for.
        index: usize,
        /// Images there are.
        len: usize,
    },
}

impl ReadError {
    /// The message without the name of the image.
    pub fn reason(&self) -> String {
        match self {
            ReadError::Io { source, .. } => source.to_string(),
            ReadError::FileTooLarge { limit, .. } => format!("the file is larger than the limit of {limit} bytes"),
            ReadError::Decode { source, .. } => source.to_string(),
            ReadError::NoSuchImage { .. } => self.to_string(),
        }
    }
}

/// Why a source could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Nothing there.
    #[error("{}: no such file or folder. {SOURCES}", shown(path))]
    Missing {
        /// What was asked for.
        path: PathBuf,
    },
    /// Something there, but not a folder.
    #[error("{}: not a folder. Give the folder that holds the images", shown(path))]
    NotAFolder {
        /// What was asked for.
        path: PathBuf,
    },
    /// A file of a kind we do not know.
    #[error("{}: not a file that images can be read from: it starts with {start:02x?}. {SOURCES}", shown(path))]
    UnknownFile {
        /// The file.
        path: PathBuf,
        /// Its first bytes.
        start: Vec<u8>,
    },
    /// A folder that can be understood in two ways.
    #[error(
        "{}: holds {first} and {second}. Name the one you mean: a file such as {}, several as a pattern, or a folder \
         with only one kind",
        shown(path),
        shown(example)
    )]
    Mixed {
        /// The folder.
        path: PathBuf,
        /// One kind, with an example.
        first: String,
        /// Another.
        second: String,
        /// A file that could be named.
        example: PathBuf,
    },
    /// A folder without images.
    #[error(
        "{}: no images in it or below. Looked for .{}; saw {others} other file(s){}{}",
        shown(path), decode::EXTENSIONS.join(", ."), example(.first_other), also(.passed_over)
    )]
    NoImages {
        /// The folder.
        path: PathBuf,
        /// Files that are not images by their name.
        others: usize,
        /// One of them.
        first_other: Option<String>,
        /// What to say of images among them whose format is not read.
        passed_over: Option<String>,
    },
    /// Held-out images wanted where there are none.
    #[error("{}: has no held-out images: {}", shown(path), no_test(path))]
    NoTestSplit {
        /// The folder or the files.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("{}: cannot be read: {source}", shown(path))]
    Io {
        /// The file or the folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Something is wrong with what a file holds.
    #[error("{}: {problem}", shown(path))]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong, and the way out.
        problem: String,
    },
    /// Data that has to be unpacked once, and no place for it.
    #[error(
        "{}: cannot unpack into this cache folder: {source}, after {} bytes{}. Make room there, or set {} to a folder \
         on another disk",
        shown(folder), thousands(*.written), need(.needed), cache::VARIABLE
    )]
    Cache {
        /// The cache folder.
        folder: PathBuf,
        /// Bytes written until then.
        written: u64,
        /// Bytes needed in all, where that is known.
        needed: Option<u64>,
        /// What the system said.
        source: std::io::Error,
    },
    /// What the cache holds of a file is damaged. It is removed and made again before anybody sees this.
    #[error("{}: this file of the cache is damaged. Remove it; it is made again from your data", shown(path))]
    DamagedEntry {
        /// The file in the cache.
        path: PathBuf,
    },
    /// More images than can be numbered.
    #[error("{}: {count} images are more than the {} that one source can hold", shown(path), u32::MAX)]
    TooMany {
        /// The folder.
        path: PathBuf,
        /// Images seen.
        count: usize,
    },
    /// `synthetic:...` with something we do not know.
    #[error(
        "`{}`: {}. Write for example synthetic:train=4000,test=1000,size=48,seed=0",
        printable(spec),
        printable(problem)
    )]
    Synthetic {
        /// What was asked for.
        spec: String,
        /// The part that is wrong.
        problem: String,
    },
}

/// What a source can be.
const SOURCES: &str = "Give a folder of images (sub-folders are searched); tar or parquet files (also as a pattern: \
                       shard-{000..009}.tar, *.parquet); a folder of CIFAR, IDX, tar or parquet files; a text file \
                       that lists images; or `synthetic` for made-up data";

fn no_test(path: &Path) -> String {
    if !path.is_dir() {
        let example = "a folder with files named after their part (train-000.tar, val-000.tar)";
        return format!("files that are named are all for training. Give {example}, or the held-out files themselves");
    }
    let names = parts::HELD_OUT.join(" or ");
    let (val, train) = (path.join("val"), path.join("train"));
    format!(
        "they would be in a folder or in files named {names}, beside others named train. Put them in {}, next to {}, \
         or give their folder itself",
        shown(&val),
        shown(&train)
    )
}

fn need(bytes: &Option<u64>) -> String {
    bytes.map_or(String::new(), |bytes| format!(" of about {}", thousands(bytes)))
}

fn also(remark: &Option<String>) -> String {
    remark.as_ref().map_or(String::new(), |remark| format!(". {remark}"))
}

fn example(name: &Option<String>) -> String {
    name.as_ref().map_or(String::new(), |name| format!(", such as {name}"))
}
