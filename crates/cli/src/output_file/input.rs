//! What a command reads, so that it does not write there.

use std::path::{Path, PathBuf};

/// Something that a command reads.
#[derive(Debug)]
pub struct Input {
    /// The flag that names it.
    pub(super) flag: &'static str,
    /// What was given to the flag.
    pub(super) given: String,
    files: Files,
}

/// The files of an input.
#[derive(Debug)]
enum Files {
    /// Made by the program.
    None,
    /// A file, or everything below a folder.
    Below(PathBuf),
    /// Those below a folder whose names end so: how far a pattern is followed here. It may match fewer.
    Ending { folder: PathBuf, ending: String },
}

impl Input {
    /// A file, or a folder with everything in it.
    pub fn file(flag: &'static str, path: &Path) -> Self {
        Self { flag, given: text::shown(path).into_owned(), files: Files::Below(path.to_owned()) }
    }

    /// What was given to `--data`: a path, a pattern of paths, or the images that the program makes.
    pub fn data(spec: &str) -> Self {
        Self::images("--data", spec)
    }

    /// Images that another flag names as `--data` does.
    pub fn images(flag: &'static str, spec: &str) -> Self {
        const SPECIAL: [char; 4] = ['*', '?', '{', '}'];
        let path = Path::new(spec);
        let files = match (spec.find(SPECIAL), spec.rfind(SPECIAL)) {
            _ if spec == "synthetic" || spec.starts_with("synthetic:") => Files::None,
            (Some(first), Some(last)) if !path.exists() => {
                let folder = spec[..first].rfind('/').map_or("", |slash| &spec[..=slash]);
                Files::Ending { folder: Path::new(".").join(folder), ending: spec[last + 1..].to_owned() }
            }
            _ => Files::Below(path.to_owned()),
        };
        Self { flag, given: spec.to_owned(), files }
    }

    /// Whether it is a file or folder below a canonical path, or that itself.
    pub(super) fn is_within(&self, place: &Path) -> bool {
        let within = |path: &Path| path.canonicalize().is_ok_and(|path| path.starts_with(place));
        match &self.files {
            Files::None => false,
            Files::Below(path) | Files::Ending { folder: path, .. } => within(path),
        }
    }

    /// Whether a canonical path is one of its files, or would be if it were there.
    pub(super) fn holds(&self, place: &Path) -> bool {
        let below = |folder: &Path| folder.canonicalize().is_ok_and(|folder| place.starts_with(folder));
        match &self.files {
            Files::None => false,
            Files::Below(path) => below(path),
            Files::Ending { folder, ending } => below(folder) && place.to_string_lossy().ends_with(ending),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_protects_the_files_that_end_as_it_does() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap();
        let holds = |pattern: &str, name: &str| {
            Input::data(&format!("{root}/{pattern}")).holds(&folder.path().canonicalize().unwrap().join(name))
        };
        assert!(holds("shard-{000..009}.tar", "shard-003.tar"));
        assert!(!holds("shard-*.tar", "features.npy"));
        assert!(holds("{a,b}/*.png", "a/x.png"));
        assert!(holds("{a.png,b.png}", "b.png"));
        assert!(holds("*", "features.npy"));
        assert!(!Input::data("synthetic").holds(Path::new("/synthetic")));
        assert!(!Input::data("synthetic:train=8").holds(&folder.path().canonicalize().unwrap()));
    }
}
