//! A folder of image files, searched to any depth.
//!
//! Without labels is the normal case. Where every image lies in one of at least two first-level sub-folders, those are
//! the classes; the two splits of a data set share one list of classes, so that a class missing from one of them cannot
//! shift the labels.

use super::folder_index::{self, Index};
use super::{Fingerprint, OpenError, ReadError, Source, Split, Stored, files, printable, thousands};
use crate::decode::DecodeLimits;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Images in a folder.
pub struct FolderSource {
    root: PathBuf,
    index: Index,
    class_names: Vec<String>,
    /// The label of every folder of the index; empty without labels.
    folder_labels: Vec<u32>,
    fingerprint: OnceLock<u64>,
}

impl FolderSource {
    /// Lists a folder. See [`super::open`] for what `split` does.
    pub fn open(path: &Path, split: Split) -> Result<Self, OpenError> {
        let kind = fs::metadata(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => OpenError::Missing { path: path.to_path_buf() },
            _ => OpenError::Io { path: path.to_path_buf(), source },
        })?;
        if !kind.is_dir() {
            return Err(OpenError::NotAFolder { path: path.to_path_buf() });
        }
        let parts = folder_index::split_folders(path)?;
        let (root, sibling) = match (parts, split) {
            (Some(parts), Split::Train) => (parts.train, parts.test),
            (Some(parts), Split::Test) => match parts.test {
                Some(test) => (test, Some(parts.train)),
                None => return Err(OpenError::NoTestSplit { path: path.to_path_buf() }),
            },
            (None, Split::Train) => (path.to_path_buf(), None),
            (None, Split::Test) => return Err(OpenError::NoTestSplit { path: path.to_path_buf() }),
        };
        let index = folder_index::list(&root)?;
        if index.entries.is_empty() {
            return Err(OpenError::NoImages { path: root, others: index.others, first_other: index.first_other });
        }
        let (class_names, folder_labels) = classes(&root, sibling.as_deref(), &index)?;
        Ok(Self { root, index, class_names, folder_labels, fingerprint: OnceLock::new() })
    }

    fn relative(&self, index: usize) -> PathBuf {
        let entry = &self.index.entries[index];
        self.index.folders[entry.folder as usize].join(&*entry.name)
    }
}

/// Class names and the label of every folder of the index; both empty where the folders do not form classes.
fn classes(root: &Path, sibling: Option<&Path>, index: &Index) -> Result<(Vec<String>, Vec<u32>), OpenError> {
    let none = Ok((Vec::new(), Vec::new()));
    let first_level = |folder: &PathBuf| folder.components().next().map(|c| c.as_os_str().to_os_string());
    let Some(used) = index.folders.iter().map(first_level).collect::<Option<Vec<OsString>>>() else { return none };
    let distinct: BTreeSet<&OsString> = used.iter().collect();
    let mut names = folder_index::sub_folders(root)?;
    match sibling {
        Some(sibling) => names.extend(folder_index::sub_folders(sibling)?),
        None if distinct.len() < 2 => return none,
        None => {}
    }
    if names.len() < 2 {
        return none;
    }
    let names: Vec<OsString> = names.into_iter().collect();
    // `used` came from a listing of the same folder: a name is missing only if it appeared in between.
    let label = |name: &OsString| names.binary_search(name).ok().map(|label| label as u32);
    let Some(labels) = used.iter().map(label).collect() else { return none };
    Ok((names.iter().map(|name| printable(&name.to_string_lossy()).into_owned()).collect(), labels))
}

impl Source for FolderSource {
    fn len(&self) -> usize {
        self.index.entries.len()
    }

    fn fetch(&self, index: usize, limits: &DecodeLimits, bytes: &mut Vec<u8>) -> Result<Stored, ReadError> {
        if index >= self.len() {
            return Err(ReadError::NoSuchImage { index, len: self.len() });
        }
        files::read(&self.root.join(self.relative(index)), || self.name(index), limits, bytes)
    }

    fn label(&self, index: usize) -> Option<u32> {
        let entry = self.index.entries.get(index)?;
        self.folder_labels.get(entry.folder as usize).copied()
    }

    fn class_names(&self) -> &[String] {
        &self.class_names
    }

    fn name(&self, index: usize) -> String {
        if index >= self.len() {
            format!("#{index}")
        } else {
            printable(&self.relative(index).to_string_lossy()).into_owned()
        }
    }

    fn describe(&self) -> String {
        let images = thousands(self.len());
        let classes = match self.class_names.len() {
            0 => String::new(),
            n => format!(" in {} classes", thousands(n)),
        };
        format!("{}: {images} images{classes}", self.root.display())
    }

    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut hash = Fingerprint::new();
            let sizes = files::sizes(self.len(), |index| self.root.join(self.relative(index)));
            for (index, size) in sizes.into_iter().enumerate() {
                hash.add_entry(self.relative(index).as_os_str().as_encoded_bytes(), size, self.label(index));
            }
            for name in &self.class_names {
                hash.add(name.as_bytes());
            }
            hash.finish()
        })
    }
}
