//! A folder of image files, searched to any depth.
//!
//! Without labels is the normal case. Where every image lies in one of at least two first-level sub-folders, those are
//! the classes; the two splits of a data set share one list of classes, so that a class missing from one of them cannot
//! shift the labels.

use super::folder_index::{self, Index};
use super::{Fingerprint, OpenError, ReadError, Source, Split, thousands};
use crate::Image;
use crate::decode::{DecodeLimits, decode};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Images in a folder.
pub struct FolderSource {
    root: PathBuf,
    index: Index,
    class_names: Vec<String>,
    /// The label of every folder of the index; empty without labels.
    folder_labels: Vec<u32>,
    limits: DecodeLimits,
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
        let limits = DecodeLimits::default();
        Ok(Self { root, index, class_names, folder_labels, limits, fingerprint: OnceLock::new() })
    }

    /// The same source with other limits on what a file may ask for.
    pub fn with_limits(self, limits: DecodeLimits) -> Self {
        Self { limits, ..self }
    }

    fn relative(&self, index: usize) -> PathBuf {
        let entry = &self.index.entries[index];
        self.index.folders[entry.folder as usize].join(&*entry.name)
    }

    /// The whole file, or an error before more than the limit is in memory.
    fn bytes(&self, index: usize) -> Result<Vec<u8>, ReadError> {
        let io = |source| ReadError::Io { name: self.name(index), source };
        let limit = self.limits.file_bytes;
        let file = File::open(self.root.join(self.relative(index))).map_err(io)?;
        // A size, where the system knows one, saves growing the buffer; the limit holds whether or not it is true.
        let expected = file.metadata().map_err(io)?.len().min(limit);
        let mut bytes = Vec::with_capacity(expected as usize + 1);
        file.take(limit + 1).read_to_end(&mut bytes).map_err(io)?;
        if bytes.len() as u64 > limit {
            return Err(ReadError::FileTooLarge { name: self.name(index), limit });
        }
        Ok(bytes)
    }

    /// Sizes of all files, looked up by several threads: on a network drive each costs a round trip. A file that cannot
    /// be asked counts as size 0.
    fn sizes(&self) -> Vec<u64> {
        const HELPERS: usize = 15;
        const SHARE: usize = 512;
        let mut sizes = vec![0; self.len()];
        let parts = Mutex::new(sizes.chunks_mut(SHARE).enumerate());
        let work = || {
            while let Some((part, sizes)) = parts.lock().unwrap_or_else(PoisonError::into_inner).next() {
                for (i, size) in sizes.iter_mut().enumerate() {
                    let path = self.root.join(self.relative(part * SHARE + i));
                    *size = fs::metadata(path).map_or(0, |m| m.len());
                }
            }
        };
        std::thread::scope(|scope| {
            // A thread that the system refuses is only a helper less.
            let helpers = HELPERS.min(self.len() / SHARE);
            for _ in 0..helpers {
                _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        sizes
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
    Ok((names.iter().map(|name| name.to_string_lossy().into_owned()).collect(), labels))
}

impl Source for FolderSource {
    fn len(&self) -> usize {
        self.index.entries.len()
    }

    fn read(&self, index: usize) -> Result<Image, ReadError> {
        if index >= self.len() {
            return Err(ReadError::NoSuchImage { index, len: self.len() });
        }
        let bytes = self.bytes(index)?;
        decode(&bytes, &self.limits).map_err(|source| ReadError::Decode { name: self.name(index), source })
    }

    fn label(&self, index: usize) -> Option<u32> {
        let entry = self.index.entries.get(index)?;
        self.folder_labels.get(entry.folder as usize).copied()
    }

    fn class_names(&self) -> &[String] {
        &self.class_names
    }

    fn name(&self, index: usize) -> String {
        if index >= self.len() { format!("#{index}") } else { self.relative(index).display().to_string() }
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
            for (index, size) in self.sizes().into_iter().enumerate() {
                let label = self.label(index).map_or(u64::MAX, u64::from);
                hash.add(self.relative(index).as_os_str().as_encoded_bytes());
                hash.add(&size.to_le_bytes());
                hash.add(&label.to_le_bytes());
            }
            for name in &self.class_names {
                hash.add(name.as_bytes());
            }
            hash.finish()
        })
    }
}
