//! Opening a source by its specification, the text after `--data`.
//!
//! The content of a file decides what it is, not its name. A spec that names files is all for training; a folder may
//! hold two parts, of which `split` chooses one.

use super::cache::Cache;
use super::formats::{FileKind, Format};
use super::found::{self, FoundFiles};
use super::list::ListSource;
use super::ranges::{RangeSource, Table};
use super::{
    FolderSource, OpenError, Source, Split, SyntheticSettings, SyntheticSource, cifar, folder_index, idx, parallel,
    parquet, pattern, tar,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens a source. `spec` is one of
///
/// - a folder of images, searched to any depth. With a sub-folder `train` (`training`, `train2017`) beside one called
///   `val`, `validation`, `valid`, `test` or `testing`, or with `train` alone, it is split, and `split` chooses. Any
///   other folder is all for training;
/// - a folder with CIFAR, IDX, tar or parquet files, split by the names these usually have;
/// - a tar archive (plain or gzip), a parquet, IDX or CIFAR file, or several as a pattern: `shard-{000..146}.tar`,
///   `data/*.parquet`;
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

fn open_with(spec: &str, split: Split, seed: u64, cache: &Cache) -> Result<Arc<dyn Source>, OpenError> {
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
        return Err(problem(format!("{} ({a}) and {} ({b}) are not of one kind", first.display(), file.display())));
    }
    if matches!(kind, FileKind::List | FileKind::Images(Format::Idx)) && files.len() > 1 {
        return Err(problem(format!("{} are read one at a time; give one of them", kind.name())));
    }
    let format = match kind {
        FileKind::List => return Ok(Arc::new(ListSource::open(first)?)),
        FileKind::Images(format) => format,
    };
    let found = FoundFiles::of_files(format, files.to_vec());
    Ok(Arc::new(RangeSource::new(spec.to_owned(), table(&found, Split::Train, cache)?)))
}

/// Opens a folder, whatever kind of files it holds.
fn folder(spec: &str, split: Split, cache: &Cache) -> Result<Arc<dyn Source>, OpenError> {
    let root = Path::new(spec);
    let mut all = found::find(root)?;
    let Some(found) = all.pop() else { return Ok(Arc::new(FolderSource::open(root, split)?)) };
    let image = folder_index::first_image(root)?.map(|path| ("images", path));
    let other = all.first().and_then(|other| Some((other.format.name(), other.example()?.clone())));
    if let (Some((what, path)), Some(example)) = (image.or(other), found.example()) {
        return Err(OpenError::Mixed {
            path: root.to_path_buf(),
            first: format!("{what} ({})", path.display()),
            second: format!("{} ({})", found.format.name(), example.display()),
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
    let mut table = table(&found, split, cache)?;
    table.remarks.extend(found.remarks);
    Ok(Arc::new(RangeSource::new(spec.to_owned(), table)))
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
