//! Folders of pictures that a command writes: no picture is replaced without `--force`, nothing but a picture is replaced at
//! all, and nothing is written where the command reads or a training writes. A picture is there completely or not at all, so
//! that what was drawn before an interruption stays.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::CliError;
use crate::output_file::{self, Input};

/// Why a folder of pictures is refused.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct PicturesError {
    what: String,
}

/// A folder that pictures may be written into.
#[derive(Debug)]
pub struct Pictures {
    root: PathBuf,
}

impl Pictures {
    /// An error unless pictures of these names, relative to the folder, may be written into `out`, which `flag` asks for. The
    /// folder and those between are made.
    pub fn check(
        out: &Path,
        flag: &'static str,
        names: &[PathBuf],
        force: bool,
        inputs: &[Input],
    ) -> Result<Self, CliError> {
        // The messages of single files speak of the usual flag.
        let refused = |what: String| PicturesError { what: what.replace("--out", flag) };
        let place = output_file::check_new_folder(out, inputs).map_err(|error| refused(error.to_string()))?;
        let say = |path: &Path, what: &str| refused(format!("{}: {what}", text::shown(path)));
        if fs::symlink_metadata(&place).is_ok_and(|about| !about.is_dir()) {
            return Err(say(out, "is a file or a link, and a folder is to be filled. Give another --out").into());
        }
        let make = |folder: &Path| {
            fs::create_dir_all(folder)
                .map_err(|error| say(folder, &format!("cannot be made: {error}. Give another --out")))
        };
        make(&place)?;
        for name in names {
            let path = place.join(name);
            let about = match fs::symlink_metadata(&path) {
                Ok(about) => about,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(say(&path, &format!("cannot be accessed: {error}")).into()),
            };
            if !about.is_file() || !output_file::is_png(&path) {
                return Err(say(&path, "is no picture, and is left as it is. Give another --out").into());
            }
            if !force {
                let what = "exists already and is left as it is. --force replaces it; or give another --out";
                return Err(say(&path, what).into());
            }
        }
        // Once for each folder: whether it can be made and written to is known before the work.
        let mut folders: Vec<&Path> = names.iter().filter_map(|name| name.parent()).collect();
        folders.dedup();
        for folder in folders {
            let folder = place.join(folder);
            make(&folder)?;
            if !folder.canonicalize().is_ok_and(|folder| folder.starts_with(&place)) {
                return Err(say(&folder, "is a link that leads elsewhere. Give another --out").into());
            }
            let trial = folder.join("trial.png");
            let tried = files::create_unfinished(&trial).and_then(|(_file, path)| files::remove_if_there(&path));
            tried.map_err(|error| say(&folder, &format!("cannot be written to: {error}. Give another --out")))?;
        }
        Ok(Self { root: place })
    }

    /// Writes one of the pictures.
    pub fn write(&self, name: &Path, png: &[u8]) -> Result<(), CliError> {
        let path = self.root.join(name);
        files::replace_with(&path, png).map_err(|source| CliError::Picture { path, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and so on";

    fn said(result: Result<Pictures, CliError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn pictures_are_replaced_with_force_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("masks");
        let names = [PathBuf::from("a/0.png"), PathBuf::from("b/0.png")];
        let check = |force: bool| Pictures::check(&out, "--save", &names, force, &[]);
        check(false).unwrap().write(&names[0], PNG).unwrap();
        assert_eq!(fs::read(out.join("a/0.png")).unwrap(), PNG);
        assert!(
            said(check(false)).contains("a/0.png: exists already") && said(check(false)).contains("another --save")
        );
        check(true).unwrap();
        let left: Vec<_> = fs::read_dir(out.join("a")).unwrap().collect();
        assert_eq!(left.len(), 1, "trying leaves nothing behind");
        fs::remove_file(out.join("a/0.png")).unwrap();
        fs::write(out.join("b/0.png"), "notes").unwrap();
        for force in [false, true] {
            assert!(said(check(force)).contains("is no picture"), "{force}");
        }
        assert_eq!(fs::read(out.join("b/0.png")).unwrap(), b"notes");
    }

    #[test]
    fn nothing_is_written_into_an_input_or_around_one() {
        let folder = tempfile::tempdir().unwrap();
        let frames = folder.path().join("davis/JPEGImages");
        fs::create_dir_all(&frames).unwrap();
        let inputs = [Input::file("--davis", &frames)];
        for out in [frames.clone(), frames.join("masks"), folder.path().join("davis")] {
            let refused = said(Pictures::check(&out, "--save", &[PathBuf::from("0.png")], true, &inputs));
            assert!(refused.contains("--davis") && refused.contains("--save"), "{refused}");
        }
        let beside = folder.path().join("davis/masks");
        Pictures::check(&beside, "--save", &[PathBuf::from("0.png")], false, &inputs).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_not_followed_out_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (out, elsewhere) = (folder.path().join("masks"), folder.path().join("elsewhere"));
        fs::create_dir(&elsewhere).unwrap();
        fs::create_dir(&out).unwrap();
        std::os::unix::fs::symlink(&elsewhere, out.join("a")).unwrap();
        let names = [PathBuf::from("a/0.png")];
        assert!(said(Pictures::check(&out, "--save", &names, true, &[])).contains("leads elsewhere"));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        assert!(said(Pictures::check(&link, "--save", &names, true, &[])).contains("is a file or a link"));
    }
}
