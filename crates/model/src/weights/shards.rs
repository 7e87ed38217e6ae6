//! Weights in several files with an index that says which tensor is in which; and the file of a folder that is meant.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::error::WeightsError;
use super::file::{Packing, WeightsFile};
use super::small_json;

/// What the names of index files end with.
const INDEX: &str = ".index.json";

/// More files than any model has.
const MAX_FILES: usize = 1000;

/// What Hugging Face and timm call the weights in a folder, the first that is there.
const NAMES: [&str; 4] =
    ["model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"];

/// What is read of an index: which file a tensor is in.
#[derive(Deserialize)]
struct Index {
    weight_map: Option<BTreeMap<String, String>>,
}

/// The weights of a folder.
pub(super) fn in_folder(folder: &Path) -> Result<PathBuf, WeightsError> {
    let there = NAMES.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    there.ok_or_else(|| WeightsError::NoWeights { path: folder.to_owned(), looked_for: NAMES.join(", ") })
}

pub(super) fn is_index(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.ends_with(INDEX)) && path.is_file()
}

/// Opens the files that an index names, which lie beside it.
pub(super) fn open(path: &Path) -> Result<WeightsFile, WeightsError> {
    let damaged = |reason: String| WeightsError::Damaged { path: path.to_owned(), reason };
    let index = small_json::read(path, |path, reason| WeightsError::Damaged { path, reason })?;
    let index: Index = index.ok_or_else(|| WeightsError::Missing { path: path.to_owned() })?;
    let map = index.weight_map.ok_or_else(|| damaged("it has no `weight_map`".to_owned()))?;
    let mut files: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (tensor, name) in &map {
        if !is_plain(name) {
            return Err(damaged(format!("`{}` is not the name of a file beside it", text::excerpt(name))));
        }
        files.entry(name).or_default().insert(tensor);
    }
    if files.len() > MAX_FILES {
        return Err(damaged(format!("it names {} files", files.len())));
    }
    let (mut opened, mut tensors, mut length) = (Vec::new(), Vec::new(), 0);
    for (name, wanted) in files {
        let (file, held, bytes) = WeightsFile::open_alone(&path.with_file_name(name))?.into_parts();
        let count = tensors.len();
        for mut tensor in held.into_iter().filter(|tensor| wanted.contains(tensor.name.as_str())) {
            tensor.place.file = opened.len();
            tensors.push(tensor);
        }
        if tensors.len() - count < wanted.len() {
            let found: BTreeSet<&str> = tensors[count..].iter().map(|tensor| tensor.name.as_str()).collect();
            let missing = wanted.iter().find(|name| !found.contains(*name)).copied().unwrap_or_default();
            return Err(damaged(format!("tensor `{}` is not in {name}", text::excerpt(missing))));
        }
        opened.extend(file);
        length += bytes;
    }
    Ok(WeightsFile::new(path, Packing::Shards, opened, length, tensors, BTreeMap::new()))
}

/// Whether this names a file in the same folder, and nothing elsewhere.
fn is_plain(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(std::path::Component::Normal(_)), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_in_the_same_folder_are_followed() {
        assert!(is_plain("model-00001-of-00002.safetensors"));
        for name in ["../model.safetensors", "/etc/passwd", "a/b", "", ".", ".."] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
