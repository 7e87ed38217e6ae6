//! Finding the images of a folder: fast, in one fixed order, and unharmed by links that go round in circles.
//!
//! A listing costs no more than reading the directories: file sizes are looked up only for the fingerprint. Neither is
//! kept from one start to the next, although a million files take a second or two: only reading a directory again shows
//! that a file is new, and only asking a file shows that it has grown.
//!
//! An entry stores its folder's number and its own name, about 60 bytes, so ten million images fit in a laptop's
//! memory.

use super::OpenError;
use crate::decode::EXTENSIONS;
use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

/// Sub-folders that hold the held-out images, best first.
pub(super) const TEST_FOLDERS: [&str; 4] = ["val", "validation", "valid", "test"];
const TRAIN_FOLDER: &str = "train";

/// An image file.
pub(super) struct Entry {
    /// Number of its folder in [`Index::folders`].
    pub folder: u32,
    /// Its file name.
    pub name: Box<OsStr>,
}

/// All images below a root.
pub(super) struct Index {
    /// Folders with images, relative to the root, sorted.
    pub folders: Vec<PathBuf>,
    /// Images, sorted by folder and name.
    pub entries: Vec<Entry>,
    /// Visible files that are not images by their name.
    pub others: usize,
    /// The first of them.
    pub first_other: Option<String>,
}

/// Lists all images below `root`. Hidden files and folders are passed over.
pub(super) fn list(root: &Path) -> Result<Index, OpenError> {
    let mut found = Vec::new();
    let (mut others, mut first_other) = (0, None);
    // Every real folder is read once, whatever links lead to it, which also ends every circle. Links wait until the
    // plain folders are done, so that an image goes by its plain path where it has one.
    let mut seen = HashSet::new();
    let mut plain = vec![PathBuf::new()];
    let mut links: BTreeSet<PathBuf> = BTreeSet::new();
    while let Some(folder) = plain.pop().or_else(|| links.pop_first()) {
        let path = root.join(&folder);
        let listing = fs::canonicalize(&path)
            .and_then(|real| if seen.insert(real) { fs::read_dir(&path).map(Some) } else { Ok(None) });
        let listing = match listing {
            Ok(Some(listing)) => listing,
            Ok(None) => continue,
            Err(source) => return Err(OpenError::Io { path, source }),
        };
        let mut names: Vec<Box<OsStr>> = Vec::new();
        for entry in listing {
            let entry = entry.map_err(|source| OpenError::Io { path: path.clone(), source })?;
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            match kind(&entry) {
                Kind::Folder => plain.push(folder.join(name)),
                Kind::LinkedFolder => _ = links.insert(folder.join(name)),
                Kind::File if is_image(&name) => names.push(name.into_boxed_os_str()),
                Kind::File => {
                    others += 1;
                    first_other.get_or_insert_with(|| folder.join(name).display().to_string());
                }
                Kind::Neither => {}
            }
        }
        if !names.is_empty() {
            names.sort_unstable();
            found.push((folder, names));
        }
    }
    found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let count = found.iter().map(|(_, names)| names.len()).sum();
    if count > u32::MAX as usize {
        return Err(OpenError::TooMany { path: root.to_path_buf(), count });
    }
    let mut index =
        Index { folders: Vec::with_capacity(found.len()), entries: Vec::with_capacity(count), others, first_other };
    for (folder, names) in found {
        let number = index.folders.len() as u32;
        index.folders.push(folder);
        index.entries.extend(names.into_iter().map(|name| Entry { folder: number, name }));
    }
    Ok(index)
}

/// Some image below `root`, links to folders not followed: the first that is found, so that a large folder is no work.
pub(super) fn first_image(root: &Path) -> Result<Option<PathBuf>, OpenError> {
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let refused = |source| OpenError::Io { path: folder.clone(), source };
        for entry in fs::read_dir(&folder).map_err(refused)? {
            let entry = entry.map_err(refused)?;
            let name = entry.file_name();
            match kind(&entry) {
                _ if name.as_encoded_bytes().starts_with(b".") => {}
                Kind::Folder => folders.push(entry.path()),
                Kind::File if is_image(&name) => return Ok(Some(entry.path())),
                _ => {}
            }
        }
    }
    Ok(None)
}

enum Kind {
    Folder,
    LinkedFolder,
    File,
    /// A broken link, a socket, something that vanished.
    Neither,
}

/// What a directory entry is. The type comes with the listing; only links need a second look.
fn kind(entry: &fs::DirEntry) -> Kind {
    let Ok(kind) = entry.file_type() else { return Kind::Neither };
    if kind.is_symlink() {
        return match fs::metadata(entry.path()) {
            Ok(target) if target.is_dir() => Kind::LinkedFolder,
            Ok(target) if target.is_file() => Kind::File,
            _ => Kind::Neither,
        };
    }
    match (kind.is_dir(), kind.is_file()) {
        (true, _) => Kind::Folder,
        (_, true) => Kind::File,
        _ => Kind::Neither,
    }
}

/// True for a file name with the extension of an image.
pub(super) fn is_image(name: &OsStr) -> bool {
    let extension = Path::new(name).extension().and_then(OsStr::to_str);
    extension.is_some_and(|e| EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(e)))
}

/// The folders of a split data set.
pub(super) struct SplitFolders {
    pub train: PathBuf,
    pub test: Option<PathBuf>,
}

/// Recognises `train` beside `val` or `test`: no images at the top, and no other folders that would be left out.
pub(super) fn split_folders(root: &Path) -> Result<Option<SplitFolders>, OpenError> {
    let mut folders = BTreeSet::new();
    for entry in fs::read_dir(root).map_err(|source| OpenError::Io { path: root.to_path_buf(), source })? {
        let entry = entry.map_err(|source| OpenError::Io { path: root.to_path_buf(), source })?;
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        match kind(&entry) {
            Kind::Folder | Kind::LinkedFolder => _ = folders.insert(name),
            Kind::File if is_image(&name) => return Ok(None),
            Kind::File | Kind::Neither => {}
        }
    }
    let is_known = |name: &OsString| name == TRAIN_FOLDER || TEST_FOLDERS.iter().any(|test| name == test);
    if !folders.contains(OsStr::new(TRAIN_FOLDER)) || !folders.iter().all(is_known) {
        return Ok(None);
    }
    let test = TEST_FOLDERS.iter().find(|name| folders.contains(OsStr::new(name)));
    Ok(Some(SplitFolders { train: root.join(TRAIN_FOLDER), test: test.map(|name| root.join(name)) }))
}

/// Names of the visible folders directly below `root`, sorted.
pub(super) fn sub_folders(root: &Path) -> Result<BTreeSet<OsString>, OpenError> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(root).map_err(|source| OpenError::Io { path: root.to_path_buf(), source })? {
        let entry = entry.map_err(|source| OpenError::Io { path: root.to_path_buf(), source })?;
        let name = entry.file_name();
        if matches!(kind(&entry), Kind::Folder | Kind::LinkedFolder) && !name.as_encoded_bytes().starts_with(b".") {
            names.insert(name);
        }
    }
    Ok(names)
}
