//! Where images come from.
//!
//! A [`Source`] is a numbered list of images that can be read in any order by any number of threads. [`open`] finds the
//! kind from what the user wrote.

mod folder;
mod folder_index;
mod synthetic;

pub use folder::FolderSource;
pub use synthetic::{SyntheticSettings, SyntheticSource};

use crate::decode::DecodeError;
use crate::{Image, decode};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// A numbered list of images.
pub trait Source: Send + Sync {
    /// Number of images.
    fn len(&self) -> usize;

    /// True for a source without images. [`open`] never returns one.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads and decodes image `index` to RGB. Memory is bounded and nothing in a file makes it panic.
    fn read(&self, index: usize) -> Result<Image, ReadError>;

    /// The class of image `index`, where classes are known.
    fn label(&self, index: usize) -> Option<u32>;

    /// Names of the classes, by label; empty for a source without labels.
    fn class_names(&self) -> &[String];

    /// What to call image `index` in a log: a relative path, or `synthetic #17`.
    fn name(&self, index: usize) -> String;

    /// The source in one line for people: `/data/pets: 7,390 images in 37 classes`.
    fn describe(&self) -> String;

    /// A hash of the list of entries and labels, not of pixels: a resumed run checks that its data is still the same.
    fn fingerprint(&self) -> u64;
}

/// Which part of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// For training. All of it, where the data is not split.
    Train,
    /// Held out.
    Test,
}

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
    #[error(
        "{}: no such folder. Give a folder of images (sub-folders are searched), or `synthetic` for made-up data",
        path.display()
    )]
    Missing {
        /// What was asked for.
        path: PathBuf,
    },
    /// Something there, but not a folder.
    #[error("{}: not a folder. Give the folder that holds the images", path.display())]
    NotAFolder {
        /// What was asked for.
        path: PathBuf,
    },
    /// A folder without images.
    #[error(
        "{}: no images in it or below. Looked for .{}; saw {others} other file(s){}",
        path.display(), decode::EXTENSIONS.join(", ."), example(.first_other)
    )]
    NoImages {
        /// The folder.
        path: PathBuf,
        /// Files that are not images by their name.
        others: usize,
        /// One of them.
        first_other: Option<String>,
    },
    /// Held-out images wanted where there are none.
    #[error(
        "{}: has no held-out images: no sub-folder named {}. Put them in {}, next to {}, or give their folder itself",
        path.display(), folder_index::TEST_FOLDERS.join(" or "), path.join("val").display(), path.join("train").display()
    )]
    NoTestSplit {
        /// The folder.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("{}: cannot be listed: {source}", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// More images than can be numbered.
    #[error("{}: {count} images are more than the {} that one source can hold", path.display(), u32::MAX)]
    TooMany {
        /// The folder.
        path: PathBuf,
        /// Images seen.
        count: usize,
    },
    /// `synthetic:...` with something we do not know.
    #[error("`{spec}`: {problem}. Write for example synthetic:train=4000,test=1000,size=48,seed=0")]
    Synthetic {
        /// What was asked for.
        spec: String,
        /// The part that is wrong.
        problem: String,
    },
}

fn example(name: &Option<String>) -> String {
    name.as_ref().map_or(String::new(), |name| format!(", such as {name}"))
}

/// Opens `synthetic`, `synthetic:key=value,...` (keys train, test, size, seed), or a folder.
///
/// `seed` is what the synthetic images are made from unless `spec` says otherwise; a folder does not use it.
///
/// A folder with a sub-folder `train`, no images beside it and at most `val` or `test` folders next to it is split, and
/// `split` chooses. Any other folder is all for training.
pub fn open(spec: &str, split: Split, seed: u64) -> Result<Arc<dyn Source>, OpenError> {
    if spec == "synthetic" || spec.starts_with("synthetic:") {
        let settings = SyntheticSettings::parse(spec, seed)?;
        return Ok(Arc::new(SyntheticSource::new(settings, split)));
    }
    Ok(Arc::new(FolderSource::open(Path::new(spec), split)?))
}

/// FNV-1a, 64 bits: order matters and the value is the same on every machine and in every version.
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a field. Its length goes in first, so that ("ab", "c") and ("a", "bc") differ.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for &b in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub(crate) fn finish(&self) -> u64 {
        self.0
    }
}

/// 7390 as `7,390`.
pub(crate) fn thousands(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let shown: Vec<_> = [0, 999, 1000, 7390, 1_281_167].into_iter().map(thousands).collect();
        assert_eq!(shown, ["0", "999", "1,000", "7,390", "1,281,167"]);
    }

    #[test]
    fn a_fingerprint_sees_where_fields_end() {
        let of = |fields: [&str; 2]| {
            let mut f = Fingerprint::new();
            fields.iter().for_each(|field| f.add(field.as_bytes()));
            f.finish()
        };
        assert_ne!(of(["ab", "c"]), of(["a", "bc"]));
    }
}
