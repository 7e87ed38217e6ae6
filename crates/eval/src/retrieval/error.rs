//! What can be wrong with a benchmark's files.

use std::io;
use std::path::PathBuf;

use files::numpy::NpyError;
use files::pickle::PickleError;

/// Why a benchmark was not evaluated.
#[derive(Debug, thiserror::Error)]
pub enum RetrievalError {
    /// The ground truth could not be opened or read.
    #[error("{}: {source}", text::shown(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is no pickle, or a damaged one.
    #[error("{}: {source}", text::shown(path))]
    Pickle {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: PickleError,
    },
    /// Python would run something to load it.
    #[error(
        "{}: to load it, Python would call `{}`, which no list of images needs. It was not called; do not load this file \
         with Python either",
        text::shown(path),
        text::excerpt(callable)
    )]
    Hostile {
        /// The file.
        path: PathBuf,
        /// What would be called.
        callable: String,
    },
    /// It holds something else.
    #[error(
        "{}: not a ground truth of the revisited benchmarks (gnd_roxford5k.pkl, gnd_rparis6k.pkl): {what}",
        text::shown(path)
    )]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The ranking could not be read.
    #[error("{}: {source}", text::shown(path))]
    Ranks {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: NpyError,
    },
    /// The ranking is not of this ground truth.
    #[error(
        "{}: its shape is {shape:?}, and the ground truth has {database} database images and {queries} queries: a ranking is \
         [database, queries], a column for each query with the best match on top",
        text::shown(path)
    )]
    RanksShape {
        /// The file.
        path: PathBuf,
        /// Its shape.
        shape: Vec<usize>,
        /// Images that are searched.
        database: usize,
        /// Queries.
        queries: usize,
    },
    /// A ranking names an image that is not there, or one twice.
    #[error("{}: query {query}, place {place}: image {image} {what}", text::shown(path))]
    Rank {
        /// The file.
        path: PathBuf,
        /// The query.
        query: usize,
        /// The place in its ranking, from 0.
        place: usize,
        /// What stands there.
        image: i64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Images of the ground truth are not in the folder.
    #[error(
        "{}: {missing} of the ground truth's {images} images are not there, the first: {first}. They are looked for as \
         jpg/NAME.jpg, then as NAME.jpg",
        text::shown(folder)
    )]
    Missing {
        /// The folder.
        folder: PathBuf,
        /// Images that are not there.
        missing: usize,
        /// Images there should be.
        images: usize,
        /// The first that is not.
        first: String,
    },
    /// A name in the ground truth that would lead out of the folder.
    #[error("the ground truth names an image `{}`, which is no name of a file", text::excerpt(name))]
    Name {
        /// The name.
        name: String,
    },
    /// Stored features without names, of another number of images.
    #[error("{rows} rows without names, and {count} are needed: only names tell which image a row is of")]
    Unnamed {
        /// Rows that are stored.
        rows: usize,
        /// Images of the ground truth.
        count: usize,
    },
    /// Stored features of other images.
    #[error("{missing} of the ground truth's {images} images are not among the stored features, the first: {first}")]
    NotStored {
        /// Images that are not there.
        missing: usize,
        /// Images there should be.
        images: usize,
        /// The first that is not.
        first: String,
    },
    /// Two rows for an image.
    #[error("`{}` stands in the stored features twice", text::excerpt(name))]
    StoredTwice {
        /// The image.
        name: String,
    },
    /// An image of the benchmark cannot be used.
    #[error("{name}: {reason}. Without it the result would not be the benchmark's")]
    Image {
        /// The image.
        name: String,
        /// Why not.
        reason: String,
    },
}
