//! Features in a safetensors file: `features` [images, width] in F32, F64, F16 or BF16, `labels` [images] in an integer type
//! where there are classes, and in the metadata, where they are known, `names` and `class_names` as JSON lists.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use files::safetensors::{Dtype, Entry};
use half::{bf16, f16};

use super::{Found, StoredFeatures, StoredProblem};

/// Bytes that are converted at once.
const PIECE: usize = 1 << 20;

pub(super) fn read(path: &Path) -> Result<StoredFeatures, StoredProblem> {
    let (file, header) = files::safetensors::open(path)?;
    let mut file = BufReader::new(file);
    let named = |name: &str| header.tensors.iter().find(|entry| entry.name == name);
    let Some(entry) = named("features") else {
        let others: Vec<String> = header.tensors.iter().take(3).map(|entry| format!("`{}`", entry.name)).collect();
        let others = if others.is_empty() { "none at all".to_owned() } else { others.join(", ") };
        return Err(StoredProblem::NoFeatures(others));
    };
    let (rows, dim) = super::rows(&entry.shape)?;
    let values = floats(&mut file, entry)?;
    let class_names = list(&header.metadata, "class_names", None)?;
    let names = list(&header.metadata, "names", Some(rows))?;
    let labels = match named("labels") {
        None => Vec::new(),
        Some(labels) if labels.shape != [rows] => {
            return Err(StoredProblem::Labels { labels: labels.shape.clone(), rows });
        }
        Some(labels) => integers(&mut file, labels)?,
    };
    Found { dim, values, labels, names, class_names, metadata: header.metadata }.check()
}

/// The elements of a tensor, a piece at a time, each through `convert`.
fn elements<T>(
    file: &mut BufReader<File>,
    entry: &Entry,
    size: usize,
    convert: impl Fn(&[u8]) -> T,
) -> Result<Vec<T>, StoredProblem> {
    file.seek(SeekFrom::Start(entry.place.start))?;
    // The header was held against the length of the file, so that this is no mere claim.
    let mut left = (entry.place.end - entry.place.start) as usize;
    let mut values = Vec::with_capacity(left / size);
    let mut piece = vec![0; PIECE.min(left)];
    while left > 0 {
        let bytes = &mut piece[..PIECE.min(left)];
        file.read_exact(bytes)?;
        values.extend(bytes.chunks_exact(size).map(&convert));
        left -= bytes.len();
    }
    Ok(values)
}

fn floats(file: &mut BufReader<File>, entry: &Entry) -> Result<Vec<f32>, StoredProblem> {
    let bytes2 = |b: &[u8]| [b[0], b[1]];
    match entry.dtype {
        Dtype::F32 => elements(file, entry, 4, |b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        Dtype::F64 => {
            elements(file, entry, 8, |b| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]) as f32)
        }
        Dtype::F16 => elements(file, entry, 2, |b| f16::from_le_bytes(bytes2(b)).to_f32()),
        Dtype::BF16 => elements(file, entry, 2, |b| bf16::from_le_bytes(bytes2(b)).to_f32()),
        other => {
            Err(StoredProblem::Type { tensor: "features", dtype: other.to_string(), expected: "F32, F64, F16 or BF16" })
        }
    }
}

fn integers(file: &mut BufReader<File>, entry: &Entry) -> Result<Vec<i64>, StoredProblem> {
    let bytes4 = |b: &[u8]| [b[0], b[1], b[2], b[3]];
    match entry.dtype {
        Dtype::I64 => {
            elements(file, entry, 8, |b| i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
        }
        Dtype::I32 => elements(file, entry, 4, |b| i64::from(i32::from_le_bytes(bytes4(b)))),
        Dtype::U32 => elements(file, entry, 4, |b| i64::from(u32::from_le_bytes(bytes4(b)))),
        Dtype::I16 => elements(file, entry, 2, |b| i64::from(i16::from_le_bytes([b[0], b[1]]))),
        Dtype::U8 => elements(file, entry, 1, |b| i64::from(b[0])),
        other => Err(StoredProblem::Type {
            tensor: "labels",
            dtype: other.to_string(),
            expected: "I64, I32, U32, I16 or U8",
        }),
    }
}

/// A list of texts in the metadata, of this length where it has to have one; empty where there is none.
pub(super) fn list(
    metadata: &BTreeMap<String, String>,
    key: &'static str,
    length: Option<usize>,
) -> Result<Vec<String>, StoredProblem> {
    let Some(text) = metadata.get(key) else { return Ok(Vec::new()) };
    let texts: Option<Vec<String>> = serde_json::from_str(text).ok();
    let fits = |texts: &Vec<String>| length.is_none_or(|length| texts.len() == length);
    texts.filter(fits).ok_or_else(|| StoredProblem::List {
        key,
        expected: length.map_or("texts".to_owned(), |length| text::count(length, "text")),
    })
}

#[cfg(test)]
mod tests {
    use crate::stored::read;
    use std::path::{Path, PathBuf};

    fn file(folder: &Path, header: &str, data: &[u8]) -> PathBuf {
        let path = folder.join("f.safetensors");
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn said(header: &str, data: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let error = read(&file(folder.path(), header, data)).unwrap_err().to_string();
        error.split_once("f.safetensors: ").unwrap().1.to_owned()
    }

    #[test]
    fn features_of_other_programs_are_read_in_their_own_types() {
        let folder = tempfile::tempdir().unwrap();
        let header = "{\"features\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[0,4]},\
                      \"labels\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[4,12]}}";
        let data = [0x80, 0x3f, 0, 0xc0, 7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        let stored = read(&file(folder.path(), header, &data)).unwrap();
        assert_eq!(stored.features.values, [1.0, -2.0]);
        assert_eq!(stored.features.labels, [Some(7), None]);
        assert_eq!((stored.names.len(), stored.class_names.len()), (0, 0));
        let mut other = data;
        other[4] = 6;
        assert_ne!(read(&file(folder.path(), header, &other)).unwrap().digest, stored.digest);
    }

    #[test]
    fn each_way_to_be_wrong_is_named() {
        let weights = "{\"cls_token\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
        assert_eq!(said(weights, &[0; 4]), "it has no tensor `features`, but `cls_token`");
        assert_eq!(said("{}", &[]), "it has no tensor `features`, but none at all");
        let patches = "{\"features\":{\"dtype\":\"F32\",\"shape\":[1,1,1],\"data_offsets\":[0,4]}}";
        assert!(said(patches, &[0; 4]).starts_with("`features` has the shape [1, 1, 1]"));
        let whole = "{\"features\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[0,4]}}";
        assert!(said(whole, &[0; 4]).starts_with("`features` is of type I32"));
        let labelled = |labels: &str, metadata: &str| {
            format!(
                "{{{metadata}\"features\":{{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}},\
                 \"labels\":{{\"dtype\":\"U8\",\"shape\":{labels},\"data_offsets\":[8,10]}}}}"
            )
        };
        assert!(said(&labelled("[1,2]", ""), &[0; 10]).contains("there are 2 rows of features"));
        let named = labelled("[2]", "\"__metadata__\":{\"class_names\":\"[\\\"cat\\\"]\"},");
        assert!(said(&named, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 9]).starts_with("row 1 has the label 9"));
        let unnamed = labelled("[2]", "\"__metadata__\":{\"names\":\"[\\\"a.jpg\\\"]\"},");
        assert!(said(&unnamed, &[0; 10]).contains("`names` should be a JSON list of 2 texts"));
        assert!(said("nonsense", &[]).starts_with("it is no safetensors file"));
    }
}
