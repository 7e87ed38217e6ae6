//! A folder of image files, searched to any depth.
//!
//! Without labels is the normal case. Where every image lies in one of at least two first-level sub-folders, those are
//! the classes. Of a split data set, the training part has the list of classes, so that neither a class missing from the
//! held-out part nor a folder of another meaning there can shift the labels.

use super::folder_index::{self, Index};
use super::parts::Part;
use super::{Fingerprint, OpenError, ReadError, Source, Split, Stored, describe, files};
use crate::decode::DecodeLimits;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use text::printable;

/// Images in a folder.
pub struct FolderSource {
    root: PathBuf,
    index: Index,
    class_names: Vec<String>,
    /// The label of every folder of the index; empty without labels.
    folder_labels: Vec<u32>,
    remarks: Vec<String>,
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
        let no_test = || OpenError::NoTestSplit { path: path.to_path_buf() };
        let mut remarks = Vec::new();
        let (root, train) = match folder_index::split_folders(path)? {
            Some(parts) => {
                if let Some(first) = parts.unused.first() {
                    let (count, first) = (parts.unused.len(), path.join(first));
                    remarks.push(format!(
                        "images beside the two parts are not used, {count} time(s): {}",
                        first.display()
                    ));
                }
                let root = if split == Split::Train { Some(parts.train.clone()) } else { parts.test };
                (root.ok_or_else(no_test)?, parts.train)
            }
            None if split == Split::Train => (path.to_path_buf(), path.to_path_buf()),
            None => return Err(no_test()),
        };
        let index = folder_index::list(&root)?;
        if index.entries.is_empty() {
            return Err(no_images(root, index));
        }
        let (class_names, folder_labels) = classes(&train, &index, &mut remarks)?;
        Ok(Self { root, index, class_names, folder_labels, remarks, fingerprint: OnceLock::new() })
    }

    fn relative(&self, index: usize) -> PathBuf {
        let entry = &self.index.entries[index];
        self.index.folders[entry.folder as usize].join(&*entry.name)
    }
}

/// The error for a folder without images.
fn no_images(path: PathBuf, index: Index) -> OpenError {
    let Some(container) = index.container else {
        return OpenError::NoImages { path, others: index.others, first_other: index.first_other };
    };
    let container = path.join(container);
    let folder = container.parent().unwrap_or(&path).display();
    let problem = format!("no images in it or below, but {}. Give its folder: {folder}", container.display());
    OpenError::Format { path, problem }
}

/// Class names and the label of every folder of the index; both empty where the folders of the training part form no
/// classes, or those of the index are not among them.
fn classes(train: &Path, index: &Index, remarks: &mut Vec<String>) -> Result<(Vec<String>, Vec<u32>), OpenError> {
    let none = Ok((Vec::new(), Vec::new()));
    let classes: Vec<OsString> = folder_index::class_folders(train)?.into_iter().flatten().collect();
    let shown = |name: &OsStr| printable(&name.to_string_lossy()).into_owned();
    if classes.iter().all(|name| name.to_str().is_some_and(|name| Part::of_folder(name).is_some())) {
        if let Some(first) = classes.first() {
            remarks
                .push(format!("`{}` is for training like everything here: there is no folder `train`", shown(first)));
        }
        return none;
    }
    if classes.len() < 2 {
        return none;
    }
    let mut labels = Vec::with_capacity(index.folders.len());
    for folder in &index.folders {
        let name = folder.components().next().map_or(OsStr::new(""), |first| first.as_os_str());
        let Ok(label) = classes.binary_search_by(|class| class.as_os_str().cmp(name)) else {
            let problem = if name.is_empty() {
                "some lie in no folder".to_owned()
            } else {
                format!("`{}` is no class of {}", shown(name), train.display())
            };
            remarks.push(format!("these held-out images have no labels: {problem}"));
            return none;
        };
        labels.push(label as u32);
    }
    Ok((classes.iter().map(|name| shown(name)).collect(), labels))
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
        describe(self.root.display(), self)
    }

    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut hash = Fingerprint::new();
            let sizes = files::sizes(self.len(), |index| self.root.join(self.relative(index)));
            for (index, size) in sizes.into_iter().enumerate() {
                hash.add_entry(self.relative(index).as_os_str().as_encoded_bytes(), size, self.label(index));
            }
            hash.add_contents(&files::contents(self.len(), |index| self.root.join(self.relative(index))));
            hash.add_classes(&self.class_names);
            hash.finish()
        })
    }

    fn remarks(&self) -> &[String] {
        &self.remarks
    }
}
