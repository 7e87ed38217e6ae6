//! Features into a file: NumPy's `.npy`, or `.safetensors` with labels and names.

use std::io::{self, Write};
use std::path::Path;

use data::Source;
use serde_json::{Map, Value, json};

use crate::error::EvalError;
use crate::features::Features;
use files::replace;

/// What a safetensors file of features says of its format.
pub const FEATURES_FORMAT: &str = "dino-vmf features";

/// A header longer than this cannot be read back: the format's limit.
const MAX_HEADER: usize = 100_000_000;

/// How features are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureFormat {
    /// A matrix of 32-bit floats, format version 1.0. No labels, no names.
    Npy,
    /// `features` (F32) and, where images have labels, `labels` (I64, -1 for none). In the metadata, as JSON lists:
    /// `names`, the image of each row, and `class_names`, by label.
    Safetensors,
}

impl FeatureFormat {
    /// The format that a file's name asks for.
    pub fn of(path: &Path) -> Result<Self, EvalError> {
        match path.extension().map(|e| e.to_ascii_lowercase()) {
            Some(e) if e == "npy" => Ok(FeatureFormat::Npy),
            Some(e) if e == "safetensors" => Ok(FeatureFormat::Safetensors),
            _ => Err(EvalError::Extension { path: path.to_owned() }),
        }
    }
}

/// Writes the features of a source in the format that the file's name asks for. The file is there completely or not at
/// all.
pub fn save(path: &Path, features: &Features, source: &dyn Source) -> Result<(), EvalError> {
    let format = FeatureFormat::of(path)?;
    let header = match format {
        FeatureFormat::Npy => npy_header(features.len(), features.dim),
        FeatureFormat::Safetensors => safetensors_header(features, source),
    };
    if header.len() > MAX_HEADER {
        return Err(EvalError::TooManyNames { path: path.to_owned(), images: features.len() });
    }
    replace(path, |file| {
        file.write_all(&header)?;
        if format == FeatureFormat::Safetensors && has_labels(features) {
            write_labels(file, features)?;
        }
        features.values.iter().try_for_each(|x| file.write_all(&x.to_le_bytes()))
    })
    .map_err(|source| EvalError::Write { path: path.to_owned(), source })
}

/// Magic, version, length and a Python dictionary, padded with spaces so that the values start at a multiple of 64.
fn npy_header(rows: usize, columns: usize) -> Vec<u8> {
    const PREFIX: usize = 10;
    let mut dictionary =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}").into_bytes();
    let length = (PREFIX + dictionary.len() + 1).next_multiple_of(64) - PREFIX;
    dictionary.resize(length - 1, b' ');
    dictionary.push(b'\n');
    // Two sizes of at most twenty digits: the length always fits.
    [b"\x93NUMPY\x01\x00", &(length as u16).to_le_bytes()[..], &dictionary].concat()
}

fn has_labels(features: &Features) -> bool {
    features.labels.iter().any(Option::is_some)
}

/// The length and the JSON header of the file. Labels come first: they are the wider type, and stay aligned so.
fn safetensors_header(features: &Features, source: &dyn Source) -> Vec<u8> {
    let (rows, mut header, mut offset) = (features.len(), Map::new(), 0);
    let mut add = |name: &str, dtype: &str, shape: &[usize], bytes: usize| {
        let entry = json!({ "dtype": dtype, "shape": shape, "data_offsets": [offset, offset + bytes] });
        header.insert(name.to_owned(), entry);
        offset += bytes;
    };
    if has_labels(features) {
        add("labels", "I64", &[rows], rows * 8);
    }
    add("features", "F32", &[rows, features.dim], rows * features.dim * 4);
    let names: Vec<String> = features.indices.iter().map(|&index| source.name(index)).collect();
    let metadata = json!({
        "format": FEATURES_FORMAT,
        "source": source.describe(),
        "names": json!(names).to_string(),
        "class_names": json!(source.class_names()).to_string(),
    });
    header.insert("__metadata__".to_owned(), metadata);
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    [&(header.len() as u64).to_le_bytes()[..], &header].concat()
}

fn write_labels(file: &mut impl Write, features: &Features) -> io::Result<()> {
    let mut labels = features.labels.iter().map(|label| label.map_or(-1, i64::from));
    labels.try_for_each(|label| file.write_all(&label.to_le_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_npy_header_has_the_length_it_says_and_ends_on_a_multiple_of_64() {
        for (rows, columns) in [(0, 0), (3, 192), (1_281_167, 1024), (usize::MAX, usize::MAX)] {
            let header = npy_header(rows, columns);
            assert_eq!(header.len() % 64, 0);
            assert_eq!(u16::from_le_bytes([header[8], header[9]]) as usize, header.len() - 10);
            assert_eq!(header.last(), Some(&b'\n'));
        }
        let text = String::from_utf8_lossy(&npy_header(3, 192)[10..]).into_owned();
        assert_eq!(text.trim_end(), "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 192), }");
    }

    #[test]
    fn only_known_extensions_are_written() {
        assert_eq!(FeatureFormat::of(Path::new("a/F.NPY")).unwrap(), FeatureFormat::Npy);
        assert_eq!(FeatureFormat::of(Path::new("f.safetensors")).unwrap(), FeatureFormat::Safetensors);
        for name in ["f", "f.npz", "f.csv", ".npy", "npy", ""] {
            assert!(matches!(FeatureFormat::of(Path::new(name)), Err(EvalError::Extension { .. })), "{name}");
        }
    }
}
