//! Features into a file, as they are computed: rows are written when they come, and no more than a group of them is held.
//!
//! A file is there completely or not at all: it has another name until its last row is written. [`description`] reads
//! what a file says of the features in it, so that the same ones need not be computed again.

mod npy;
mod parquet;
mod safetensors;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use data::Source;

use crate::error::EvalError;
use crate::features::{FeatureBatch, Features};

pub use npy::CSV_HEADER;

/// What a file of features says of its format.
pub const FEATURES_FORMAT: &str = "dino-vmf features";

/// How features are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureFormat {
    /// An array of 32-bit floats, format version 1.0. Beside it are a `.csv` with the columns `row`, `name`, `label` and
    /// `class`, and a `.json` with what there is to say of the network.
    Npy,
    /// `features` (F32) and, where images have labels, `labels` (I64, -1 for none). In the metadata, as JSON lists:
    /// `names`, the image of each row, and `class_names`, by label; and what the caller says of the network.
    Safetensors,
    /// A table with the columns `name`, `label`, `class` and `feature`, a list of 32-bit floats. What the caller says of
    /// the network is in its metadata.
    Parquet,
}

impl FeatureFormat {
    /// The format that a file's name asks for.
    pub fn of(path: &Path) -> Result<Self, EvalError> {
        match path.extension().map(|e| e.to_ascii_lowercase()) {
            Some(e) if e == "npy" => Ok(FeatureFormat::Npy),
            Some(e) if e == "safetensors" => Ok(FeatureFormat::Safetensors),
            Some(e) if e == "parquet" => Ok(FeatureFormat::Parquet),
            _ => Err(EvalError::Extension { path: path.to_owned() }),
        }
    }

    /// The files that come to be beside `path`.
    pub fn beside(self, path: &Path) -> Vec<PathBuf> {
        match self {
            FeatureFormat::Npy => npy::beside(path).to_vec(),
            FeatureFormat::Safetensors | FeatureFormat::Parquet => Vec::new(),
        }
    }
}

/// Columns that every file has, or may have.
const RESERVED: [&str; 7] = ["row", "name", "label", "class", "feature", "features", "labels"];

/// What a file says beside its rows: a text for each key, in the order of the keys.
type Said = BTreeMap<&'static str, String>;

/// The image of a row.
#[derive(Clone, Copy)]
struct Image {
    /// Its number in the source.
    index: usize,
    label: Option<u32>,
}

impl Image {
    /// The name of its class, where it has one.
    fn class(self, source: &dyn Source) -> Option<&str> {
        source.class_names().get(self.label? as usize).map(String::as_str)
    }
}

/// What comes to be a file of one format.
trait Sink {
    /// Takes the next image: its feature, and a number for each column of numbers.
    fn row(&mut self, source: &dyn Source, image: Image, values: &[f32], numbers: &[f64]) -> io::Result<()>;

    /// Gives the file its name.
    fn finish(self: Box<Self>, source: &dyn Source) -> Result<(), Failure>;
}

/// Why a file could not be written.
enum Failure {
    Io(io::Error),
    /// The header of a safetensors file is limited.
    TooManyNames,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Io(error)
    }
}

/// A file of features that is being written. Dropped before [`FeatureWriter::finish`], it leaves nothing.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("f.parquet");
/// let source = data::open("synthetic:train=10,size=16", data::Split::Train, 0)?;
/// let (format, said) = (eval::FeatureFormat::Parquet, [("tokens", "class".to_owned())]);
/// let mut file = eval::FeatureWriter::create(format, &path, &[2], &*source, &said)?;
/// file.add(eval::FeatureBatch { indices: &[0, 1], labels: &[Some(0), None], values: &[1.0, 2.0, 3.0, 4.0] })?;
/// file.finish()?;
/// assert_eq!(eval::save::description(format, &path).unwrap()["tokens"], "class");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FeatureWriter<'a> {
    path: PathBuf,
    source: &'a dyn Source,
    /// Values of a row.
    values: usize,
    /// Numbers of a row beside its feature.
    numbers: usize,
    images: usize,
    sink: Box<dyn Sink + 'a>,
}

impl std::fmt::Debug for FeatureWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FeatureWriter").field("path", &self.path).field("values", &self.values).finish_non_exhaustive()
    }
}

impl<'a> FeatureWriter<'a> {
    /// Begins a file for features of this shape, of images of a source, with what there is to say of the network.
    pub fn create(
        format: FeatureFormat,
        path: &Path,
        shape: &[usize],
        source: &'a dyn Source,
        network: &[(&'static str, String)],
    ) -> Result<Self, EvalError> {
        Self::expecting(format, path, (shape, &[]), source, network, None)
    }

    /// The same with columns of names, in each of which an image has a number ([`FeatureWriter::add_with`]): in a
    /// safetensors file a tensor (F64) each, of an array in the table beside it. Whoever reads features passes them over.
    ///
    /// # Panics
    /// When a column has the name of one that is always there.
    pub fn with_numbers(
        format: FeatureFormat,
        path: &Path,
        columns: (&[usize], &[&'static str]),
        source: &'a dyn Source,
        network: &[(&'static str, String)],
    ) -> Result<Self, EvalError> {
        assert!(!columns.1.iter().any(|name| RESERVED.contains(name)), "{:?}: a name that is taken", columns.1);
        Self::expecting(format, path, columns, source, network, None)
    }

    /// The same, of the images of these features; of all, where none are given.
    fn expecting(
        format: FeatureFormat,
        path: &Path,
        (shape, numbers): (&[usize], &[&'static str]),
        source: &'a dyn Source,
        network: &[(&'static str, String)],
        expected: Option<&Features>,
    ) -> Result<Self, EvalError> {
        let mut said: Said = network.iter().cloned().collect();
        said.insert("format", FEATURES_FORMAT.to_owned());
        said.insert("source", source.describe());
        let images = expected.map_or(source.len(), Features::len);
        let sink: Result<Box<dyn Sink + 'a>, Failure> = match format {
            FeatureFormat::Npy => npy::Files::begin(path, shape, numbers, images, said).map(|sink| Box::new(sink) as _),
            FeatureFormat::Safetensors => safetensors::Tensors::begin(path, shape, numbers, source, expected, said)
                .map(|sink| Box::new(sink) as _),
            FeatureFormat::Parquet => {
                parquet::Table::begin(path, shape, numbers, source, said).map(|sink| Box::new(sink) as _)
            }
        };
        let sink = sink.map_err(|failure| error(path, images, failure))?;
        let (values, numbers) = (shape.iter().product(), numbers.len());
        Ok(Self { path: path.to_owned(), source, values, numbers, images, sink })
    }

    /// Writes the next images.
    pub fn add(&mut self, batch: FeatureBatch<'_>) -> Result<(), EvalError> {
        self.add_with(batch, &[])
    }

    /// The same with their numbers, those of an image one after another.
    pub fn add_with(&mut self, batch: FeatureBatch<'_>, numbers: &[f64]) -> Result<(), EvalError> {
        let FeatureBatch { indices, labels, values } = batch;
        let images = indices.len();
        let is_whole = values.len() == images * self.values && numbers.len() == images * self.numbers;
        if !is_whole || labels.len() != images {
            let values = values.len() + numbers.len();
            return Err(EvalError::Rows { images, labels: labels.len(), values });
        }
        let images = indices.iter().zip(labels).map(|(&index, &label)| Image { index, label });
        let written =
            images.zip(values.chunks_exact(self.values.max(1))).enumerate().try_for_each(|(at, (image, row))| {
                self.sink.row(self.source, image, row, &numbers[at * self.numbers..(at + 1) * self.numbers])
            });
        written.map_err(|source| error(&self.path, self.images, source.into()))
    }

    /// Writes what is left, and gives the file its name.
    pub fn finish(self) -> Result<(), EvalError> {
        let Self { path, source, images, sink, .. } = self;
        sink.finish(source).map_err(|failure| error(&path, images, failure))
    }
}

fn error(path: &Path, images: usize, failure: Failure) -> EvalError {
    match failure {
        Failure::Io(source) => EvalError::Write { path: path.to_owned(), source },
        Failure::TooManyNames => EvalError::TooManyNames { path: path.to_owned(), images },
    }
}

/// Writes the features of a source in the format that the file's name asks for, with what there is to say of the network.
/// The file is there completely or not at all.
pub fn save(
    path: &Path,
    features: &Features,
    source: &dyn Source,
    network: &[(&'static str, String)],
) -> Result<(), EvalError> {
    save_as(FeatureFormat::of(path)?, path, features, source, network)
}

/// The same in this format, whatever the file is called: it may be what a link of another name leads to.
pub fn save_as(
    format: FeatureFormat,
    path: &Path,
    features: &Features,
    source: &dyn Source,
    network: &[(&'static str, String)],
) -> Result<(), EvalError> {
    let mut file = FeatureWriter::expecting(format, path, (&[features.dim], &[]), source, network, Some(features))?;
    file.add(features.as_batch())?;
    file.finish()
}

/// What a file of this format says of the features in it: a text for each key, without names and classes of the images.
/// None for a file that holds no features of this program, or not all of them.
pub fn description(format: FeatureFormat, path: &Path) -> Option<BTreeMap<String, String>> {
    let said = match format {
        FeatureFormat::Npy => npy::description(path),
        FeatureFormat::Safetensors => safetensors::description(path),
        FeatureFormat::Parquet => files::parquet::metadata(path).ok(),
    };
    let said = said.map(|mut said| {
        ["names", "class_names"].iter().for_each(|key| _ = said.remove(*key));
        said
    });
    said.filter(|said| said.get("format").is_some_and(|format| format == FEATURES_FORMAT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_extensions_are_written() {
        assert_eq!(FeatureFormat::of(Path::new("a/F.NPY")).unwrap(), FeatureFormat::Npy);
        assert_eq!(FeatureFormat::of(Path::new("f.safetensors")).unwrap(), FeatureFormat::Safetensors);
        assert_eq!(FeatureFormat::of(Path::new("f.parquet")).unwrap(), FeatureFormat::Parquet);
        for name in ["f", "f.npz", "f.csv", ".npy", "npy", ""] {
            assert!(matches!(FeatureFormat::of(Path::new(name)), Err(EvalError::Extension { .. })), "{name}");
        }
    }

    #[test]
    fn a_file_that_is_given_up_leaves_nothing_in_any_format() {
        let source = data::open("synthetic:train=10,size=16", data::Split::Train, 0).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for name in ["f.npy", "f.safetensors", "f.parquet"] {
            let path = folder.path().join(name);
            let format = FeatureFormat::of(&path).unwrap();
            let mut file = FeatureWriter::create(format, &path, &[2], &*source, &[]).unwrap();
            file.add(FeatureBatch { indices: &[0], labels: &[None], values: &[1.0, 2.0] }).unwrap();
            let wrong = file.add(FeatureBatch { indices: &[1], labels: &[None], values: &[1.0] });
            assert!(matches!(wrong, Err(EvalError::Rows { .. })));
            assert!(!path.exists(), "{name} is half there");
            drop(file);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{name}");
        }
    }

    #[test]
    fn numbers_beside_features_are_in_every_format_and_harm_no_reader() {
        let source = data::open("synthetic:train=10,size=16", data::Split::Train, 0).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (names, numbers) = (["kappa", "log_density"], [10.5, -0.1, 1e-300, 344.123456789]);
        let batch =
            FeatureBatch { indices: &[4, 7], labels: &[Some(4), None], values: &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0] };
        let write = |name: &str| {
            let path = folder.path().join(name);
            let format = FeatureFormat::of(&path).unwrap();
            let mut file = FeatureWriter::with_numbers(format, &path, (&[3], &names), &*source, &[]).unwrap();
            assert!(matches!(file.add(batch), Err(EvalError::Rows { .. })), "their numbers are missing");
            file.add_with(batch, &numbers).unwrap();
            file.finish().unwrap();
            path
        };
        let paths = ["f.npy", "f.safetensors", "f.parquet"].map(write);
        let read = |path: &PathBuf| crate::stored::read(path).unwrap();
        for path in &paths {
            let stored = read(path);
            assert_eq!((&stored.features.values[..], &stored.features.labels[..]), (batch.values, batch.labels));
            assert_eq!(stored.names, ["synthetic #4", "synthetic #7"]);
            assert_eq!(stored.digest, read(&paths[0]).digest, "numbers are not part of the features");
        }
        let table = std::fs::read_to_string(paths[0].with_extension("csv")).unwrap();
        let (first, rest) = table.split_once('\n').unwrap();
        assert_eq!(first, "row,name,label,class,kappa,log_density");
        let of_row = |line: &str| line.rsplitn(3, ',').map(|text| text.parse().unwrap()).take(2).collect::<Vec<f64>>();
        assert_eq!(rest.lines().map(of_row).collect::<Vec<_>>(), [[numbers[1], numbers[0]], [numbers[3], numbers[2]]]);
        let bytes = std::fs::read(&paths[1]).unwrap();
        let tensors = ::safetensors::SafeTensors::deserialize(&bytes).unwrap();
        for (at, name) in names.iter().enumerate() {
            let tensor = tensors.tensor(name).unwrap();
            let values: Vec<f64> = tensor.data().as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect();
            assert_eq!((tensor.shape(), &values[..]), (&[2][..], &[numbers[at], numbers[2 + at]][..]), "{name}");
        }
        let metadata = files::parquet::TableReader::open(&paths[2]).unwrap();
        assert!(names.iter().all(|name| metadata.has(name)));
    }
}
