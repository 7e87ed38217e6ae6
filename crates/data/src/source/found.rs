//! Finding tar, parquet, IDX and CIFAR files in a folder, and splitting them into training and held-out files.

use super::formats::Format;
use super::parts::{HELD_OUT, Part};
use super::{OpenError, Split};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use text::shown;

/// Folders that the usual archives unpack to.
const CIFAR_FOLDERS: [&str; 2] = ["cifar-10-batches-bin", "cifar-100-binary"];

const PARQUET: [&str; 1] = [".parquet"];
const TAR: [&str; 3] = [".tar", ".tar.gz", ".tgz"];
const IDX: [&str; 2] = ["idx3-ubyte", "idx3-ubyte.gz"];

/// The files of one format that were found in a folder or named by the user, by split.
#[derive(Debug)]
pub(super) struct FoundFiles {
    pub format: Format,
    pub train: Vec<PathBuf>,
    /// Empty where nothing is held out.
    pub test: Vec<PathBuf>,
    /// The file of class names, for CIFAR.
    pub class_names: Option<PathBuf>,
    /// See [`super::Source::remarks`]: files that were not used, and why.
    pub remarks: Vec<String>,
}

impl FoundFiles {
    fn new(format: Format) -> Self {
        Self { format, train: Vec::new(), test: Vec::new(), class_names: None, remarks: Vec::new() }
    }

    /// Files that the user named, all for training.
    pub(super) fn of_files(format: Format, files: Vec<PathBuf>) -> Self {
        let class_names = files.first().and_then(|file| cifar_names(file, format));
        Self { train: files, class_names, ..Self::new(format) }
    }

    /// The files of this split, and those of the other.
    pub(super) fn parts(&self, split: Split) -> (&[PathBuf], &[PathBuf]) {
        match split {
            Split::Train => (&self.train, &self.test),
            Split::Test => (&self.test, &self.train),
        }
    }

    /// One of the files, as an example in a message.
    pub(super) fn example(&self) -> Option<&PathBuf> {
        self.train.first().or(self.test.first())
    }
}

/// Finds files of all formats, directly in a folder and where their usual archives put them.
pub(super) fn find(root: &Path) -> Result<Vec<FoundFiles>, OpenError> {
    let names = visible_files(root)?;
    let mut found = Vec::new();
    found.extend(idx(root, &names));
    for folder in std::iter::once(root.to_path_buf()).chain(CIFAR_FOLDERS.map(|folder| root.join(folder))) {
        let inside = if folder == root { names.clone() } else { if_there(&folder)? };
        found.extend(cifar10(&folder, &inside)?);
        found.extend(cifar100(&folder, &inside));
    }
    // Relative paths of archives, here and in the folders that name a part.
    let mut archives: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
    for folder in ["data", "train", "training"].iter().chain(&HELD_OUT) {
        archives.extend(if_there(&root.join(folder))?.iter().map(|name| Path::new(folder).join(name)));
    }
    for (format, endings) in [(Format::Parquet, &PARQUET[..]), (Format::Tar, &TAR)] {
        let ends = |path: &&PathBuf| has_ending(&path.to_string_lossy(), endings);
        let files: Vec<&PathBuf> = archives.iter().filter(ends).collect();
        if !files.is_empty() {
            found.push(by_split_words(format, root, &files));
        }
    }
    Ok(found)
}

/// Names of files that are not hidden and whose extension is that of a known format.
fn visible_files(folder: &Path) -> Result<BTreeSet<String>, OpenError> {
    let refused = |source| OpenError::Io { path: folder.to_path_buf(), source };
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).map_err(refused)? {
        let entry = entry.map_err(refused)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let interesting = [".parquet", ".tar", "gz", ".bin", "-ubyte", ".txt"];
        if !name.starts_with('.') && has_ending(&name, &interesting) && entry.path().is_file() {
            names.insert(name);
        }
    }
    Ok(names)
}

/// Whether a name ends in one of these, in capitals or not.
fn has_ending(name: &str, endings: &[&str]) -> bool {
    let last = |count: usize| name.len().checked_sub(count).map(|start| &name.as_bytes()[start..]);
    endings.iter().any(|ending| last(ending.len()).is_some_and(|end| end.eq_ignore_ascii_case(ending.as_bytes())))
}

/// Whether a name is that of a tar archive.
pub(super) fn is_tar_name(name: &str) -> bool {
    has_ending(name, &TAR)
}

/// Whether a name is that of a file with images inside.
pub(super) fn is_container(name: &str) -> bool {
    is_tar_name(name) || has_ending(name, &PARQUET) || has_ending(name, &IDX)
}

fn if_there(folder: &Path) -> Result<BTreeSet<String>, OpenError> {
    if folder.is_dir() { visible_files(folder) } else { Ok(BTreeSet::new()) }
}

/// The images of a part in IDX files, under the names that MNIST and its relatives have.
fn idx(root: &Path, names: &BTreeSet<String>) -> Option<FoundFiles> {
    let find = |parts: &[&str]| {
        let spellings = |part: &str| {
            ["-idx3-ubyte", ".idx3-ubyte", "-idx3-ubyte.gz", ".idx3-ubyte.gz"].map(|end| format!("{part}-images{end}"))
        };
        parts.iter().flat_map(|part| spellings(part)).find(|name| names.contains(name)).map(|name| root.join(name))
    };
    let found = FoundFiles {
        train: find(&["train"]).into_iter().collect(),
        test: find(&["t10k", "test"]).into_iter().collect(),
        ..FoundFiles::new(Format::Idx)
    };
    found.example().is_some().then_some(found)
}

/// The labels that belong to a file of IDX images, where they are there.
pub(super) fn idx_labels(images: &Path) -> Option<PathBuf> {
    let name = images.file_name()?.to_str().filter(|name| name.contains("images"))?;
    let labels = images.with_file_name(name.replacen("images", "labels", 1).replacen("idx3", "idx1", 1));
    let packed = labels.extension().is_some_and(|extension| extension == "gz");
    let mut with_gz = labels.clone().into_os_string();
    with_gz.push(".gz");
    let other = if packed { labels.with_extension("") } else { PathBuf::from(with_gz) };
    [labels, other].into_iter().find(|path| path.is_file())
}

fn cifar10(folder: &Path, names: &BTreeSet<String>) -> Result<Option<FoundFiles>, OpenError> {
    let number = |name: &String| name.strip_prefix("data_batch_")?.strip_suffix(".bin")?.parse::<u32>().ok();
    let last = names.iter().filter_map(number).max().unwrap_or(0);
    let batch = |i: u32| format!("data_batch_{i}.bin");
    // No more batches than files, so that a name with a large number does not lead far.
    if let Some(missing) = (1..=last).take(names.len() + 1).map(batch).find(|name| !names.contains(name)) {
        let problem = format!("{missing} is missing among the CIFAR-10 batches");
        return Err(OpenError::Format { path: folder.to_path_buf(), problem });
    }
    let mut found = FoundFiles::new(Format::Cifar10);
    found.train = (1..=last).map(|i| folder.join(batch(i))).collect();
    found.test = names.get("test_batch.bin").map(|name| folder.join(name)).into_iter().collect();
    found.class_names = names.get("batches.meta.txt").map(|name| folder.join(name));
    Ok(found.example().is_some().then_some(found))
}

fn cifar100(folder: &Path, names: &BTreeSet<String>) -> Option<FoundFiles> {
    let class_names = folder.join(names.get("fine_label_names.txt")?);
    let file = |name: &str| names.get(name).map(|name| folder.join(name)).into_iter().collect();
    let (train, test) = (file("train.bin"), file("test.bin"));
    let found = FoundFiles { train, test, class_names: Some(class_names), ..FoundFiles::new(Format::Cifar100) };
    found.example().is_some().then_some(found)
}

/// The file of class names that lies beside a CIFAR file.
fn cifar_names(file: &Path, format: Format) -> Option<PathBuf> {
    let name = match format {
        Format::Cifar10 => "batches.meta.txt",
        Format::Cifar100 => "fine_label_names.txt",
        _ => return None,
    };
    Some(file.with_file_name(name)).filter(|path| path.is_file())
}

/// Splits files by a word in their relative paths: `train-000.tar`, `imagenet-val-03.tar`, `data/test.parquet`. Without
/// `train` among them, all are for training.
fn by_split_words(format: Format, root: &Path, files: &[&PathBuf]) -> FoundFiles {
    let mut found = FoundFiles::new(format);
    let parts: Vec<Option<Part>> = files.iter().map(|file| Part::of_path(&file.to_string_lossy())).collect();
    let test = parts.iter().flatten().filter(|part| **part != Part::Train).min().copied();
    let is_split = parts.contains(&Some(Part::Train));
    let (mut unused, mut meant) = (Vec::new(), Vec::new());
    for (part, file) in parts.into_iter().zip(files) {
        let path = root.join(file);
        match part {
            Some(Part::Train) => found.train.push(path),
            Some(_) if is_split && part == test => found.test.push(path),
            _ if is_split => unused.push(path),
            _ => {
                meant.extend(part.map(|_| path.clone()));
                found.train.push(path);
            }
        }
    }
    let mut remark = |files: &[PathBuf], what: &str| {
        let first = files.first().map(|first| format!("{} file(s) {what}, the first: {}", files.len(), shown(first)));
        found.remarks.extend(first);
    };
    remark(&unused, "belong to no part and are not used");
    remark(&meant, "are named as held out and are for training like all others, because none is named `train`");
    found
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn labels_are_found_in_a_folder_whose_name_is_no_text() {
        let name = [b"data-idx-\xff-".as_slice(), std::process::id().to_string().as_bytes()].concat();
        let folder = std::env::temp_dir().join(OsStr::from_bytes(&name));
        // Some file systems take only text.
        if fs::create_dir_all(&folder).is_err() {
            return;
        }
        fs::write(folder.join("train-labels-idx1-ubyte.gz"), b"").unwrap();
        let labels = idx_labels(&folder.join("train-images-idx3-ubyte"));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(labels, Some(folder.join("train-labels-idx1-ubyte.gz")));
    }
}
