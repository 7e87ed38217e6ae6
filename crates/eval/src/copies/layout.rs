//! Copydays as it is downloaded: `original/`, `strong/`, and `jpegqual/` and `crops/` with a folder for each strength.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use data::{PathsSource, Source};

/// The folders of the data set, in the order of the reference's results.
const STRENGTHS: [(&str, [u32; 9]); 2] =
    [("jpegqual", [3, 5, 8, 10, 15, 20, 30, 50, 75]), ("crops", [10, 15, 20, 30, 40, 50, 60, 70, 80])];
const ORIGINAL: &str = "original";
const STRONG: &str = "strong";
/// Characters of a file's name that a strong copy shares with its original.
const SHARED: usize = 4;
/// The most images of a folder; the data set has 229.
const MAX_IMAGES: usize = 1 << 20;

/// What is wrong with a copy of the data set.
#[derive(Debug, thiserror::Error)]
pub enum CopySetError {
    /// A folder cannot be listed.
    #[error("{}: {source}", text::shown(path))]
    Io {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There are no originals.
    #[error(
        "{}: no .jpg files in `original`, which are what is searched. Copydays has original/, strong/, jpegqual/ and crops/",
        text::shown(path)
    )]
    NoOriginals {
        /// The folder of the data set.
        path: PathBuf,
    },
    /// Stored features of which two are of one image.
    #[error("{}: {} is named twice", text::shown(path), text::shown(name))]
    Twice {
        /// The file.
        path: PathBuf,
        /// The image.
        name: PathBuf,
    },
    /// There is nothing to look for.
    #[error("{}: no copies in `strong`, `jpegqual/*` or `crops/*`", text::shown(path))]
    NoCopies {
        /// The folder of the data set.
        path: PathBuf,
    },
    /// A block whose images belong to the originals one to one, but are not as many.
    #[error("{}: {images} images, and there are {originals} originals: each has one copy here", text::shown(path))]
    Count {
        /// The block's folder.
        path: PathBuf,
        /// Images in it.
        images: usize,
        /// Originals.
        originals: usize,
    },
    /// A strong copy of nothing.
    #[error("{}: no original begins with the same {SHARED} characters", text::shown(path))]
    Orphan {
        /// The copy.
        path: PathBuf,
    },
    /// A folder that holds more than any data set.
    #[error("{}: more than {MAX_IMAGES} images", text::shown(path))]
    TooMany {
        /// The folder.
        path: PathBuf,
    },
}

/// Copies that were made in one way. `S` is what there is of their images.
pub struct Block<S = PathsSource> {
    /// Its folder: `strong`, `jpegqual/30`.
    pub name: String,
    /// The copies.
    pub images: S,
    /// For each copy the originals that it was made from.
    pub originals: Vec<Vec<u32>>,
}

/// The images of the data set: files, or rows of stored features.
pub struct CopySet<S = PathsSource> {
    /// What is searched.
    pub originals: S,
    /// What is looked for: the originals themselves, strong copies, and all other folders that are there.
    pub blocks: Vec<Block<S>>,
}

impl CopySet {
    /// Lists a copy of the data set. Folders of copies may be missing.
    pub fn open(folder: &Path) -> Result<Self, CopySetError> {
        arranged(folder, |of| listed(folder, of), |paths| source(folder, paths))
    }

    /// All images there are to be described.
    pub fn images(&self) -> usize {
        self.originals.len() + self.blocks.iter().map(|block| block.images.len()).sum::<usize>()
    }
}

impl CopySet<Vec<usize>> {
    /// The same of images that are rows of stored features, by their names in the data set: `strong/200102.jpg`. `path` is the
    /// file that has them, for errors.
    pub fn of_names(names: &[String], path: &Path) -> Result<Self, CopySetError> {
        let mut folders: BTreeMap<&Path, Vec<(&Path, usize)>> = BTreeMap::new();
        for (row, name) in names.iter().enumerate().filter(|(_, name)| name.ends_with(".jpg")) {
            let name = Path::new(name);
            folders.entry(name.parent().unwrap_or(Path::new(""))).or_default().push((name, row));
        }
        folders.values_mut().for_each(|images| images.sort());
        let mut neighbours = folders.values().flat_map(|images| images.windows(2));
        if let Some(twice) = neighbours.find(|pair| pair[0].0 == pair[1].0) {
            return Err(CopySetError::Twice { path: path.to_owned(), name: twice[0].0.to_owned() });
        }
        let listed = |folder: &Path| {
            let images = folders.get(folder).map_or(&[][..], Vec::as_slice);
            Ok(images.iter().map(|(name, _)| name.to_path_buf()).collect())
        };
        let row = |image: &PathBuf| {
            let folder = folders.get(image.parent().unwrap_or(Path::new("")))?;
            let place = folder.binary_search_by(|(name, _)| (*name).cmp(image.as_path())).ok()?;
            folder.get(place).map(|(_, row)| *row)
        };
        // Every name comes from the list itself.
        arranged(path, listed, |images| Ok(images.iter().filter_map(row).collect()))
    }
}

/// The data set, from what is in its folders.
fn arranged<S>(
    root: &Path,
    listed: impl Fn(&Path) -> Result<Vec<PathBuf>, CopySetError>,
    of: impl Fn(&[PathBuf]) -> Result<S, CopySetError>,
) -> Result<CopySet<S>, CopySetError> {
    let originals = listed(Path::new(ORIGINAL))?;
    if originals.is_empty() {
        return Err(CopySetError::NoOriginals { path: root.to_owned() });
    }
    let itself = || (0..originals.len() as u32).map(|image| vec![image]).collect();
    let mut blocks = vec![Block { name: ORIGINAL.to_owned(), images: of(&originals)?, originals: itself() }];
    let strong = listed(Path::new(STRONG))?;
    if !strong.is_empty() {
        let mut made_from = Vec::with_capacity(strong.len());
        for copy in &strong {
            let is_of = |original: &&PathBuf| beginning(original) == beginning(copy);
            let found: Vec<u32> = originals.iter().zip(0..).filter(|(o, _)| is_of(o)).map(|(_, i)| i).collect();
            if found.is_empty() {
                return Err(CopySetError::Orphan { path: root.join(copy) });
            }
            made_from.push(found);
        }
        blocks.push(Block { name: STRONG.to_owned(), images: of(&strong)?, originals: made_from });
    }
    for (kind, strengths) in STRENGTHS {
        for strength in strengths {
            let name = format!("{kind}/{strength}");
            let copies = listed(&Path::new(kind).join(strength.to_string()))?;
            if copies.is_empty() {
                continue;
            }
            if copies.len() != originals.len() {
                let (images, originals) = (copies.len(), originals.len());
                return Err(CopySetError::Count { path: root.join(name), images, originals });
            }
            blocks.push(Block { name, images: of(&copies)?, originals: itself() });
        }
    }
    if blocks.len() < 2 {
        return Err(CopySetError::NoCopies { path: root.to_owned() });
    }
    Ok(CopySet { originals: of(&originals)?, blocks })
}

fn beginning(path: &Path) -> &[u8] {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    &name[..name.len().min(SHARED)]
}

/// The .jpg files of a folder below `root`, sorted by name; none where there is no such folder.
fn listed(root: &Path, folder: &Path) -> Result<Vec<PathBuf>, CopySetError> {
    let path = root.join(folder);
    let failed = |source| CopySetError::Io { path: path.clone(), source };
    let entries = match fs::read_dir(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && root.is_dir() => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        if name.as_encoded_bytes().ends_with(b".jpg") {
            found.push(folder.join(name));
        }
        if found.len() > MAX_IMAGES {
            return Err(CopySetError::TooMany { path });
        }
    }
    found.sort();
    Ok(found)
}

/// Names from a folder's own list stay in it.
fn source(root: &Path, paths: &[PathBuf]) -> Result<PathsSource, CopySetError> {
    PathsSource::new(root, paths.to_vec())
        .ok_or_else(|| CopySetError::Io { path: root.to_owned(), source: io::ErrorKind::InvalidInput.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(files: &[&str]) -> (tempfile::TempDir, Result<CopySet, CopySetError>) {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        let set = CopySet::open(folder.path());
        (folder, set)
    }

    #[test]
    fn copies_belong_to_their_originals() {
        let (_folder, set) = set(&[
            "original/200100.jpg",
            "original/200000.jpg",
            "original/readme.txt",
            "strong/200102.jpg",
            "strong/200001.jpg",
            "strong/200002.jpg",
            "crops/20/200000.jpg",
            "crops/20/200100.jpg",
            "crops/25/200000.jpg",
            "jpegqual/3/a.jpg",
            "jpegqual/3/b.jpg",
        ]);
        let set = set.unwrap();
        let named: Vec<(&str, usize)> = set.blocks.iter().map(|b| (b.name.as_str(), b.images.len())).collect();
        assert_eq!(named, [("original", 2), ("strong", 3), ("jpegqual/3", 2), ("crops/20", 2)]);
        assert_eq!((set.originals.name(0).as_str(), set.images()), ("original/200000.jpg", 11));
        assert_eq!(set.blocks[1].images.name(2), "strong/200102.jpg");
        assert_eq!(set.blocks[1].originals, [[0], [0], [1]]);
    }

    #[test]
    fn rows_of_stored_features_are_arranged_by_their_names() {
        let names = ["strong/200102.jpg", "original/200100.jpg", "x.txt", "crops/20/b.jpg", "original/200000.jpg"];
        let mut names = names.map(str::to_owned).to_vec();
        let count = CopySet::of_names(&names, Path::new("f.npy")).map(|_| ()).unwrap_err().to_string();
        assert_eq!(count, "f.npy/crops/20: 1 images, and there are 2 originals: each has one copy here");
        names.push("crops/20/a.jpg".to_owned());
        let set = CopySet::of_names(&names, Path::new("f.npy")).unwrap();
        assert_eq!(set.originals, [4, 1]);
        let blocks: Vec<(&str, &[usize])> = set.blocks.iter().map(|b| (b.name.as_str(), &b.images[..])).collect();
        assert_eq!(blocks, [("original", &[4, 1][..]), ("strong", &[0]), ("crops/20", &[5, 3])]);
        assert_eq!(set.blocks[1].originals, [[1]]);
        assert!(CopySet::of_names(&[], Path::new("f.npy")).is_err());
        names.push("crops/20/a.jpg".to_owned());
        let twice = CopySet::of_names(&names, Path::new("f.npy")).map(|_| ()).unwrap_err().to_string();
        assert_eq!(twice, "f.npy: crops/20/a.jpg is named twice");
    }

    #[test]
    fn what_is_missing_or_does_not_belong_is_named() {
        let said = |files: &[&str]| set(files).1.map(|_| ()).unwrap_err().to_string();
        assert!(said(&["strong/2001.jpg"]).contains("no .jpg files in `original`"));
        assert!(said(&["original/2001.jpg"]).contains("no copies"));
        assert!(said(&["original/200100.jpg", "strong/200201.jpg"]).contains("no original begins with the same 4"));
        let count = said(&["original/2001.jpg", "original/2002.jpg", "crops/10/2001.jpg"]);
        assert!(count.contains("1 images, and there are 2 originals"), "{count}");
        assert!(matches!(CopySet::open(Path::new("/no/such/folder")), Err(CopySetError::Io { .. })));
    }
}
