//! A text file that lists images: one path a line, with or without a label.
//!
//! Labels stand after a TAB, in a column of a CSV, or, as class numbers, after a space. Which it is holds for the whole
//! file. Empty lines and lines that start with `#` are passed over. Relative paths start at the folder of the list. A
//! path may be written as [`text::escape_name`] does it. A file that is not there is a bad sample like any other; only if
//! none of the first few is, the list itself is wrong.

mod parse;
mod split;

use super::{Fingerprint, OpenError, ReadError, Source, Stored, describe, files};
use crate::decode::DecodeLimits;
use parse::Parsed;
pub(super) use split::in_folder;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use text::{escape_name, path_of, shown, thousands};

/// File name extensions of lists.
pub(super) const EXTENSIONS: [&str; 5] = ["txt", "csv", "tsv", "lst", "list"];

/// A text of this size is no list of images.
const TEXT_BYTES: u64 = 1 << 30;

/// Nor is one with lines of this length: no system has such paths.
const LINE_BYTES: u64 = 64 << 10;

/// Files that are looked for when a list is opened.
const TRIED: usize = 20;

/// The images of a list.
pub(super) struct ListSource {
    list: PathBuf,
    /// What relative paths start at.
    folder: PathBuf,
    parsed: Parsed,
    fingerprint: OnceLock<u64>,
}

impl ListSource {
    /// Reads a list.
    pub(super) fn open(list: &Path) -> Result<Self, OpenError> {
        let problem = |problem: String| OpenError::Format { path: list.to_path_buf(), problem };
        let refused = |source| OpenError::Io { path: list.to_path_buf(), source };
        let bytes = read_lines(list).map_err(refused)?;
        let extension = list.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        let parsed = parse_bytes(&bytes, &extension).map_err(problem)?;
        drop(bytes);
        let count = parsed.paths.len();
        if count == 0 {
            return Err(problem(
                "lists no images. Write one path a line, with a label after it if you like".to_owned(),
            ));
        }
        if count > u32::MAX as usize {
            return Err(OpenError::TooMany { path: list.to_path_buf(), count });
        }
        let folder = list.parent().map(Path::to_path_buf).unwrap_or_default();
        let source = Self { list: list.to_path_buf(), folder, parsed, fingerprint: OnceLock::new() };
        if !(0..count.min(TRIED)).any(|index| source.path(index).exists()) {
            let tried = source.path(0);
            return Err(problem(format!(
                "none of its first {} image(s) is there; looked for {}. Relative paths start at the folder of the list",
                count.min(TRIED),
                shown(&tried)
            )));
        }
        Ok(source)
    }

    /// Images below `root` that are known already, with their labels; `list` is what said so.
    pub(super) fn of_entries<'a>(
        list: &Path,
        root: &Path,
        paths: impl Iterator<Item = &'a str>,
        labels: Vec<u32>,
        class_names: Vec<String>,
    ) -> Self {
        let mut parsed = Parsed { labels, class_names, ..Default::default() };
        paths.for_each(|path| parsed.paths.push(path));
        Self { list: list.to_path_buf(), folder: root.to_path_buf(), parsed, fingerprint: OnceLock::new() }
    }

    fn path(&self, index: usize) -> PathBuf {
        let written = self.parsed.paths.get(index).unwrap_or_default();
        self.undone(written).unwrap_or_else(|| self.folder.join(written))
    }

    /// The file that a path with escapes stands for; none for a path without, or where there is only a file that is really
    /// called so.
    fn undone(&self, written: &str) -> Option<PathBuf> {
        let is_escaped = text::unescape_name(written) != written.as_bytes();
        is_escaped.then(|| self.folder.join(path_of(written))).filter(|path| path.exists())
    }
}

/// Reads a text line by line: one that is no list is refused at its first endless line.
fn read_lines(list: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(list)?;
    let too_large = || {
        let problem = format!("is larger than {} bytes: no list of images", thousands(TEXT_BYTES));
        Err(io::Error::new(io::ErrorKind::FileTooLarge, problem))
    };
    if file.metadata()?.len() > TEXT_BYTES {
        return too_large();
    }
    let mut input = BufReader::with_capacity(1 << 18, file);
    let (mut text, mut line, mut number) = (Vec::new(), Vec::new(), 0);
    while ::files::read_line_bounded(&mut input, &mut line, &mut number, LINE_BYTES)? {
        if (text.len() + line.len()) as u64 > TEXT_BYTES {
            return too_large();
        }
        text.extend_from_slice(&line);
    }
    Ok(text)
}

/// Reads the bytes of a list.
fn parse_bytes(bytes: &[u8], extension: &str) -> Result<Parsed, String> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err("is text in UTF-16. Save it as UTF-8".to_owned());
    }
    if bytes.contains(&0) {
        return Err("is not a text, although its name says so".to_owned());
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count() + 1;
        format!("line {line} is not UTF-8. Save the list as UTF-8; a byte of a name that is none is written \\xNN")
    })?;
    parse::parse(text, extension)
}

/// Parses bytes as a list of each kind. For fuzzing.
pub(super) fn parse_anything(bytes: &[u8]) {
    for extension in ["txt", "csv", "tsv"] {
        _ = parse_bytes(bytes, extension);
    }
}

impl Source for ListSource {
    fn len(&self) -> usize {
        self.parsed.paths.len()
    }

    fn fetch(&self, index: usize, limits: &DecodeLimits, bytes: &mut Vec<u8>) -> Result<Stored, ReadError> {
        if index >= self.len() {
            return Err(ReadError::NoSuchImage { index, len: self.len() });
        }
        files::read(&self.path(index), || self.name(index), limits, bytes)
    }

    fn label(&self, index: usize) -> Option<u32> {
        self.parsed.labels.get(index).copied()
    }

    fn class_names(&self) -> &[String] {
        &self.parsed.class_names
    }

    fn name(&self, index: usize) -> String {
        let Some(written) = self.parsed.paths.get(index) else { return format!("#{index}") };
        if text::is_plain(written) && self.undone(written).is_some() {
            return written.to_owned();
        }
        escape_name(written.as_bytes()).into_owned()
    }

    fn describe(&self) -> String {
        describe(shown(&self.list), self)
    }

    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut hash = Fingerprint::new();
            for (index, size) in files::sizes(self.len(), |index| self.path(index)).into_iter().enumerate() {
                hash.add_entry(self.parsed.paths.get(index).unwrap_or_default().as_bytes(), size, self.label(index));
            }
            hash.add_contents(&files::contents(self.len(), |index| self.path(index)));
            hash.add_classes(&self.parsed.class_names);
            hash.finish()
        })
    }

    fn stored_bytes(&self, index: usize) -> Option<u64> {
        (index < self.len()).then(|| files::size_of(&self.path(index))).flatten()
    }

    fn content_digest(&self, index: usize) -> Option<u64> {
        (index < self.len()).then(|| files::content_of(&self.path(index)).ok()).flatten()
    }

    fn remarks(&self) -> &[String] {
        &self.parsed.remarks
    }
}
