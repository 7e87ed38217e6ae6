//! Images whose files a protocol names itself, in the order of the protocol.

use super::{Fingerprint, ReadError, Source, Stored, describe, files};
use crate::decode::DecodeLimits;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;
use text::shown;

/// Files below one folder, in a given order, without labels.
pub struct PathsSource {
    root: PathBuf,
    paths: Vec<PathBuf>,
    fingerprint: OnceLock<u64>,
}

impl PathsSource {
    /// These files, by their paths from `root` on. None where one of them would lead out of `root`: such a path comes from a
    /// file, and is not trusted.
    pub fn new(root: &Path, paths: Vec<PathBuf>) -> Option<Self> {
        let stays = |path: &PathBuf| {
            let mut parts = path.components().peekable();
            parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
        };
        let root = root.to_path_buf();
        paths.iter().all(stays).then_some(Self { root, paths, fingerprint: OnceLock::new() })
    }

    /// The first file that is not there, and how many are not.
    pub fn missing(&self) -> Option<(&Path, usize)> {
        let mut missing = self.paths.iter().filter(|path| !self.root.join(path).is_file());
        let first = missing.next()?;
        Some((first, 1 + missing.count()))
    }

    fn path(&self, index: usize) -> PathBuf {
        self.root.join(&self.paths[index])
    }
}

impl Source for PathsSource {
    fn len(&self) -> usize {
        self.paths.len()
    }

    fn fetch(&self, index: usize, limits: &DecodeLimits, bytes: &mut Vec<u8>) -> Result<Stored, ReadError> {
        if index >= self.len() {
            return Err(ReadError::NoSuchImage { index, len: self.len() });
        }
        files::read(&self.path(index), || self.name(index), limits, bytes)
    }

    fn label(&self, _: usize) -> Option<u32> {
        None
    }

    fn class_names(&self) -> &[String] {
        &[]
    }

    fn name(&self, index: usize) -> String {
        self.paths.get(index).map_or_else(|| format!("#{index}"), |path| shown(path).into_owned())
    }

    fn describe(&self) -> String {
        describe(shown(&self.root), self)
    }

    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut hash = Fingerprint::new();
            let sizes = files::sizes(self.len(), |index| self.path(index));
            for (path, size) in self.paths.iter().zip(sizes) {
                hash.add_entry(path.as_os_str().as_encoded_bytes(), size, None);
            }
            hash.add_contents(&files::contents(self.len(), |index| self.path(index)));
            hash.finish()
        })
    }

    fn stored_bytes(&self, index: usize) -> Option<u64> {
        (index < self.len()).then(|| files::size_of(&self.path(index))).flatten()
    }

    fn content_digest(&self, index: usize) -> Option<u64> {
        (index < self.len()).then(|| files::content_of(&self.path(index)).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leads_out_of_the_folder_is_refused() {
        let root = Path::new("photos");
        for path in ["../x.jpg", "/etc/passwd", "a/../../b.jpg", "./a.jpg", "a/..", "", "."] {
            assert!(PathsSource::new(root, vec!["fine.jpg".into(), path.into()]).is_none(), "{path}");
        }
        assert!(PathsSource::new(root, vec!["a.jpg".into(), "jpg/b.jpg".into(), "c..d".into()]).is_some());
    }

    #[test]
    fn files_are_read_in_the_order_given_and_missing_ones_are_counted() {
        let folder = std::env::temp_dir().join(format!("data-paths-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["a", "b"] {
            std::fs::write(folder.join(name), name).unwrap();
        }
        let of = |names: &[&str]| PathsSource::new(&folder, names.iter().map(PathBuf::from).collect()).unwrap();
        let source = of(&["b", "a"]);
        let mut bytes = Vec::new();
        source.fetch(0, &DecodeLimits::default(), &mut bytes).unwrap();
        assert_eq!((bytes.as_slice(), source.name(1).as_str(), source.missing()), (&b"b"[..], "a", None));
        assert_ne!(source.fingerprint(), of(&["a", "b"]).fingerprint());
        assert_eq!(of(&["x", "a", "y"]).missing(), Some((Path::new("x"), 2)));
        assert!(matches!(source.fetch(2, &DecodeLimits::default(), &mut bytes), Err(ReadError::NoSuchImage { .. })));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
