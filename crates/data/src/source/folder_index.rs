//! Finding the images of a folder: fast, in one fixed order, and unharmed by links that go round in circles.
//!
//! A listing costs no more than reading the directories: file sizes are looked up only for the fingerprint. Neither is
//! kept from one start to the next, although a million files take a second or two: only reading a directory again shows
//! that a file is new, and only asking a file shows that it has grown.
//!
//! An entry stores its folder's number and its own name, about 60 bytes, so ten million images fit in a laptop's
//! memory.

use super::OpenError;
use super::found::is_container;
use super::parts::Part;
use super::passed_over::PassedOver;
use super::preparing::{Preparation, Watch};
use crate::decode::EXTENSIONS;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use text::shown;

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
    /// What to say of those that may be missed.
    pub passed_over: PassedOver,
    /// Links that lead nowhere and would be images by their name, and the first of them.
    pub broken: usize,
    pub first_broken: Option<String>,
    /// Links to folders that are listed already, and the first of them.
    pub repeated: usize,
    pub first_repeated: Option<String>,
    /// One that holds images itself, such as a parquet file.
    pub container: Option<PathBuf>,
}

/// Lists all images below `root`. Hidden files and folders are passed over.
pub(super) fn list(root: &Path, watch: &Watch) -> Result<Index, OpenError> {
    let mut found = Vec::new();
    let (mut others, mut first_other, mut container) = (0, None, None);
    let (mut passed_over, mut broken, mut first_broken) = (PassedOver::default(), 0, None);
    let (mut repeated, mut first_repeated) = (0, None);
    // Every real folder is read once, whatever links lead to it, which also ends every circle. Links wait until the
    // plain folders are done, so that an image goes by its plain path where it has one.
    let mut seen = HashSet::new();
    let mut plain = vec![PathBuf::new()];
    let mut links: BTreeSet<PathBuf> = BTreeSet::new();
    while let Some(folder) = plain.pop().or_else(|| links.pop_first()) {
        let path = root.join(&folder);
        let real = fs::canonicalize(&path).map_err(|source| OpenError::Io { path: path.clone(), source })?;
        if !seen.insert(real) {
            repeated += 1;
            first_repeated.get_or_insert_with(|| shown(&folder).into_owned());
            continue;
        }
        let mut names: Vec<Box<OsStr>> = Vec::new();
        for found in visible(&path)? {
            let (name, kind) = found?;
            match kind {
                Kind::Folder => plain.push(folder.join(name)),
                Kind::LinkedFolder => _ = links.insert(folder.join(name)),
                Kind::File if is_image(&name) => names.push(name.into_boxed_os_str()),
                Kind::File => {
                    others += 1;
                    let path = folder.join(&name);
                    first_other.get_or_insert_with(|| shown(&path).into_owned());
                    let extension = Path::new(&name).extension().and_then(OsStr::to_str).unwrap_or_default();
                    passed_over.add_file(extension, &root.join(&path), || shown(&path).into_owned());
                    if container.is_none() && is_container(&name.to_string_lossy()) {
                        container = Some(path);
                    }
                }
                Kind::BrokenLink if is_image(&name) => {
                    broken += 1;
                    first_broken.get_or_insert_with(|| shown(&folder.join(&name)).into_owned());
                }
                Kind::BrokenLink | Kind::Neither => {}
            }
        }
        if !names.is_empty() {
            watch.advance(Preparation::Listing, names.len() as u64);
            names.sort_unstable();
            found.push((folder, names));
        }
    }
    found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let count = found.iter().map(|(_, names)| names.len()).sum();
    if count > u32::MAX as usize {
        return Err(OpenError::TooMany { path: root.to_path_buf(), count });
    }
    let (folders, entries) = (Vec::with_capacity(found.len()), Vec::with_capacity(count));
    let mut index = Index {
        folders,
        entries,
        others,
        first_other,
        passed_over,
        broken,
        first_broken,
        repeated,
        first_repeated,
        container,
    };
    for (folder, names) in found {
        let number = index.folders.len() as u32;
        index.folders.push(folder);
        index.entries.extend(names.into_iter().map(|name| Entry { folder: number, name }));
    }
    Ok(index)
}

/// Some image below `root`: the first that is found, so that a large folder is no work.
pub(super) fn first_image(root: &Path) -> Result<Option<PathBuf>, OpenError> {
    let mut folders = vec![root.to_path_buf()];
    // Every circle has a link in it.
    let mut linked = HashSet::new();
    while let Some(folder) = folders.pop() {
        for found in visible(&folder)? {
            let (name, kind) = found?;
            let path = folder.join(&name);
            match kind {
                Kind::File if is_image(&name) => return Ok(Some(path)),
                Kind::Folder => folders.push(path),
                Kind::LinkedFolder if fs::canonicalize(&path).is_ok_and(|real| linked.insert(real)) => {
                    folders.push(path);
                }
                _ => {}
            }
        }
    }
    Ok(None)
}

/// What is visible directly in a folder, in the order of the file system.
fn visible(folder: &Path) -> Result<impl Iterator<Item = Result<(OsString, Kind), OpenError>>, OpenError> {
    let refused = move |source| OpenError::Io { path: folder.to_path_buf(), source };
    let listing = fs::read_dir(folder).map_err(refused)?;
    Ok(listing.filter_map(move |entry| match entry {
        Ok(entry) => {
            let name = entry.file_name();
            let is_hidden = name.as_encoded_bytes().starts_with(b".");
            (!is_hidden).then(|| Ok((name, kind(&entry))))
        }
        Err(source) => Some(Err(refused(source))),
    }))
}

enum Kind {
    Folder,
    LinkedFolder,
    File,
    /// A link that leads nowhere.
    BrokenLink,
    /// A socket, a pipe, something that vanished.
    Neither,
}

/// What a directory entry is. The type comes with the listing; only links need a second look.
fn kind(entry: &fs::DirEntry) -> Kind {
    let Ok(kind) = entry.file_type() else { return Kind::Neither };
    if kind.is_symlink() {
        return match fs::metadata(entry.path()) {
            Ok(target) if target.is_dir() => Kind::LinkedFolder,
            Ok(target) if target.is_file() => Kind::File,
            Ok(_) => Kind::Neither,
            Err(_) => Kind::BrokenLink,
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
#[derive(Debug)]
pub(super) struct SplitFolders {
    pub train: PathBuf,
    pub test: Option<PathBuf>,
    /// Folders with images, and an image, that neither part holds.
    pub unused: Vec<OsString>,
}

/// Recognises `train` beside `val` or `test`, whatever else is there, and `train` where nothing else holds images.
/// `train` beside other folders with images is a class like them.
pub(super) fn split_folders(root: &Path) -> Result<Option<SplitFolders>, OpenError> {
    let (mut parts, mut others, mut unused) = (Vec::new(), Vec::new(), Vec::new());
    for found in visible(root)? {
        let (name, kind) = found?;
        match kind {
            Kind::Folder | Kind::LinkedFolder => match name.to_str().and_then(Part::of_folder) {
                Some(part) => parts.push((part, name)),
                None => others.push(name),
            },
            // One says enough: there may be millions.
            Kind::File if unused.is_empty() && is_image(&name) => unused.push(name),
            Kind::File | Kind::BrokenLink | Kind::Neither => {}
        }
    }
    // Of `val2014` and `val2017`, the later one.
    parts.sort_unstable_by_key(|(part, name)| (*part, Reverse(name.clone())));
    let first = |train: bool| parts.iter().position(|(part, _)| (*part == Part::Train) == train);
    let (Some(train), test) = (first(true), first(false)) else { return Ok(None) };
    for name in others {
        // What cannot be looked into (`lost+found`) is not used in any case.
        if let Ok(Some(_)) = first_image(&root.join(&name)) {
            unused.push(name);
        }
    }
    if test.is_none() && !unused.is_empty() {
        return Ok(None);
    }
    let folder = |i: usize| root.join(&parts[i].1);
    let (train_folder, test_folder) = (folder(train), test.map(folder));
    let left = parts.iter().enumerate().filter(|(i, _)| *i != train && Some(*i) != test);
    unused.extend(left.map(|(_, (_, name))| name.clone()));
    unused.sort_unstable();
    Ok(Some(SplitFolders { train: train_folder, test: test_folder, unused }))
}

/// The folders directly below `root` that hold images, sorted; none where an image lies beside them.
pub(super) fn class_folders(root: &Path) -> Result<Option<BTreeSet<OsString>>, OpenError> {
    let mut folders = BTreeSet::new();
    for found in visible(root)? {
        let (name, kind) = found?;
        match kind {
            Kind::File if is_image(&name) => return Ok(None),
            Kind::Folder | Kind::LinkedFolder if first_image(&root.join(&name))?.is_some() => {
                folders.insert(name);
            }
            _ => {}
        }
    }
    Ok(Some(folders))
}
