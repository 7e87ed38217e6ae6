//! What a command may write to: an existing file is replaced with `--force` only, and an input of the command never.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use data::Source;
use train::run::is_run;

/// Why an output file is refused.
#[derive(Debug, thiserror::Error)]
pub enum OutputFileError {
    /// The folder of the file is missing.
    #[error("the folder of {} does not exist; make it first, or give another --out", text::shown(path))]
    NoFolder {
        /// The file to be written.
        path: PathBuf,
    },
    /// The path of a folder, where a file is to be written.
    #[error("{}: is a folder; --out takes the name of a file", text::shown(path))]
    IsFolder {
        /// The folder.
        path: PathBuf,
    },
    /// The file exists.
    #[error("{}: exists already and is left as it is. --force replaces it; or give another --out", text::shown(path))]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file is read by the same command.
    #[error(
        "{}: is part of {flag} {given}, which this command reads; it is never replaced. Give another --out",
        text::shown(path)
    )]
    IsInput {
        /// The file to be written.
        path: PathBuf,
        /// The flag that names the input.
        flag: &'static str,
        /// What was given to it.
        given: String,
    },
    /// A file of a run, or a new one beside its files.
    #[error(
        "{}: lies in the run {}, in which only its training writes. Give an --out elsewhere",
        text::shown(path),
        text::shown(run)
    )]
    InsideRun {
        /// The file to be written.
        path: PathBuf,
        /// The run's folder.
        run: PathBuf,
    },
    /// A new picture among the training images.
    #[error(
        "{}: lies inside --data {given}, and would be one of its images from then on. Give an --out elsewhere",
        text::shown(path)
    )]
    AmongImages {
        /// The file to be written.
        path: PathBuf,
        /// The data.
        given: String,
    },
    /// The file system does not say what is there.
    #[error("{}: cannot be accessed: {source}", text::shown(path))]
    Inaccessible {
        /// The file to be written.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Something that a command reads.
#[derive(Debug)]
pub struct Input {
    flag: &'static str,
    given: String,
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
        Self { flag: "--data", given: spec.to_owned(), files }
    }

    /// Whether a canonical path is one of its files, or would be if it were there.
    fn holds(&self, place: &Path) -> bool {
        let below = |folder: &Path| folder.canonicalize().is_ok_and(|folder| place.starts_with(folder));
        match &self.files {
            Files::None => false,
            Files::Below(path) => below(path),
            Files::Ending { folder, ending } => below(folder) && place.to_string_lossy().ends_with(ending),
        }
    }
}

/// An error unless `out` may be written: its folder exists, and it is a new file, or one that is not an input and may be
/// replaced because the user said `force`.
pub fn check(out: &Path, force: bool, inputs: &[Input]) -> Result<(), OutputFileError> {
    let path = out.to_owned();
    let Some(place) = place_of(out) else { return Err(OutputFileError::NoFolder { path }) };
    if let Some(run) = run_of(&place).or_else(|| run_of(&out.canonicalize().ok()?)) {
        return Err(OutputFileError::InsideRun { path, run });
    }
    match fs::symlink_metadata(out) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(OutputFileError::Inaccessible { path, source }),
        Ok(_) if out.is_dir() => return Err(OutputFileError::IsFolder { path }),
        Ok(_) => {}
    }
    // A symbolic link is as good as the file that it leads to; one that leads nowhere is only itself.
    let target = out.canonicalize().unwrap_or_else(|_| place.clone());
    if let Some(input) = inputs.iter().find(|input| input.holds(&place) || input.holds(&target)) {
        return Err(OutputFileError::IsInput { path, flag: input.flag, given: input.given.clone() });
    }
    if force { Ok(()) } else { Err(OutputFileError::Exists { path }) }
}

/// An error if `out`, a picture, would lie among the images of `data`, where it need not exist yet.
pub fn check_outside(out: &Path, data: &Input) -> Result<(), OutputFileError> {
    // What exists is for `check` to judge.
    match place_of(out) {
        Some(place) if !out.exists() && data.holds(&place) => {
            Err(OutputFileError::AmongImages { path: out.to_owned(), given: data.given.clone() })
        }
        _ => Ok(()),
    }
}

/// An error if `out` is a file that `data`, a text file, lists. Paths in it start at its folder.
pub fn check_unlisted(out: &Path, data: &str, source: &dyn Source) -> Result<(), OutputFileError> {
    let list = Path::new(data);
    let (true, Ok(target)) = (list.is_file(), out.canonicalize()) else { return Ok(()) };
    let folder = list.parent().unwrap_or(Path::new(""));
    let is_target = |name: String| {
        // The name first: a list may be long, and a look at the disk is slow.
        Path::new(&name).file_name() == out.file_name() && folder.join(&name).canonicalize().is_ok_and(|p| p == target)
    };
    if (0..source.len()).any(|index| is_target(source.name(index))) {
        let (path, given) = (out.to_owned(), data.to_owned());
        return Err(OutputFileError::IsInput { path, flag: "--data", given });
    }
    Ok(())
}

/// The folder of the run that a file lies in, itself or in a folder of it.
fn run_of(place: &Path) -> Option<PathBuf> {
    place.ancestors().skip(1).take(2).find(|folder| is_run(folder)).map(Path::to_owned)
}

/// The canonical path that a file has or would have; none without a folder for it.
fn place_of(path: &Path) -> Option<PathBuf> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = folder.canonicalize().ok().filter(|folder| folder.is_dir())?;
    Some(path.file_name().map_or(folder.clone(), |name| folder.join(name)))
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

    #[test]
    fn a_path_beside_an_input_of_a_similar_name_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("photos");
        fs::create_dir(&data).unwrap();
        let out = folder.path().join("photos.npy");
        fs::write(&out, "old").unwrap();
        let inputs = [Input::file("--data", &data)];
        assert!(check(&out, true, &inputs).is_ok());
        assert!(matches!(check(&out, false, &inputs), Err(OutputFileError::Exists { .. })));
        assert!(matches!(check(&data, true, &inputs), Err(OutputFileError::IsFolder { .. })));
    }
}
