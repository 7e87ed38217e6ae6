//! `val_annotations.txt`, the way of Tiny-ImageNet to label held-out images that lie in one folder: a line for each image,
//! with its file name, its class and more behind TABs.

use super::OpenError;
use super::parts::HELD_OUT;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use text::{excerpt, unescape_name};

/// No such file is larger: Tiny-ImageNet's has a third of a megabyte.
const MOST_BYTES: u64 = 256 << 20;

/// The file in a folder of held-out images, where there is one.
pub(super) fn find(folder: &Path) -> Option<PathBuf> {
    HELD_OUT.iter().map(|part| folder.join(format!("{part}_annotations.txt"))).find(|path| path.is_file())
}

/// The class of every image, by file name.
pub(super) fn read(path: &Path) -> Result<HashMap<Vec<u8>, String>, OpenError> {
    let text = ::files::read_text_bounded(path, MOST_BYTES)
        .map_err(|source| OpenError::Io { path: path.to_path_buf(), source })?;
    parse(&text).map_err(|problem| OpenError::Format { path: path.to_path_buf(), problem })
}

/// Whether a file could be read and is something else: no classes behind TABs, no text, or far too much of it.
pub(super) fn is_of_another_form(error: &OpenError) -> bool {
    match error {
        OpenError::Format { .. } => true,
        OpenError::Io { source, .. } => matches!(source.kind(), ErrorKind::InvalidData | ErrorKind::FileTooLarge),
        _ => false,
    }
}

fn parse(text: &str) -> Result<HashMap<Vec<u8>, String>, String> {
    let mut classes = HashMap::new();
    let lines = text.strip_prefix('\u{feff}').unwrap_or(text).lines().zip(1..);
    for (line, number) in lines.filter(|(line, _)| !line.trim().is_empty()) {
        let mut fields = line.split('\t').map(str::trim);
        let (Some(name), Some(class)) = (fields.next(), fields.next().filter(|class| !class.is_empty())) else {
            return Err(format!("line {number} has no class behind a TAB: {}", excerpt(line)));
        };
        let before = classes.insert(unescape_name(name).into_owned(), class.to_owned());
        if before.is_some_and(|before| before != class) {
            return Err(format!("line {number} gives {} a second class", excerpt(name)));
        }
    }
    Ok(classes)
}

/// Parses bytes as such a file. For fuzzing.
pub(super) fn parse_bytes(bytes: &[u8]) {
    _ = std::str::from_utf8(bytes).map(parse);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_one_class() {
        let classes = parse("a.JPEG\tn01\t0\t0\t62\t54\n\nb.JPEG\tn02\n").unwrap();
        assert_eq!((classes.len(), &*classes[&b"b.JPEG"[..]]), (2, "n02"));
        assert!(parse("a.JPEG n01").unwrap_err().contains("line 1"));
        assert!(parse("a\tn01\na\tn02").unwrap_err().contains("line 2"));
    }
}
