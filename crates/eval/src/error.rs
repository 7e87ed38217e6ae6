//! The errors of an evaluation.

use std::path::PathBuf;

use data::BadSample;
use model::ConfigError;
use tensor::DeviceError;

use crate::stored::StoredProblem;

/// Why an evaluation failed.
#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    /// A setting is out of its range.
    #[error("{setting} = {value}: expected {expected}")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        expected: String,
    },
    /// The metadata of a weights file say something that cannot be meant.
    #[error("the metadata say that `{key}` is `{}`; expected {expected}", text::excerpt(value))]
    Metadata {
        /// The key.
        key: &'static str,
        /// What it says.
        value: String,
        /// What it should be.
        expected: String,
    },
    /// The network cannot take images of this size.
    #[error(transparent)]
    Network(#[from] ConfigError),
    /// The device failed, or ran out of memory.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Every image is unreadable, or unusable in shape or channels.
    #[error("none of the {images} images can be used ({source_name}). The first:{}", list(first))]
    NothingReadable {
        /// Images there are.
        images: usize,
        /// The source's description.
        source_name: String,
        /// The first ten.
        first: Vec<BadSample>,
    },
    /// The operating system refused a thread.
    #[error("a thread could not be started: {reason}. Try fewer workers or threads")]
    Thread {
        /// What the system said.
        reason: String,
    },
    /// The network's output for an image has a NaN or an infinity.
    #[error("the feature of {name} is not finite: the network's weights are broken")]
    NotFinite {
        /// The image.
        name: String,
    },
    /// The logits of an image have a NaN or an infinity.
    #[error("what the head says of {name} is not finite: its prototypes are broken")]
    NotDescribed {
        /// The image.
        name: String,
    },
    /// A video data set, or masks for it.
    #[error(transparent)]
    Video(#[from] crate::video::VideoError),
    /// A feature of zeros has no direction.
    #[error("the feature of {name} is zero, so it has no direction")]
    NoDirection {
        /// The image.
        name: String,
    },
    /// A mixture that cannot be, or prototypes in too few dimensions for their log-normaliser.
    #[error(transparent)]
    Distribution(#[from] vmf::Error),
    /// The files of a retrieval benchmark.
    #[error(transparent)]
    Retrieval(#[from] crate::retrieval::RetrievalError),
    /// The folder of a copy-detection set.
    #[error(transparent)]
    Copies(#[from] crate::copies::CopySetError),
    /// The caller asked to stop.
    #[error("stopped on request")]
    Stopped,
    /// A file name whose extension names no format of features.
    #[error(
        "{}: features are written as .safetensors, .npy (with a .csv of names and labels beside it) or .parquet; give a name \
         that ends so",
        text::shown(path)
    )]
    Extension {
        /// The file asked for.
        path: PathBuf,
    },
    /// A file could not be written.
    #[error("{}: cannot be written: {source}. Nothing was changed", text::shown(path))]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The header of a safetensors file is limited, and it holds the images' names.
    #[error(
        "{}: the names of {images} images do not fit into the header of a safetensors file; a .parquet file, or an .npy with \
         its .csv, holds any number of them",
        text::shown(path)
    )]
    TooManyNames {
        /// The file.
        path: PathBuf,
        /// Images whose names were to be written.
        images: usize,
    },
    /// A batch of features that is none: a value or a label too many or too few.
    #[error("{values} values and {labels} labels for {images} images: not one feature and one label each")]
    Rows {
        /// Images of the batch.
        images: usize,
        /// Labels of the batch.
        labels: usize,
        /// Values of the batch.
        values: usize,
    },
    /// Images without a label, where the protocol compares labels.
    #[error(
        "{unlabelled} of {images} {which} images have no label: in a folder the images of a class go into one sub-folder each, \
         in a list the label stands behind the path"
    )]
    NoLabels {
        /// `training` or `test`.
        which: &'static str,
        /// Images without.
        unlabelled: usize,
        /// Images there are.
        images: usize,
    },
    /// A file that holds no features, or others than it should.
    #[error("{}: {problem}", text::shown(path))]
    Stored {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: StoredProblem,
    },
    /// A number that is no class.
    #[error("the label {label} of the {which} images is no class: expected 0 to {}", classes.saturating_sub(1))]
    Label {
        /// `training` or `test`.
        which: &'static str,
        /// The label.
        label: i64,
        /// Classes there can be.
        classes: usize,
    },
    /// A class that is asked for and was never shown.
    #[error("{of} have no image of class {class}, which the test images have")]
    NoMember {
        /// The class.
        class: u32,
        /// What should have one.
        of: String,
    },
    /// A class with so few images that validation would hold all of them out.
    #[error(
        "class {class} has {members} training image(s), and validation would hold out all of them: give it more images, or leave \
         the class out"
    )]
    FoldWithoutClass {
        /// The class.
        class: u32,
        /// Its images.
        members: usize,
    },
    /// A file could not be read.
    #[error("{}: cannot be read: {source}", text::shown(path))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A few-shot list that does not fit the images.
    #[error("{} {problem}", text::shown(path))]
    List {
        /// The list.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Features of different widths cannot be compared.
    #[error("training features have {train} values, test features {test}: they are not of the same network")]
    Width {
        /// Values of a training feature.
        train: usize,
        /// Values of a test feature.
        test: usize,
    },
    /// Leave-one-out needs another image to vote.
    #[error("kNN needs labelled images to vote, at least two where none are held out; there is {images}")]
    TooFewVoters {
        /// Labelled training images there are.
        images: usize,
    },
    /// A set of features is empty.
    #[error("there are no {which} images")]
    Empty {
        /// `training` or `test`.
        which: &'static str,
    },
}

fn list(samples: &[BadSample]) -> String {
    samples.iter().map(|s| format!("\n  {}: {}", s.name, s.reason)).collect()
}
