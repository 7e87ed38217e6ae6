//! What to call an archive among others: the names of its images begin with it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use text::escape_name;

/// A name for each archive: that of its file, where no two have the same; otherwise the path below the folder that all of
/// them share, so that `a/0.tar` and `b/0.tar` stay two.
pub(super) fn names(files: &[PathBuf]) -> Vec<String> {
    let name = |path: &Path| escape_name(path.as_os_str().as_encoded_bytes()).into_owned();
    let short = |file: &PathBuf| name(Path::new(file.file_name().unwrap_or_default()));
    let names: Vec<String> = files.iter().map(short).collect();
    if names.iter().collect::<HashSet<_>>().len() == names.len() {
        return names;
    }
    let folder = |file: &PathBuf| file.parent().unwrap_or(Path::new("")).to_path_buf();
    let mut shared = files.first().map(folder).unwrap_or_default();
    for file in files {
        while !file.starts_with(&shared) {
            // Every path begins with the empty one.
            if !shared.pop() {
                shared = PathBuf::new();
            }
        }
    }
    files.iter().map(|file| name(file.strip_prefix(&shared).unwrap_or(file))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_called_by_their_file_names_unless_two_have_the_same() {
        let names = |files: &[&str]| names(&files.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(names(&["d/a/0.tar", "d/b/1.tar"]), ["0.tar", "1.tar"]);
        assert_eq!(names(&["d/a/0.tar", "d/b/0.tar", "d/1.tar"]), ["a/0.tar", "b/0.tar", "1.tar"]);
        assert_eq!(names(&["/x/0.tar", "y/0.tar"]), ["/x/0.tar", "y/0.tar"]);
        assert!(names(&[]).is_empty());
    }
}
