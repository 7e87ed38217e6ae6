//! Files whose names match `*` and `?`, and folders at any depth for `**`.

use super::super::OpenError;
use super::MOST_FILES;
use std::collections::{BTreeSet, HashSet};
use std::fs::{self, ReadDir};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Files whose path matches, sorted. A star matches within one part of the path; `**` as a part of its own stands for any
/// number of folders, none included.
pub(super) fn glob(pattern: &str) -> Result<Vec<PathBuf>, OpenError> {
    let mut found = vec![PathBuf::new()];
    for part in Path::new(pattern).components() {
        let part = part.as_os_str();
        let Some(wild) = part.to_str().filter(|part| part.contains(['*', '?'])) else {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        };
        let mut next = Vec::new();
        if wild == "**" {
            found = folders_below(found, pattern)?;
            continue;
        }
        for folder in found {
            for entry in entries(&folder)?.into_iter().flatten() {
                let name = entry.map_err(|source| OpenError::Io { path: folder.clone(), source })?.file_name();
                let hidden = name.as_encoded_bytes().starts_with(b".") && !wild.starts_with('.');
                if !hidden && matches(wild.as_bytes(), name.as_encoded_bytes()) {
                    next.push(folder.join(name));
                }
                // Before the next star multiplies them: `*/../*/../*` would never end.
                if next.len() > MOST_FILES {
                    return Err(too_many(pattern));
                }
            }
        }
        found = next;
    }
    if Path::new(pattern).ends_with("**") {
        found = files_in(&found, pattern)?;
    }
    found.retain(|path| path.is_file());
    found.sort_unstable();
    // `**/**` finds a file in more than one way.
    found.dedup();
    Ok(found)
}

fn too_many(pattern: &str) -> OpenError {
    let problem = format!("stands for more than {MOST_FILES} files and folders");
    OpenError::Format { path: PathBuf::from(pattern), problem }
}

/// These folders and all below them that are not hidden. Every real folder comes once, whatever links lead to it, which
/// also ends every circle; links wait until the plain folders are done, so that a file goes by its plain path.
fn folders_below(roots: Vec<PathBuf>, pattern: &str) -> Result<Vec<PathBuf>, OpenError> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    let mut plain: BTreeSet<PathBuf> = roots.into_iter().collect();
    let mut links: BTreeSet<PathBuf> = BTreeSet::new();
    while let Some(folder) = plain.pop_first().or_else(|| links.pop_first()) {
        let Some(entries) = entries(&folder)? else { continue };
        let real = fs::canonicalize(readable(&folder));
        if !seen.insert(real.map_err(|source| OpenError::Io { path: folder.clone(), source })?) {
            continue;
        }
        for entry in entries {
            let entry = entry.map_err(|source| OpenError::Io { path: folder.clone(), source })?;
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => _ = plain.insert(folder.join(name)),
                Ok(kind) if kind.is_symlink() && entry.path().is_dir() => _ = links.insert(folder.join(name)),
                _ => {}
            }
        }
        found.push(folder);
        if found.len() + plain.len() + links.len() > MOST_FILES {
            return Err(too_many(pattern));
        }
    }
    Ok(found)
}

/// All files directly in these folders that are not hidden.
fn files_in(folders: &[PathBuf], pattern: &str) -> Result<Vec<PathBuf>, OpenError> {
    let mut found = Vec::new();
    for folder in folders {
        for entry in entries(folder)?.into_iter().flatten() {
            let name = entry.map_err(|source| OpenError::Io { path: folder.clone(), source })?.file_name();
            if !name.as_encoded_bytes().starts_with(b".") {
                found.push(folder.join(name));
            }
        }
        if found.len() > MOST_FILES {
            return Err(too_many(pattern));
        }
    }
    Ok(found)
}

/// What a folder holds; none where there is no such folder. One that cannot be read is an error: to pass over it would be
/// to train on less than was asked for, without a word.
fn entries(folder: &Path) -> Result<Option<ReadDir>, OpenError> {
    match fs::read_dir(readable(folder)) {
        Ok(entries) => Ok(Some(entries)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(source) => Err(OpenError::Io { path: folder.to_path_buf(), source }),
    }
}

/// The path to read a folder by: the beginning of a relative pattern is the current folder.
fn readable(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

/// Whether a name matches a pattern of `*` and `?`. Steps back to the last star only, so that time is bounded by the
/// product of both lengths.
pub(super) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[n] => (p, n) = (p + 1, n + 1),
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (p, n) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::super::expand;
    use super::*;

    #[test]
    fn stars_that_multiply_are_stopped() {
        let root = std::env::temp_dir().join(format!("data-pattern-{}", std::process::id()));
        (0..20).for_each(|i| fs::create_dir_all(root.join(i.to_string())).unwrap());
        let found = expand(&format!("{}/*{}", root.display(), "/../*".repeat(30)));
        fs::remove_dir_all(&root).unwrap();
        let message = found.unwrap_err().to_string();
        assert!(message.contains("stands for more than 100000 files and folders"), "{message}");
    }

    #[test]
    fn two_stars_stand_for_folders_at_any_depth_and_for_none() {
        let root = std::env::temp_dir().join(format!("data-depth-{}", std::process::id()));
        for file in ["0.tar", "a/1.tar", "a/b/2.tar", "a/b/c/3.tar", "a/b/4.txt", ".hidden/5.tar"] {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"").unwrap();
        }
        // Two circles, and a link to a folder that is found anyway.
        #[cfg(unix)]
        for (to, at) in [(&root.join("a/b/c"), "a/b/c/loop"), (&root.join("a"), "a/self"), (&root.join("a/b"), "again")]
        {
            std::os::unix::fs::symlink(to, root.join(at)).unwrap();
        }
        let found = |pattern: &str| -> Vec<String> {
            let found = expand(root.join(pattern).to_str().unwrap()).unwrap();
            found.iter().map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned()).collect()
        };
        let all = ["0.tar", "a/1.tar", "a/b/2.tar", "a/b/c/3.tar"];
        let results = [
            (found("**/*.tar"), &all[..]),
            (found("**/**/*.tar"), &all),
            (found("a/**/*.tar"), &all[1..]),
            (found("**/b/**/*.tar"), &all[2..]),
            (found("a/b/**"), &["a/b/2.tar", "a/b/4.txt", "a/b/c/3.tar"]),
        ];
        fs::remove_dir_all(&root).unwrap();
        for (found, expected) in results {
            assert_eq!(found, expected);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_cannot_be_read_is_an_error() {
        let root = std::env::temp_dir().join(format!("data-unreadable-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        // A link to itself: unlike rights, it stops every user.
        std::os::unix::fs::symlink(root.join("loop"), root.join("loop")).unwrap();
        let expanded = ["loop/**/*.tar", "loop/*.tar", "loop/**", "gone/**/*.tar"]
            .map(|pattern| expand(root.join(pattern).to_str().unwrap()));
        fs::remove_dir_all(&root).unwrap();
        let [below, beside, files, gone] = expanded;
        for error in [below, beside, files].map(Result::unwrap_err) {
            assert!(matches!(&error, OpenError::Io { path, .. } if path.ends_with("loop")), "{error}");
        }
        assert!(gone.unwrap_err().to_string().contains("no file has such a name"));
    }

    #[test]
    fn stars_and_question_marks_match() {
        for (pattern, name, expected) in [
            ("*.tar", "a.tar", true),
            ("*.tar", "a.tar.gz", false),
            ("a*b*c", "aXbYbZc", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*", "", true),
            ("**", "x", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }
}
