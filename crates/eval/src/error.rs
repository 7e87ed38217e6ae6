//! What can go wrong in an evaluation.

use std::path::PathBuf;

use data::BadSample;
use model::ConfigError;
use tensor::DeviceError;

/// Why an evaluation could not be done.
#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    /// A setting out of its range.
    #[error("{setting} = {value}: expected {expected}")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        expected: String,
    },
    /// Images that the network cannot take.
    #[error(transparent)]
    Network(#[from] ConfigError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Not one image could be used.
    #[error("none of the {images} images can be used ({source_name}). The first:{}", list(first))]
    NothingReadable {
        /// Images there are.
        images: usize,
        /// The source's description.
        source_name: String,
        /// The first ten.
        first: Vec<BadSample>,
    },
    /// The system gave no thread.
    #[error("a thread could not be started: {reason}. Try fewer workers or threads")]
    Thread {
        /// What the system said.
        reason: String,
    },
    /// The network's output for an image is of no use.
    #[error("the feature of {name} is not finite: the network's weights are broken")]
    NotFinite {
        /// The image.
        name: String,
    },
    /// The caller's progress function asked for it.
    #[error("stopped on request")]
    Stopped,
    /// An extension that names no format.
    #[error("{}: features are written as .safetensors (with labels and names) or .npy; give a name that ends so", path.display())]
    Extension {
        /// The file asked for.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("{}: cannot be written: {source}. Nothing was changed", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// More names than the header of a file may hold.
    #[error(
        "{}: the names of {images} images do not fit into the header of a safetensors file; write .npy instead",
        path.display()
    )]
    TooManyNames {
        /// The file.
        path: PathBuf,
        /// Images to be named.
        images: usize,
    },
    /// Images without a class where classes are judged.
    #[error("{unlabelled} of {images} {which} images have no label: the images of a class go into one sub-folder each")]
    NoLabels {
        /// `training` or `test`.
        which: &'static str,
        /// Images without.
        unlabelled: usize,
        /// Images there are.
        images: usize,
    },
    /// Features of different networks.
    #[error("training features have {train} values, test features {test}: they are not of the same network")]
    Width {
        /// Values of a training feature.
        train: usize,
        /// Values of a test feature.
        test: usize,
    },
    /// Nothing to judge, or to judge by.
    #[error("there are no {which} images")]
    Empty {
        /// `training` or `test`.
        which: &'static str,
    },
}

fn list(samples: &[BadSample]) -> String {
    samples.iter().map(|s| format!("\n  {}: {}", s.name, s.reason)).collect()
}
