//! Features out of a file: those that `features` wrote, or of any other model in the same form. A file for each form:
//! `safetensors`, `npy` with its table, and `parquet`.
//!
//! A file is untrusted: nothing is allocated that it does not hold, and what cannot be judged (a NaN, a label that is no
//! class, names for other rows) is an error that says where.

mod npy;
mod parquet;
mod safetensors;

use std::collections::BTreeMap;
use std::path::Path;

use files::csv::CsvError;
use files::numpy::NpyError;
use files::parquet::TableError;
use files::safetensors::HeaderError;
use random::StableHash;

use crate::error::EvalError;
use crate::features::Features;
use crate::labelled::MAX_CLASSES;
use crate::labelled::first_not_finite;
use crate::save::FeatureFormat;

/// The label of an image that has none.
const NO_LABEL: i64 = -1;

/// Features that were computed before.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredFeatures {
    /// The vectors with their labels; images are numbered by row.
    pub features: Features,
    /// The image of each row; empty where the file does not say.
    pub names: Vec<String>,
    /// The name of each class; empty where the file does not say.
    pub class_names: Vec<String>,
    /// Whatever else the file says, about the network for instance.
    pub metadata: BTreeMap<String, String>,
    /// Tells these features and labels from others.
    pub digest: u64,
}

/// What is wrong with a file of features.
#[derive(Debug, thiserror::Error)]
pub enum StoredProblem {
    /// It is no safetensors file, or a broken one.
    #[error("it is no safetensors file: {0}")]
    Header(#[from] HeaderError),
    /// It is no array, or a broken one.
    #[error("{0}")]
    Array(#[from] NpyError),
    /// It is no table of features, or one that is packed.
    #[error("{0}")]
    Table(#[from] TableError),
    /// It ended early, or the disk failed.
    #[error("it cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// Most likely weights, or features under another name.
    #[error("it has no tensor `features`, but {0}")]
    NoFeatures(String),
    /// Patch tokens, for one, have three.
    #[error("`features` has the shape {0:?}, and a row for each image is needed: [images, width]")]
    Shape(Vec<usize>),
    /// A type that features do not have.
    #[error("`{tensor}` is of type {dtype}; expected {expected}")]
    Type {
        /// The tensor.
        tensor: &'static str,
        /// Its type.
        dtype: String,
        /// What it should be.
        expected: &'static str,
    },
    /// One label for each row.
    #[error("`labels` has the shape {labels:?}, and there are {rows} rows of features")]
    Labels {
        /// Shape of the labels.
        labels: Vec<usize>,
        /// Rows of features.
        rows: usize,
    },
    /// A label beyond the classes.
    #[error("row {row} has the label {label}: expected -1 for none, or a class from 0 to {last}")]
    Label {
        /// The row.
        row: usize,
        /// Its label.
        label: i64,
        /// The last class.
        last: i64,
    },
    /// A NaN or an infinity.
    #[error("the feature of row {row}{} is not finite", image.as_ref().map_or_else(String::new, |name| format!(", {},", text::excerpt(name))))]
    NotFinite {
        /// The row.
        row: usize,
        /// Its image, where the file says.
        image: Option<String>,
    },
    /// A list in the metadata that cannot be read, or not of as many entries as it must have.
    #[error("the metadata's `{key}` should be a JSON list of {expected}")]
    List {
        /// The key.
        key: &'static str,
        /// What is expected.
        expected: String,
    },
    /// The table beside an array cannot be read.
    #[error("{file} beside it: {problem}")]
    Csv {
        /// The name of the table.
        file: String,
        /// What is wrong with it.
        problem: CsvError,
    },
    /// A file beside an array that does not belong to it.
    #[error("{file} beside it: {problem}")]
    Beside {
        /// The name of the table or of the note.
        file: String,
        /// Why.
        problem: String,
    },
}

/// Reads a file of features.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("f.safetensors");
/// let source = data::open("synthetic:train=10,size=16", data::Split::Train, 0)?;
/// let features = eval::Features { dim: 1, values: vec![1.0, -2.0], indices: vec![1, 0], labels: vec![Some(3), None] };
/// eval::save(&path, &features, &*source, &[])?;
/// let stored = eval::stored::read(&path)?;
/// assert_eq!((stored.features.values, stored.features.labels), (vec![1.0, -2.0], vec![Some(3), None]));
/// assert_eq!((stored.names[0].as_str(), stored.class_names.len()), ("synthetic #1", 10));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read(path: &Path) -> Result<StoredFeatures, EvalError> {
    let found = match FeatureFormat::of(path) {
        Ok(FeatureFormat::Npy) => npy::read(path),
        Ok(FeatureFormat::Parquet) => parquet::read(path),
        // The usual form, also under another name.
        Ok(FeatureFormat::Safetensors) | Err(_) => safetensors::read(path),
    };
    found.map_err(|problem| EvalError::Stored { path: path.to_owned(), problem })
}

/// What a file of any form holds, before it is checked.
#[derive(Default)]
struct Found {
    dim: usize,
    values: Vec<f32>,
    /// One for each row, [`NO_LABEL`] for none; empty where the file has none.
    labels: Vec<i64>,
    names: Vec<String>,
    class_names: Vec<String>,
    metadata: BTreeMap<String, String>,
}

impl Found {
    /// Checks what every form has in common. Labels are as many as rows, or none.
    fn check(self) -> Result<StoredFeatures, StoredProblem> {
        let Self { dim, values, labels, names, class_names, mut metadata } = self;
        let rows = values.len().checked_div(dim).unwrap_or(0);
        if let Some(place) = first_not_finite(&values) {
            let row = place / dim;
            return Err(StoredProblem::NotFinite { row, image: names.get(row).cloned() });
        }
        let digest = digest(&values, &labels);
        let labels = if labels.is_empty() { vec![None; rows] } else { classes(&labels, class_names.len())? };
        ["names", "class_names"].iter().for_each(|key| _ = metadata.remove(*key));
        let features = Features { dim, values, indices: (0..rows).collect(), labels };
        Ok(StoredFeatures { features, names, class_names, metadata, digest })
    }
}

/// Tells features and labels from others, whatever form they were stored in.
fn digest(values: &[f32], labels: &[i64]) -> u64 {
    let mut hash = StableHash::new();
    for values in values.chunks(1 << 14) {
        hash.write(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
    }
    if labels.iter().any(|&label| label != NO_LABEL) {
        labels.iter().for_each(|label| hash.write(&label.to_le_bytes()));
    }
    hash.finish()
}

/// Rows and width of features. Rows of no values are refused: a file may claim any number of them.
fn rows(shape: &[usize]) -> Result<(usize, usize), StoredProblem> {
    match *shape {
        [rows, dim] if dim > 0 || rows == 0 => Ok((rows, dim)),
        _ => Err(StoredProblem::Shape(shape.to_vec())),
    }
}

/// Labels as classes; `named` classes have names, and where there are any, there are no others.
fn classes(labels: &[i64], named: usize) -> Result<Vec<Option<u32>>, StoredProblem> {
    let last = if named > 0 { named as i64 - 1 } else { i64::from(MAX_CLASSES) - 1 };
    let class = |(row, &label): (usize, &i64)| match u32::try_from(label) {
        Ok(class) if label <= last => Ok(Some(class)),
        _ if label == NO_LABEL => Ok(None),
        _ => Err(StoredProblem::Label { row, label, last }),
    };
    labels.iter().enumerate().map(class).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_that_is_written_is_read_as_the_same() {
        let source = data::open("synthetic:train=10,size=16", data::Split::Train, 0).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (values, labels) = (vec![1.0, -2.0, 0.5, 4.0, 0.0, 3.0], vec![Some(3), None, Some(9)]);
        for labels in [labels, vec![None; 3]] {
            let features = Features { dim: 2, values: values.clone(), indices: vec![1, 0, 5], labels };
            let read = |name: &str| {
                let path = folder.path().join(name);
                crate::save(&path, &features, &*source, &[("tokens", "class".to_owned())]).unwrap();
                let mut stored = read(&path).unwrap();
                stored.metadata.remove("feature_shape");
                stored
            };
            let first = read("f.safetensors");
            assert_eq!(first.features, Features { indices: vec![0, 1, 2], ..features.clone() });
            assert_eq!((first.names[2].as_str(), first.class_names.len()), ("synthetic #5", 10));
            assert_eq!(first.metadata["tokens"], "class");
            for name in ["f.npy", "f.parquet"] {
                assert_eq!(read(name), first, "{name}");
            }
        }
    }
}
