//! What the layouts share: a split file that is read with care, and a source of the images that it names.

use super::super::list::ListSource;
use super::super::{OpenError, Source, parallel};
use std::collections::BTreeSet;
use std::path::{Component, Path};
use std::sync::Arc;
use text::{count, excerpt, shown};

/// No split file is larger: that of Food-101 has a few megabytes.
const MOST_BYTES: u64 = 64 << 20;

/// Images by path below a root, with their classes by name or number.
pub(super) type Named = Vec<(String, String)>;

/// The text of a split file.
pub(super) fn text_of(path: &Path) -> Result<String, OpenError> {
    let text = ::files::read_text_bounded(path, MOST_BYTES)
        .map_err(|source| OpenError::Io { path: path.to_path_buf(), source })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Every line that says something, as `of_line` understands it; a line that it does not is an error.
pub(super) fn lines<T>(path: &Path, of_line: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, OpenError> {
    let text = text_of(path)?;
    let numbered = text.lines().map(str::trim).zip(1..).filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    let parsed = numbered.map(|(line, number)| {
        of_line(line).ok_or_else(|| broken(path, format!("line {number} is not understood: {}", excerpt(line))))
    });
    parsed.collect()
}

/// An error about what a file holds.
pub(super) fn broken(path: &Path, problem: String) -> OpenError {
    OpenError::Format { path: path.to_path_buf(), problem }
}

/// All classes that occur, sorted.
pub(super) fn classes_of(sets: &[&Named]) -> Vec<String> {
    let classes: BTreeSet<&String> = sets.iter().flat_map(|set| set.iter().map(|(_, class)| class)).collect();
    classes.into_iter().cloned().collect()
}

/// A source of the images that `list` names below `root`. Every one has to be there: a test on some of them is another
/// test. Paths that lead elsewhere are refused.
pub(super) fn source(root: &Path, list: &Path, named: Named, classes: &[String]) -> Result<Arc<dyn Source>, OpenError> {
    if named.is_empty() {
        return Err(broken(list, "names no images".to_owned()));
    }
    if let Some((path, _)) = named.iter().find(|(path, _)| !is_inside(path)) {
        return Err(broken(list, format!("names a file outside of the data set: {}", excerpt(path))));
    }
    let mut labels = Vec::with_capacity(named.len());
    for (path, class) in &named {
        let label = classes.iter().position(|known| known == class);
        let Some(label) = label else {
            return Err(broken(list, format!("{} is of class {}, which is none", excerpt(path), excerpt(class))));
        };
        labels.push(label as u32);
    }
    let is_there = parallel::map(named.len(), 256, |i| root.join(&named[i].0).is_file());
    let missing: Vec<&str> =
        named.iter().zip(is_there).filter(|(_, there)| !there).map(|((path, _), _)| &**path).collect();
    if let Some(first) = missing.first() {
        let first = root.join(first);
        let problem = format!("names {} not there, the first: {}", of_missing(missing.len()), shown(&first));
        return Err(broken(list, problem));
    }
    let paths = named.iter().map(|(path, _)| path.as_str());
    Ok(Arc::new(ListSource::of_entries(list, root, paths, labels, classes.to_vec())))
}

fn of_missing(images: usize) -> String {
    format!("{} that {}", count(images, "image"), if images == 1 { "is" } else { "are" })
}

fn is_inside(path: &str) -> bool {
    !path.is_empty()
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}
