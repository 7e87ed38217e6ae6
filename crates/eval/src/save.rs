//! Features into a file: NumPy's `.npy`, or `.safetensors` with labels and names.

use std::io::{self, Write};
use std::path::Path;

use data::Source;
use files::replace;
use files::safetensors::{Content, Dtype, TensorToWrite, WriteError, Writer};
use serde_json::json;

use crate::error::EvalError;
use crate::features::Features;

/// What a safetensors file of features says of its format.
pub const FEATURES_FORMAT: &str = "dino-vmf features";

/// How features are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureFormat {
    /// A matrix of 32-bit floats, format version 1.0. No labels, no names.
    Npy,
    /// `features` (F32) and, where images have labels, `labels` (I64, -1 for none). In the metadata, as JSON lists:
    /// `names`, the image of each row, and `class_names`, by label; and what the caller says of the network.
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

/// Writes the features of a source in the format that the file's name asks for, with what there is to say of the network
/// where the format has a place for it. The file is there completely or not at all.
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
    let failed = |source| EvalError::Write { path: path.to_owned(), source };
    match format {
        FeatureFormat::Npy => replace(path, |file| {
            file.write_all(&npy_header(features.len(), features.dim))?;
            write_values(file, features)
        })
        .map_err(failed),
        FeatureFormat::Safetensors => {
            let (labels, values) = ([features.len()], [features.len(), features.dim]);
            let writer = safetensors(features, source, network, (&labels, &values)).map_err(|error| match error {
                WriteError::HeaderTooLong { .. } => {
                    EvalError::TooManyNames { path: path.to_owned(), images: features.len() }
                }
                other => failed(io::Error::other(other)),
            })?;
            replace(path, |file| writer.write_to(file)).map_err(failed)
        }
    }
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

/// The file of features, and of labels where there are any, of these shapes. Labels come first: they are the wider type,
/// and stay aligned so.
fn safetensors<'a>(
    features: &'a Features,
    source: &dyn Source,
    network: &[(&'static str, String)],
    (labels, values): (&'a [usize], &'a [usize]),
) -> Result<Writer<'a>, WriteError> {
    let mut tensors = Vec::new();
    if features.labels.iter().any(Option::is_some) {
        let content = Content::stream(|out| write_labels(out, features));
        tensors.push(TensorToWrite { name: "labels", dtype: Dtype::I64, shape: labels, content });
    }
    let content = Content::stream(|out| write_values(out, features));
    tensors.push(TensorToWrite { name: "features", dtype: Dtype::F32, shape: values, content });
    let names: Vec<String> = features.indices.iter().map(|&index| source.name(index)).collect();
    let metadata = [
        ("format", FEATURES_FORMAT.to_owned()),
        ("source", source.describe()),
        ("names", json!(names).to_string()),
        ("class_names", json!(source.class_names()).to_string()),
    ];
    Writer::new(tensors, metadata.into_iter().chain(network.iter().cloned()))
}

fn write_values(out: &mut dyn Write, features: &Features) -> io::Result<()> {
    features.values.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))
}

fn write_labels(out: &mut dyn Write, features: &Features) -> io::Result<()> {
    let mut labels = features.labels.iter().map(|label| label.map_or(-1, i64::from));
    labels.try_for_each(|label| out.write_all(&label.to_le_bytes()))
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
    fn the_safetensors_file_is_this_one_byte_for_byte() {
        let source = data::open("synthetic:train=10,size=16", data::Split::Train, 0).unwrap();
        let features = Features { dim: 1, values: vec![1.0, -2.0], indices: vec![1, 0], labels: vec![Some(3), None] };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.safetensors");
        save(&path, &features, &*source, &[("width", "1".to_owned())]).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header = std::str::from_utf8(&bytes[8..8 + length]).unwrap();
        assert!(header.starts_with("{\"__metadata__\":{\"class_names\":\"[\\\"disks on rows\\\","), "{header}");
        let (names, source) = ("[\\\"synthetic #1\\\",\\\"synthetic #0\\\"]", source.describe());
        let metadata = format!(
            "\"format\":\"dino-vmf features\",\"names\":\"{names}\",\"source\":\"{source}\",\"width\":\"1\"}},"
        );
        assert!(header.contains(&metadata), "{header}");
        let tensors = "\"features\":{\"data_offsets\":[16,24],\"dtype\":\"F32\",\"shape\":[2,1]},\
                       \"labels\":{\"data_offsets\":[0,16],\"dtype\":\"I64\",\"shape\":[2]}}";
        assert!(header.trim_end().ends_with(tensors), "{header}");
        assert_eq!(length % 8, 0);
        let data = b"\x03\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0\0\x80\x3f\0\0\0\xc0";
        assert_eq!(&bytes[8 + length..], data);
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
