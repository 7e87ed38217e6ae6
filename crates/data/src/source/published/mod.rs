//! The data sets of the transfer protocol, as people download them: each with the files that say which images are for
//! training, for choosing settings, and for the test. A file for each layout.

mod aircraft;
mod caltech101;
mod dtd;
mod flowers102;
mod food101;
mod listing;
mod matlab;
mod pets;
mod sun397;

use super::{OpenError, Source, Split};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use text::shown;

/// Reads bytes as each format of these data sets that is not plain text. For fuzzing.
pub(super) fn parse_anything(bytes: &[u8]) {
    _ = matlab::parse(bytes);
}

/// A data set with splits of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// FGVC-Aircraft, by variant.
    Aircraft,
    /// Caltech-101, with its background class.
    Caltech101,
    /// CIFAR-10.
    Cifar10,
    /// CIFAR-100.
    Cifar100,
    /// Describable Textures, its first split.
    Dtd,
    /// Oxford Flowers-102.
    Flowers102,
    /// Food-101.
    Food101,
    /// Oxford-IIIT Pets, by breed.
    Pets,
    /// SUN397, its first split.
    Sun397,
}

/// The images of a data set by what they are for.
pub struct PublishedSets {
    /// For training.
    pub train: Arc<dyn Source>,
    /// For choosing settings, where the data set has such images.
    pub validation: Option<Arc<dyn Source>>,
    /// For the test.
    pub test: Arc<dyn Source>,
}

impl std::fmt::Debug for PublishedSets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let validation = self.validation.as_ref().map(|source| source.describe());
        write!(f, "train {}, validation {validation:?}, test {}", self.train.describe(), self.test.describe())
    }
}

impl Published {
    /// All of them, in the order of the paper.
    pub const ALL: [Published; 9] = [
        Published::Aircraft,
        Published::Caltech101,
        Published::Cifar10,
        Published::Cifar100,
        Published::Dtd,
        Published::Flowers102,
        Published::Food101,
        Published::Pets,
        Published::Sun397,
    ];

    /// As it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Published::Aircraft => "aircraft",
            Published::Caltech101 => "caltech101",
            Published::Cifar10 => "cifar10",
            Published::Cifar100 => "cifar100",
            Published::Dtd => "dtd",
            Published::Flowers102 => "flowers102",
            Published::Food101 => "food101",
            Published::Pets => "pets",
            Published::Sun397 => "sun397",
        }
    }

    /// Opens the data set in a folder. `seed` draws what it leaves open: the training images of Caltech-101.
    pub fn open(self, folder: &Path, seed: u64) -> Result<PublishedSets, OpenError> {
        match self {
            Published::Aircraft => aircraft::open(folder),
            Published::Caltech101 => caltech101::open(folder, seed),
            Published::Cifar10 | Published::Cifar100 => {
                let spec = folder.to_string_lossy();
                let (train, test) = (super::open(&spec, Split::Train, seed)?, super::open(&spec, Split::Test, seed)?);
                Ok(PublishedSets { train, validation: None, test })
            }
            Published::Dtd => dtd::open(folder),
            Published::Flowers102 => flowers102::open(folder),
            Published::Food101 => food101::open(folder),
            Published::Pets => pets::open(folder),
            Published::Sun397 => sun397::open(folder),
        }
    }
}

/// The folder itself, or one of these in it, in which `file` is: archives hold a folder that people unpack or step into.
fn root_of(folder: &Path, inside: &[&str], file: &str) -> Result<PathBuf, OpenError> {
    let mut candidates = vec![folder.to_path_buf()];
    candidates.extend(inside.iter().map(|name| folder.join(name)));
    if let Some(root) = candidates.into_iter().find(|root| root.join(file).exists()) {
        return Ok(root);
    }
    if !folder.is_dir() {
        return Err(OpenError::Missing { path: folder.to_path_buf() });
    }
    let looked = shown(&folder.join(file)).to_string();
    let problem = format!("is not laid out as this data set is downloaded: looked for {looked}");
    Err(OpenError::Format { path: folder.to_path_buf(), problem })
}
