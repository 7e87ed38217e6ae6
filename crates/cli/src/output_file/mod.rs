//! What a command may write to: an existing file is replaced with `--force` only, and then by one of its own kind alone; an
//! input of the command never. A symbolic link stays, and what it leads to is written, as a shell does it. All of that is
//! known before the work begins, and so is whether the place can be written to.

mod input;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use data::Source;
use model::weights::WeightsFile;
use train::run::is_run;

pub use input::Input;

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
    /// The file holds other features than are asked for.
    #[error(
        "{}: holds other features already: {what}. It is left as it is. --force replaces it; or give another --out",
        text::shown(path)
    )]
    OtherFeatures {
        /// The file.
        path: PathBuf,
        /// In what they differ.
        what: String,
    },
    /// The file holds something that the command does not write.
    #[error(
        "{}: exists already and is no {}, so that --force does not replace it either. Move it away, or give another --out",
        text::shown(path),
        kind.name()
    )]
    OtherKind {
        /// The file.
        path: PathBuf,
        /// What the command writes.
        kind: Kind,
    },
    /// A symbolic link that leads nowhere.
    #[error("{}: is a link that leads nowhere; remove it, or give another --out", text::shown(path))]
    BrokenLink {
        /// The link.
        path: PathBuf,
    },
    /// A place where no file can be made.
    #[error("{}: cannot be written: {source}. Give an --out where you may write", text::shown(path))]
    NotWritable {
        /// The file to be written.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
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

/// What a command writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A matrix of NumPy.
    Npy,
    /// Features in a safetensors file.
    Features,
    /// Features in a parquet file.
    FeatureRows,
    /// The table of an `.npy` file's rows.
    FeatureTable,
    /// What is noted beside an `.npy` file.
    FeatureNote,
    /// A picture.
    Png,
    /// Weights in a safetensors file, as an export writes them.
    Weights,
    /// An ONNX file of this program.
    Onnx,
    /// A page of this program.
    Page,
    /// A drawing.
    Svg,
    /// Numbers in columns.
    Csv,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Npy => ".npy file of NumPy",
            Kind::Features => "safetensors file of features",
            Kind::FeatureRows => "parquet file of features",
            Kind::FeatureTable => "table of features, which is written beside the .npy",
            Kind::FeatureNote => "note of features, which is written beside the .npy",
            Kind::Png => "PNG picture",
            Kind::Weights => "safetensors file of an export",
            Kind::Onnx => "ONNX file of an export",
            Kind::Page => "report of this program",
            Kind::Svg => "SVG drawing",
            Kind::Csv => "table of numbers",
        }
    }

    /// Whether nothing but a file of this kind would be lost. An empty file holds nothing.
    fn may_replace(self, path: &Path) -> io::Result<bool> {
        let mut start = Vec::new();
        File::open(path)?.take(8).read_to_end(&mut start)?;
        Ok(start.is_empty()
            || match self {
                Kind::Npy => start.starts_with(b"\x93NUMPY"),
                Kind::Png => start == b"\x89PNG\r\n\x1a\n",
                Kind::Weights => is_export(path),
                // The first field says the version of the format, the next who wrote it.
                Kind::Onnx => is_onnx_of_ours(path)?,
                Kind::Page => is_page_of_ours(path)?,
                Kind::Svg => start.starts_with(b"<svg"),
                Kind::Csv => path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv")),
                Kind::Features => WeightsFile::open(path).is_ok_and(|file| is_features(file.metadata())),
                Kind::FeatureRows => files::parquet::metadata(path).is_ok_and(|said| is_features(&said)),
                Kind::FeatureTable => is_table(path)?,
                Kind::FeatureNote => is_note(path),
            })
    }
}

/// Whether metadata are those of features of this program.
fn is_features(metadata: &BTreeMap<String, String>) -> bool {
    metadata.get("format").is_some_and(|format| format == eval::FEATURES_FORMAT)
}

/// Whether a file is the note of an array of features.
fn is_note(path: &Path) -> bool {
    const LONGEST: u64 = 16 << 20;
    let said = |bytes: Vec<u8>| serde_json::from_slice::<BTreeMap<String, serde_json::Value>>(&bytes).ok();
    let said = files::read_bounded(path, LONGEST).ok().and_then(said);
    said.is_some_and(|said| said.get("format").is_some_and(|format| format == eval::FEATURES_FORMAT))
}

/// Whether a file is the table of an array of features: its columns, and no longer name of the last.
fn is_table(path: &Path) -> io::Result<bool> {
    let columns = eval::save::CSV_HEADER.as_bytes();
    let mut start = Vec::new();
    File::open(path)?.take(columns.len() as u64 + 1).read_to_end(&mut start)?;
    Ok(matches!(start.strip_prefix(columns), Some(b"\n" | b",")))
}

/// Whether a file is a PNG picture, or empty.
pub fn is_png(path: &Path) -> bool {
    Kind::Png.may_replace(path).unwrap_or(false)
}

/// Whether an export has written this file: our metadata, and neither a checkpoint nor features.
pub fn is_export(path: &Path) -> bool {
    let Ok(file) = WeightsFile::open(path) else { return false };
    let said = |key: &str| file.metadata().get(key).map(String::as_str);
    said("format") == Some("pt") && said("program_version").is_some_and(|version| version.starts_with("dino-vmf "))
}

/// Whether an export has written this ONNX file: its producer stands at the beginning.
fn is_onnx_of_ours(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?.take(64).read_to_end(&mut start)?;
    Ok(start.first() == Some(&0x08) && start.windows(8).any(|window| window == b"dino-vmf"))
}

/// Whether this program has written this page: it says so in its first line.
fn is_page_of_ours(path: &Path) -> io::Result<bool> {
    let first = report::page::FIRST_LINE.as_bytes();
    let mut start = Vec::new();
    File::open(path)?.take(first.len() as u64).read_to_end(&mut start)?;
    Ok(start == first)
}

/// The report in a run's own folder: the one file there that a command other than its training writes. An error where
/// something else has its name.
pub fn check_report_of_run(run: &Path) -> Result<PathBuf, OutputFileError> {
    let path = run.join(train::run::REPORT_FILE);
    match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(path),
        Err(source) => Err(OutputFileError::Inaccessible { path, source }),
        Ok(about) if !about.is_file() => Err(OutputFileError::OtherKind { path, kind: Kind::Page }),
        Ok(_) => match Kind::Page.may_replace(&path) {
            Ok(true) => Ok(path),
            Ok(false) => Err(OutputFileError::OtherKind { path, kind: Kind::Page }),
            Err(source) => Err(OutputFileError::Inaccessible { path, source }),
        },
    }
}

/// Where `out`, a folder, is to be written. An error if it lies in a run, or if it is, holds or lies in an input of the
/// command.
pub fn check_new_folder(out: &Path, inputs: &[Input]) -> Result<PathBuf, OutputFileError> {
    let path = out.to_owned();
    let Some(place) = place_of(out) else { return Err(OutputFileError::NoFolder { path }) };
    if let Some(run) = run_of(&place) {
        return Err(OutputFileError::InsideRun { path, run });
    }
    match inputs.iter().find(|input| input.holds(&place) || input.is_within(&place)) {
        Some(input) => Err(OutputFileError::IsInput { path, flag: input.flag, given: input.given.clone() }),
        None => Ok(place),
    }
}

/// The file to write for `out`, which is another where that is a link. An error unless it may be written: its folder
/// exists and takes files, and it is a new file, or one of this kind that is not an input and may be replaced because the
/// user said `force`.
pub fn check(out: &Path, kind: Kind, force: bool, inputs: &[Input]) -> Result<PathBuf, OutputFileError> {
    let path = out.to_owned();
    let Some(place) = place_of(out) else { return Err(OutputFileError::NoFolder { path }) };
    if let Some(run) = run_of(&place).or_else(|| run_of(&out.canonicalize().ok()?)) {
        return Err(OutputFileError::InsideRun { path, run });
    }
    match fs::symlink_metadata(out) {
        Err(error) if error.kind() == ErrorKind::NotFound => return writable(out, path),
        Err(source) => return Err(OutputFileError::Inaccessible { path, source }),
        Ok(_) if out.is_dir() => return Err(OutputFileError::IsFolder { path }),
        Ok(_) => {}
    }
    // A symbolic link is as good as the file that it leads to.
    let target = match out.canonicalize() {
        Ok(target) => target,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(OutputFileError::BrokenLink { path }),
        Err(source) => return Err(OutputFileError::Inaccessible { path, source }),
    };
    if let Some(input) = inputs.iter().find(|input| input.holds(&place) || input.holds(&target)) {
        return Err(OutputFileError::IsInput { path, flag: input.flag, given: input.given.clone() });
    }
    if !force {
        return Err(OutputFileError::Exists { path });
    }
    // Reading from a pipe or a terminal would wait.
    match target.is_file().then(|| kind.may_replace(&target)) {
        Some(Ok(true)) => {}
        Some(Err(source)) => return Err(OutputFileError::Inaccessible { path, source }),
        Some(Ok(false)) | None => return Err(OutputFileError::OtherKind { path, kind }),
    }
    let is_link = fs::symlink_metadata(out).is_ok_and(|about| about.is_symlink());
    writable(out, if is_link { target } else { path })
}

/// The file to write, if a file can be made beside it: that is how it comes to be.
fn writable(out: &Path, target: PathBuf) -> Result<PathBuf, OutputFileError> {
    let tried = files::create_unfinished(&target).and_then(|(_file, unfinished)| files::remove_if_there(&unfinished));
    tried.map(|()| target).map_err(|source| OutputFileError::NotWritable { path: out.to_owned(), source })
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
        let (listed, known) = (Path::new(&name).file_name(), [out.file_name(), target.file_name()]);
        known.contains(&listed) && folder.join(&name).canonicalize().is_ok_and(|p| p == target)
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
    fn a_path_beside_an_input_of_a_similar_name_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("photos");
        fs::create_dir(&data).unwrap();
        let out = folder.path().join("photos.npy");
        fs::write(&out, b"\x93NUMPY").unwrap();
        let inputs = [Input::file("--data", &data)];
        let check = |out: &Path, force: bool| check(out, Kind::Npy, force, &inputs);
        assert_eq!(check(&out, true).unwrap(), out);
        assert!(matches!(check(&out, false), Err(OutputFileError::Exists { .. })));
        assert!(matches!(check(&data, true), Err(OutputFileError::IsFolder { .. })));
    }

    #[test]
    fn a_file_of_another_kind_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("file");
        let may = |kind: Kind, content: &[u8]| {
            fs::write(&out, content).unwrap();
            let found = check(&out, kind, true, &[]);
            assert!(matches!(found, Ok(_) | Err(OutputFileError::OtherKind { .. })), "{found:?}");
            assert_eq!(fs::read(&out).unwrap(), content, "only looked at");
            found.is_ok()
        };
        let (npy, png) = (b"\x93NUMPY\x01\x00 and so on", b"\x89PNG\r\n\x1a\n and so on");
        assert!(may(Kind::Npy, npy) && !may(Kind::Npy, png) && !may(Kind::Npy, b"notes"));
        assert!(may(Kind::Png, png) && !may(Kind::Png, npy));
        let header = |format: &str| {
            let text = format!("{{\"__metadata__\":{{\"format\":\"{format}\"}}}}");
            [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
        };
        assert!(may(Kind::Features, &header(eval::FEATURES_FORMAT)));
        assert!(!may(Kind::Features, &header("pt")), "weights are no features");
        assert!(may(Kind::FeatureTable, b"row,name,label,class\n0,a,,\n") && !may(Kind::FeatureTable, b"row,name\n"));
        assert!(may(Kind::FeatureTable, b"row,name,label,class,kappa\n0,a,,,2\n"));
        for other in [&b"row,name,label,class_of_2026\n"[..], b"row,name,label,class", b"row,name,label,class\r\n"] {
            assert!(!may(Kind::FeatureTable, other), "a column of another name");
        }
        assert!(may(Kind::FeatureNote, b"{\"format\": \"dino-vmf features\", \"rows\": 3}"));
        assert!(!may(Kind::FeatureNote, b"{\"format\": \"mine\"}") && !may(Kind::FeatureNote, b"[1]"));
        let table = |format| files::parquet::TableWriter::new(Vec::new(), &[]).unwrap().finish(&[("format", format)]);
        assert!(may(Kind::FeatureRows, &table(eval::FEATURES_FORMAT).unwrap()));
        assert!(!may(Kind::FeatureRows, &table("sales").unwrap()), "a table of others");
        for kind in [Kind::Npy, Kind::Features, Kind::FeatureRows, Kind::FeatureTable, Kind::FeatureNote, Kind::Png] {
            assert!(may(kind, b""), "an empty file holds nothing");
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_a_link_leads_to_is_written_and_a_link_to_nowhere_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (target, link) = (root.join("far.npy"), root.join("link.npy"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(matches!(check(&link, Kind::Npy, true, &[]), Err(OutputFileError::BrokenLink { .. })));
        fs::write(&target, b"\x93NUMPY").unwrap();
        assert_eq!(check(&link, Kind::Npy, true, &[]).unwrap(), target);
        assert!(matches!(check(&link, Kind::Npy, false, &[]), Err(OutputFileError::Exists { .. })));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_folder_that_takes_no_files_is_found_at_once() {
        let refused = check(Path::new("/proc/x.npy"), Kind::Npy, false, &[]);
        assert!(matches!(refused, Err(OutputFileError::NotWritable { .. })), "{refused:?}");
        let folder = tempfile::tempdir().unwrap();
        check(&folder.path().join("x.npy"), Kind::Npy, false, &[]).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "trying leaves nothing behind");
    }
}
