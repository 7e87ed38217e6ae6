//! Opening a source by its specification, the text after `--data`.
//!
//! The content of a file decides what it is, not its name. A spec that names files is all for training; a folder may
//! hold two parts, of which `split` chooses one.

use super::both::BothSplits;
use super::cache::Cache;
use super::formats::{FileKind, Format};
use super::found::{self, FoundFiles};
use super::list::{self, ListSource};
use super::preparing::{Tell, Watch};
use super::ranges::{RangeSource, Table};
use super::shelf::Guard;
use super::stamp::Identity;
use super::{
    FolderSource, OpenError, Source, Split, SyntheticSettings, SyntheticSource, cifar, folder_index, idx, parallel,
    parquet, pattern, tar,
};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use text::shown;

/// Opens a source. `spec` is one of
///
/// - a folder of images, searched to any depth. With a sub-folder `train` (`training`, `train2017`) beside one called
///   `val`, `validation`, `valid`, `test` or `testing`, or with `train` alone, it is split, and `split` chooses. Any
///   other folder is all for training;
/// - a folder with lists of images named after their split: `train.tsv`, `val.tsv` (also `.csv`, `.txt`);
/// - a folder with CIFAR, IDX, tar or parquet files, split by the names these usually have;
/// - a tar archive (plain or gzip), a parquet, IDX or CIFAR file, or several as a pattern: `shard-{000..146}.tar`,
///   `data/*.parquet`, `data/**/*.tar`;
/// - a text file that lists paths, with or without labels;
/// - `synthetic`, or `synthetic:key=value,...` with the keys train, test, size, seed. `seed` is what those images are
///   made from unless `spec` says otherwise; nothing else uses it.
///
/// Indexes, and what has to be unpacked, are kept in the cache folder: the environment variable `DINO_VMF_CACHE`, or
/// the folder `dino-vmf` where the system keeps caches.
pub fn open(spec: &str, split: Split, seed: u64) -> Result<Arc<dyn Source>, OpenError> {
    open_with(spec, split, seed, &Cache::find())
}

/// As [`open`], with the cache in folder `cache`.
pub fn open_cached(spec: &str, split: Split, seed: u64, cache: &Path) -> Result<Arc<dyn Source>, OpenError> {
    open_with(spec, split, seed, &Cache::at(cache.to_path_buf()))
}

/// As [`open`]. `tell` is told how far unpacking and indexing are, where they are needed.
pub fn open_watched(spec: &str, split: Split, seed: u64, tell: Tell) -> Result<Arc<dyn Source>, OpenError> {
    open_with(spec, split, seed, &Cache::find().watched_by(Watch::new(tell)))
}

/// The images of both splits as one source: first those for training, then those held out, each in their own order. All
/// images where the data has no splits.
pub fn open_all(spec: &str, seed: u64) -> Result<Arc<dyn Source>, OpenError> {
    open_all_with(spec, seed, &Cache::find())
}

/// As [`open_all`], with the cache in folder `cache`.
pub fn open_all_cached(spec: &str, seed: u64, cache: &Path) -> Result<Arc<dyn Source>, OpenError> {
    open_all_with(spec, seed, &Cache::at(cache.to_path_buf()))
}

/// As [`open_all`], told of as by [`open_watched`].
pub fn open_all_watched(spec: &str, seed: u64, tell: Tell) -> Result<Arc<dyn Source>, OpenError> {
    open_all_with(spec, seed, &Cache::find().watched_by(Watch::new(tell)))
}

fn open_all_with(spec: &str, seed: u64, cache: &Cache) -> Result<Arc<dyn Source>, OpenError> {
    let train = open_with(spec, Split::Train, seed, cache)?;
    match open_with(spec, Split::Test, seed, cache) {
        Ok(test) => {
            let count = train.len() + test.len();
            if count > u32::MAX as usize {
                return Err(OpenError::TooMany { path: PathBuf::from(spec), count });
            }
            Ok(Arc::new(BothSplits::new(spec, train, test)))
        }
        Err(OpenError::NoTestSplit { .. }) => Ok(train),
        Err(error) => Err(error),
    }
}

pub(super) fn open_with(spec: &str, split: Split, seed: u64, cache: &Cache) -> Result<Arc<dyn Source>, OpenError> {
    if spec == "synthetic" || spec.starts_with("synthetic:") {
        let settings = SyntheticSettings::parse(spec, seed)?;
        return Ok(Arc::new(SyntheticSource::new(settings, split)));
    }
    let path = Path::new(spec);
    let files = match fs::metadata(path) {
        Ok(about) if about.is_dir() => return folder(spec, split, cache),
        Ok(_) => vec![path.to_path_buf()],
        Err(error) if error.kind() != std::io::ErrorKind::NotFound && !pattern::is_pattern(spec) => {
            return Err(OpenError::Io { path: path.to_path_buf(), source: error });
        }
        Err(_) if pattern::is_pattern(spec) => pattern::expand(spec)?,
        Err(_) => return Err(OpenError::Missing { path: path.to_path_buf() }),
    };
    if split == Split::Test {
        return Err(OpenError::NoTestSplit { path: path.to_path_buf() });
    }
    from_files(spec, &files, cache)
}

/// Opens files that the user named.
fn from_files(spec: &str, files: &[PathBuf], cache: &Cache) -> Result<Arc<dyn Source>, OpenError> {
    let kinds = parallel::map(files.len(), 1, |i| FileKind::of(&files[i]));
    let kinds = kinds.into_iter().collect::<Result<Vec<_>, _>>()?;
    let problem = |problem: String| OpenError::Format { path: PathBuf::from(spec), problem };
    let (Some(first), Some(&kind)) = (files.first(), kinds.first()) else {
        return Err(OpenError::Missing { path: PathBuf::from(spec) });
    };
    if let Some((file, other)) = files.iter().zip(&kinds).find(|(_, other)| **other != kind) {
        let (a, b) = (kind.name(), other.name());
        return Err(problem(format!("{} ({a}) and {} ({b}) are not of one kind", shown(first), shown(file))));
    }
    if matches!(kind, FileKind::List | FileKind::Images(Format::Idx)) && files.len() > 1 {
        return Err(problem(format!("{} are read one at a time; give one of them", kind.name())));
    }
    let format = match kind {
        FileKind::List => return Ok(Arc::new(ListSource::open(first)?)),
        FileKind::Images(format) => format,
    };
    ranges(spec, FoundFiles::of_files(format, files.to_vec()), Split::Train, cache)
}

/// Opens a folder, whatever kind of files it holds.
fn folder(spec: &str, split: Split, cache: &Cache) -> Result<Arc<dyn Source>, OpenError> {
    let root = Path::new(spec);
    let mut all = found::find(root)?;
    let Some(found) = all.pop() else { return images_or_lists(root, split, cache.watch()) };
    let image = folder_index::first_image(root)?.map(|path| ("images", path));
    let other = all.first().and_then(|other| Some((other.format.name(), other.example()?.clone())));
    if let (Some((what, path)), Some(example)) = (image.or(other), found.example()) {
        return Err(OpenError::Mixed {
            path: root.to_path_buf(),
            first: format!("{what} ({})", shown(&path)),
            second: format!("{} ({})", found.format.name(), shown(example)),
            example: example.clone(),
        });
    }
    if found.parts(split).0.is_empty() {
        return Err(match split {
            Split::Test => OpenError::NoTestSplit { path: root.to_path_buf() },
            Split::Train => {
                let problem = format!("has no {} for training, only held-out ones", found.format.name());
                OpenError::Format { path: root.to_path_buf(), problem }
            }
        });
    }
    ranges(spec, found, split, cache)
}

/// Opens a folder of image files, or of lists that are named after their split.
fn images_or_lists(root: &Path, split: Split, watch: &Watch) -> Result<Arc<dyn Source>, OpenError> {
    let lists = list::in_folder(root)?;
    let has_split_folders = || Ok(folder_index::split_folders(root)?.is_some());
    let Some(lists) = lists else { return Ok(Arc::new(FolderSource::open_watched(root, split, watch)?)) };
    if has_split_folders()? {
        let unused = format!("{} is not used: the folders beside it are the splits", shown(&lists.train));
        return Ok(Arc::new(FolderSource::open_watched(root, split, watch)?.with_remark(unused)));
    }
    match lists.open(split) {
        Ok(source) => Ok(Arc::new(source)),
        Err(error @ OpenError::NoTestSplit { .. }) => Err(error),
        // A text that happens to be called so, among images.
        Err(error) => match FolderSource::open_watched(root, split, watch) {
            Ok(folder) => Ok(Arc::new(folder.with_remark(format!("not used as a list of images: {error}")))),
            // The images have no held-out part, which is not the text's fault, unless it is what training would use.
            Err(none @ OpenError::NoTestSplit { .. })
                if lists.open(Split::Train).is_err() && FolderSource::open(root, Split::Train).is_ok() =>
            {
                Err(none)
            }
            Err(_) => Err(error),
        },
    }
}

/// A source of the images in these files, which mends itself where the cache is damaged.
fn ranges(spec: &str, found: FoundFiles, split: Split, cache: &Cache) -> Result<Arc<dyn Source>, OpenError> {
    let mut table = table_or_again(&found, split, cache)?;
    table.remarks.extend_from_slice(&found.remarks);
    if table.guards.is_empty() {
        table.guards = given(&table.files)?;
    }
    // Whoever waited for the source to open has gone when it mends itself.
    let cache = cache.clone().watched_by(Watch::default());
    let remake = move || table_or_again(&found, split, &cache);
    Ok(Arc::new(RangeSource::new(spec.to_owned(), table, Some(Box::new(remake)))))
}

/// Files of the user, as they are now.
fn given(files: &[PathBuf]) -> Result<Vec<Guard>, OpenError> {
    let identity = |path: &PathBuf| {
        let identity = File::open(path).and_then(|file| Identity::of(&file));
        identity.map(Guard::Given).map_err(|source| OpenError::Io { path: path.clone(), source })
    };
    files.iter().map(identity).collect()
}

/// As [`table`]. A damaged file of the cache that it stumbles over is removed and made again, once for each of the files.
fn table_or_again(found: &FoundFiles, split: Split, cache: &Cache) -> Result<Table, OpenError> {
    let mut remarks = Vec::new();
    loop {
        match table(found, split, cache) {
            Err(OpenError::DamagedEntry { path }) if remarks.len() < found.train.len() + found.test.len() => {
                ::files::remove_if_there(&path).map_err(|source| OpenError::Io { path: path.clone(), source })?;
                remarks.push(format!("{} in the cache was damaged, and was made again", shown(&path)));
            }
            Ok(mut table) => {
                table.remarks.extend(remarks);
                return Ok(table);
            }
            other => return other,
        }
    }
}

/// The images of one split.
fn table(found: &FoundFiles, split: Split, cache: &Cache) -> Result<Table, OpenError> {
    let (files, others) = found.parts(split);
    let first = files.first().map(PathBuf::as_path).unwrap_or(Path::new(""));
    match found.format {
        Format::Tar => {
            // Both splits at once: they share one list of classes.
            let [train, test] = tar::open(&found.train, &found.test, cache)?;
            Ok(if split == Split::Train { train } else { test })
        }
        Format::Parquet => parquet::open(files, others, cache),
        Format::Idx => idx::open(first, found::idx_labels(first).as_deref(), cache),
        Format::Cifar10 => cifar::open(files, found.class_names.as_deref(), cifar::Kind::Cifar10),
        Format::Cifar100 => cifar::open(files, found.class_names.as_deref(), cifar::Kind::Cifar100),
    }
}
