//! A folder of image files, searched to any depth.
//!
//! Without labels is the normal case. Where every image lies in one of at least two first-level sub-folders, those are
//! the classes. Of a split data set, the training part has the list of classes, so that neither a class missing from the
//! held-out part nor a folder of another meaning there can shift the labels. The held-out part may have its classes in a
//! file instead: see [`annotations`].

use super::folder_index::{self, Index};
use super::parts::Part;
use super::preparing::Watch;
use super::{Fingerprint, OpenError, ReadError, Source, Split, Stored, annotations, describe, files};
use crate::decode::DecodeLimits;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use text::{escape_name, excerpt, shown};

/// Where labels come from.
enum Labels {
    None,
    /// One for every folder of the index.
    Folders(Vec<u32>),
    /// One for every image.
    Images(Vec<u32>),
}

/// Images in a folder.
pub struct FolderSource {
    root: PathBuf,
    index: Index,
    class_names: Vec<String>,
    labels: Labels,
    remarks: Vec<String>,
    fingerprint: OnceLock<u64>,
}

impl FolderSource {
    /// Lists a folder. See [`super::open`] for what `split` does.
    pub fn open(path: &Path, split: Split) -> Result<Self, OpenError> {
        Self::open_watched(path, split, &Watch::default())
    }

    /// The same, with somebody who is told how many images were found so far.
    pub(super) fn open_watched(path: &Path, split: Split, watch: &Watch) -> Result<Self, OpenError> {
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
                    remarks
                        .push(format!("images beside the two parts are not used, {count} time(s): {}", shown(&first)));
                }
                let root = if split == Split::Train { Some(parts.train.clone()) } else { parts.test };
                (root.ok_or_else(no_test)?, parts.train)
            }
            None if split == Split::Train => (path.to_path_buf(), path.to_path_buf()),
            None => return Err(no_test()),
        };
        let index = folder_index::list(&root, watch)?;
        if index.entries.is_empty() {
            return Err(no_images(root, index));
        }
        remarks.extend(index.passed_over.remarks());
        if let Some(first) = &index.first_broken {
            remarks.push(format!(
                "{} image(s) left out that are links and lead nowhere, the first: {first}",
                index.broken
            ));
        }
        if let Some(first) = &index.first_repeated {
            remarks.push(format!(
                "{} linked folder(s) left out that are listed already by another path, the first: {first}",
                index.repeated
            ));
        }
        let (class_names, labels) = classes(&root, &train, &index, &mut remarks)?;
        Ok(Self { root, index, class_names, labels, remarks, fingerprint: OnceLock::new() })
    }

    /// The same with one more remark.
    pub(super) fn with_remark(mut self, remark: String) -> Self {
        self.remarks.push(remark);
        self
    }

    fn relative(&self, index: usize) -> PathBuf {
        let entry = &self.index.entries[index];
        self.index.folders[entry.folder as usize].join(&*entry.name)
    }
}

/// The error for a folder without images.
fn no_images(path: PathBuf, index: Index) -> OpenError {
    let Some(container) = index.container else {
        // Others are counted by the error itself.
        let said: Vec<String> =
            [index.passed_over.remark(), index.passed_over.remark_on_names()].into_iter().flatten().collect();
        let passed_over = (!said.is_empty()).then(|| said.join(". "));
        return OpenError::NoImages { path, others: index.others, first_other: index.first_other, passed_over };
    };
    let container = path.join(container);
    let folder = shown(container.parent().unwrap_or(&path));
    let problem = format!("no images in it or below, but {}. Give its folder: {folder}", shown(&container));
    OpenError::Format { path, problem }
}

/// Class names and labels; none where the folders of the training part form no classes, or those of the index are not
/// among them.
fn classes(
    root: &Path,
    train: &Path,
    index: &Index,
    remarks: &mut Vec<String>,
) -> Result<(Vec<String>, Labels), OpenError> {
    let none = Ok((Vec::new(), Labels::None));
    let classes: Vec<OsString> = folder_index::class_folders(train)?.into_iter().flatten().collect();
    let shown_name = |name: &OsStr| escape_name(name.as_encoded_bytes()).into_owned();
    if classes.iter().all(|name| name.to_str().is_some_and(|name| Part::of_folder(name).is_some())) {
        if let Some(first) = classes.first() {
            let first = shown_name(first);
            remarks.push(format!("`{first}` is for training like everything here: there is no folder `train`"));
        }
        return none;
    }
    if classes.len() < 2 {
        return none;
    }
    let label = |name: &OsStr| classes.binary_search_by(|class| class.as_os_str().cmp(name)).ok().map(|i| i as u32);
    let class_names = || classes.iter().map(|name| shown_name(name)).collect();
    if let Some(file) = annotations::find(root).filter(|_| root != train) {
        match annotated(&file, index, label)? {
            Ok(labels) => return Ok((class_names(), Labels::Images(labels))),
            // A file of another form that happens to be called so: the folders decide, as if it were not there.
            Err(problem) => remarks.push(format!("not used as classes of the held-out images: {problem}")),
        }
    }
    let mut labels = Vec::with_capacity(index.folders.len());
    for folder in &index.folders {
        let name = folder.components().next().map_or(OsStr::new(""), |first| first.as_os_str());
        let Some(label) = label(name) else {
            let problem = if name.is_empty() {
                "some lie in no folder".to_owned()
            } else {
                format!("`{}` is no class of {}", shown_name(name), shown(train))
            };
            remarks.push(format!("these held-out images have no labels: {problem}"));
            return none;
        };
        labels.push(label);
    }
    Ok((class_names(), Labels::Folders(labels)))
}

/// The label of every image from a file of annotations, or what is wrong with it.
fn annotated(
    file: &Path,
    index: &Index,
    label: impl Fn(&OsStr) -> Option<u32>,
) -> Result<Result<Vec<u32>, String>, OpenError> {
    let classes = match annotations::read(file) {
        Ok(classes) => classes,
        Err(error) if annotations::is_of_another_form(&error) => return Ok(Err(error.to_string())),
        Err(error) => return Err(error),
    };
    let mut labels = Vec::with_capacity(index.entries.len());
    for entry in &index.entries {
        let name = escape_name(entry.name.as_encoded_bytes());
        let Some(class) = classes.get(entry.name.as_encoded_bytes()) else {
            return Ok(Err(format!("{} says nothing of {name}", shown(file))));
        };
        let Some(label) = label(OsStr::new(class)) else {
            return Ok(Err(format!("`{}` in {} is no class of the training images", excerpt(class), shown(file))));
        };
        labels.push(label);
    }
    Ok(Ok(labels))
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
        match &self.labels {
            Labels::None => None,
            Labels::Folders(labels) => labels.get(entry.folder as usize).copied(),
            Labels::Images(labels) => labels.get(index).copied(),
        }
    }

    fn class_names(&self) -> &[String] {
        &self.class_names
    }

    fn name(&self, index: usize) -> String {
        if index >= self.len() { format!("#{index}") } else { shown(&self.relative(index)).into_owned() }
    }

    fn describe(&self) -> String {
        describe(shown(&self.root), self)
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

    fn stored_bytes(&self, index: usize) -> Option<u64> {
        (index < self.len()).then(|| files::size_of(&self.root.join(self.relative(index)))).flatten()
    }

    fn content_digest(&self, index: usize) -> Option<u64> {
        (index < self.len()).then(|| files::content_of(&self.root.join(self.relative(index))).ok()).flatten()
    }

    fn remarks(&self) -> &[String] {
        &self.remarks
    }
}
