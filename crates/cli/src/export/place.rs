//! The folder of an export: new, or one that an earlier export has written, and filled beside its place first.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::ExportError;
use crate::error::CliError;
use crate::output_file::{self, Input};

/// A folder that may be written.
#[derive(Debug)]
pub struct Folder {
    out: PathBuf,
    files: &'static [&'static str],
    /// Whether it is there, with nothing in it but what an export writes.
    exists: bool,
}

/// A folder that is being filled, under another name.
#[derive(Debug)]
pub struct Filling {
    folder: Folder,
    unfinished: PathBuf,
}

impl Folder {
    /// An error unless `out` can become a folder of these files, and nothing else is lost.
    pub fn check(out: &Path, files: &'static [&'static str], force: bool, inputs: &[Input]) -> Result<Self, CliError> {
        // From here on the path itself: not what was typed, which may end in a slash.
        let out = &output_file::check_new_folder(out, inputs)?;
        let fail = |what: &str| {
            CliError::from(ExportError::Folder { path: text::shown(out).into_owned(), what: what.to_owned() })
        };
        if fs::symlink_metadata(out).is_ok_and(|about| about.is_symlink()) {
            return Err(fail("is a link, and a folder is to be written; give another --out"));
        }
        let entries = match fs::read_dir(out) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self { out: out.to_owned(), files, exists: false });
            }
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                return Err(fail("is a file, and a folder is to be written; give another --out"));
            }
            entries => entries.map_err(|error| fail(&format!("cannot be read: {error}")))?,
        };
        let names: Vec<_> = entries.filter_map(Result::ok).map(|entry| entry.file_name()).collect();
        let is_ours = names.iter().all(|name| files.iter().any(|file| *file == name.as_os_str()))
            && output_file::is_export(&out.join("model.safetensors"));
        match (names.is_empty(), is_ours, force) {
            (true, _, _) | (_, true, true) => Ok(Self { out: out.to_owned(), files, exists: true }),
            (_, true, false) => {
                Err(fail("exists already and is left as it is. --force replaces it; or give another --out"))
            }
            (_, false, _) => Err(fail("has other files in it, and is left as it is. Give another --out")),
        }
    }

    /// Makes a folder beside it to be filled.
    pub fn begin(self) -> Result<Filling, CliError> {
        let unfinished = files::unfinished_path(&self.out);
        fs::create_dir(&unfinished).map_err(|source| failed(&unfinished, source))?;
        Ok(Filling { folder: self, unfinished })
    }
}

impl Filling {
    /// Where it is now.
    pub fn root(&self) -> PathBuf {
        self.unfinished.clone()
    }

    /// A file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.unfinished.join(name)
    }

    /// Writes a file in it.
    pub fn write(&self, name: &str, write: &dyn Fn(&mut dyn Write) -> io::Result<()>) -> Result<(), CliError> {
        let path = self.path(name);
        files::replace(&path, |file| write(file)).map_err(|source| failed(&path, source))
    }

    /// Puts it into its place. What is there stays until the new one stands.
    pub fn finish(self) -> Result<(), CliError> {
        let Folder { out, files, exists } = &self.folder;
        let fail = |source| failed(out, source);
        let aside = files::unfinished_path(out);
        if *exists {
            fs::rename(out, &aside).map_err(fail)?;
        }
        if let Err(source) = fs::rename(&self.unfinished, out) {
            if *exists {
                _ = fs::rename(&aside, out);
            }
            return Err(fail(source));
        }
        files::sync_folder_of(out).map_err(fail)?;
        if *exists {
            for name in *files {
                files::remove_if_there(&aside.join(name)).map_err(fail)?;
            }
            // What somebody has put there in the meantime stays, beside the new one.
            _ = fs::remove_dir(&aside);
        }
        Ok(())
    }
}

impl Drop for Filling {
    /// What was not finished goes: it is a copy.
    fn drop(&mut self) {
        if self.unfinished.exists() {
            _ = fs::remove_dir_all(&self.unfinished);
        }
    }
}

fn failed(path: &Path, source: io::Error) -> CliError {
    ExportError::Io { path: text::shown(path).into_owned(), source }.into()
}
