//! Patterns that stand for several files: `shard-{000..146}.tar`, `{train,extra}.tar`, `data/*.parquet`, `data/**/*.tar`.

use super::OpenError;
use std::collections::{BTreeSet, HashSet};
use std::fs::{self, ReadDir};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use text::{escape_name, excerpt};

/// More files than this is a slip of the pen.
const MOST_FILES: usize = 100_000;

/// Longer text is no path, let alone a pattern.
const LONGEST: usize = 4096;

/// Memory for names that writing out a pattern may take and take again: groups can hold groups, a thousand deep.
const MOST_BYTES: usize = 64 << 20;

/// True for text that can stand for several files.
pub(super) fn is_pattern(spec: &str) -> bool {
    spec.contains(['*', '?']) || (spec.contains('{') && spec.contains('}'))
}

/// The files that a pattern stands for: groups in braces in the order written, `*` and `?` in the order of names. What
/// braces spell out has to be there; what a star finds are files only.
pub(super) fn expand(spec: &str) -> Result<Vec<PathBuf>, OpenError> {
    let wrong = |problem: String| OpenError::Format { path: PathBuf::from(spec), problem };
    if spec.len() > LONGEST {
        return Err(wrong("too long for a pattern".to_owned()));
    }
    let mut files = Vec::new();
    for name in braces(spec, &mut Room::default()).map_err(wrong)? {
        if !name.contains(['*', '?']) {
            let path = PathBuf::from(&name);
            match fs::metadata(&path) {
                Ok(about) if about.is_dir() => {
                    return Err(wrong(format!("{} is a folder, not a file", escape_name(name.as_bytes()))));
                }
                Ok(_) => files.push(path),
                Err(error) => return Err(wrong(format!("{}: {error}", escape_name(name.as_bytes())))),
            }
            continue;
        }
        let before = files.len();
        files.extend(glob(&name)?);
        if files.len() == before {
            return Err(wrong("no file has such a name".to_owned()));
        }
        if files.len() > MOST_FILES {
            return Err(wrong(format!("stands for more than {MOST_FILES} files")));
        }
    }
    Ok(files)
}

/// What is left of [`MOST_BYTES`].
struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Self(MOST_BYTES)
    }
}

impl Room {
    /// Takes room for names that have so many bytes together.
    fn take(&mut self, names: usize, bytes: usize) -> Result<(), String> {
        let needed = names.saturating_mul(size_of::<String>()).saturating_add(bytes);
        let left = self.0.checked_sub(needed);
        self.0 = left.ok_or_else(|| format!("stands for names of more than {MOST_BYTES} bytes"))?;
        Ok(())
    }
}

/// Writes out groups in braces: `a{0..2}` and `a{0,1,2}` are `a0 a1 a2`. A group may hold groups. Braces without a
/// comma or two dots between them are themselves.
fn braces(text: &str, room: &mut Room) -> Result<Vec<String>, String> {
    let mut from = 0;
    let (open, close, choices) = loop {
        let Some((open, close)) = group(text, from) else { return Ok(vec![text.to_owned()]) };
        match choices(&text[open + 1..close], room)? {
            Some(choices) => break (open, close, choices),
            None => from = open + 1,
        }
    };
    let mut out = Vec::new();
    let tails = braces(&text[close + 1..], room)?;
    let tail_bytes: usize = tails.iter().map(String::len).sum();
    for choice in choices {
        for middle in braces(&choice, room)? {
            if out.len() + tails.len() > MOST_FILES {
                return Err(format!("stands for more than {MOST_FILES} files"));
            }
            room.take(tails.len(), tails.len() * (open + middle.len()) + tail_bytes)?;
            out.extend(tails.iter().map(|tail| format!("{}{middle}{tail}", &text[..open])));
        }
    }
    Ok(out)
}

/// The first group that opens at or after `from` and closes: where its braces are.
fn group(text: &str, from: usize) -> Option<(usize, usize)> {
    let mut opening = text.match_indices('{').map(|(i, _)| i).filter(|&i| i >= from);
    opening.find_map(|open| closing(text, open).map(|close| (open, close)))
}

/// Where the brace that opens at `open` closes.
fn closing(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    text.bytes().enumerate().skip(open).find_map(|(i, byte)| {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(i)
    })
}

/// What a group may be replaced by.
fn choices(inside: &str, room: &mut Room) -> Result<Option<Vec<String>>, String> {
    if let Some((first, last)) = inside.split_once("..")
        && let (Some(from), Some(to)) = (whole(first), whole(last))
    {
        let count = from.abs_diff(to).saturating_add(1);
        if count > MOST_FILES as u64 {
            return Err(format!("{{{}}} stands for {count} files, more than {MOST_FILES}", excerpt(inside)));
        }
        // As in a shell, a leading zero on either side asks for numbers of equal width.
        let padded = |text: &str| text.len() > 1 && text.starts_with('0');
        let width = if padded(first) || padded(last) { first.len().max(last.len()) } else { 0 };
        room.take(count as usize, count as usize * inside.len())?;
        let number = |i: u64| if from <= to { from + i } else { from - i };
        return Ok(Some((0..count).map(|i| format!("{:0width$}", number(i))).collect()));
    }
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for c in inside.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        match parts.last_mut() {
            Some(last) if c != ',' || depth > 0 => last.push(c),
            _ => parts.push(String::new()),
        }
    }
    if parts.len() < 2 {
        return Ok(None);
    }
    room.take(parts.len(), inside.len())?;
    Ok(Some(parts))
}

fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Files whose path matches, sorted. A star matches within one part of the path; `**` as a part of its own stands for any
/// number of folders, none included.
fn glob(pattern: &str) -> Result<Vec<PathBuf>, OpenError> {
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
fn matches(pattern: &[u8], name: &[u8]) -> bool {
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

/// Writes out the braces of a text and matches its lines with each other, without looking for any file. With little
/// room: a fuzzer learns nothing from a hundred thousand names that ten thousand do not show. For fuzzing.
pub(super) fn read_text(text: &str) {
    if text.len() <= LONGEST && is_pattern(text) {
        _ = braces(text, &mut Room(MOST_BYTES / 64));
    }
    let mut lines = text.lines().map(str::as_bytes);
    if let (Some(pattern), Some(name)) = (lines.next(), lines.next()) {
        matches(pattern, name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn braces(text: &str) -> Result<Vec<String>, String> {
        super::braces(text, &mut Room::default())
    }

    #[test]
    fn braces_are_written_out_in_their_order() {
        assert_eq!(braces("a-{008..011}.tar").unwrap(), ["a-008.tar", "a-009.tar", "a-010.tar", "a-011.tar"]);
        assert_eq!(braces("{9..11}").unwrap(), ["9", "10", "11"]);
        assert_eq!(braces("{2..0}").unwrap(), ["2", "1", "0"]);
        assert_eq!(braces("{a,b}/{0..1}").unwrap(), ["a/0", "a/1", "b/0", "b/1"]);
        assert_eq!(braces("{train-{0..1},extra}.tar").unwrap(), ["train-0.tar", "train-1.tar", "extra.tar"]);
    }

    #[test]
    fn braces_that_are_no_group_are_themselves() {
        for text in ["{abc}.tar", "{", "}{", "{}", "{a..b}", "x{1..}", "{{a}"] {
            assert_eq!(braces(text).unwrap(), [text]);
        }
        assert_eq!(braces("{x{a,b}").unwrap(), ["{xa", "{xb"]);
    }

    #[test]
    fn a_pattern_of_endless_files_is_refused() {
        assert!(braces("{0..18446744073709551615}").unwrap_err().contains("stands for"));
        assert!(braces("{0..9999}{0..9999}").unwrap_err().contains("stands for"));
        assert!(braces(&"{0,1}".repeat(40)).unwrap_err().contains("stands for"));
    }

    #[test]
    fn a_pattern_of_endless_text_is_refused() {
        let long = "x".repeat(4000);
        // Long names, numbers of endless width, and groups that copy all that come after them, or all inside.
        let (width, copies, depth) = ("0".repeat(3900), "{5..5}".repeat(600), 1000);
        for hostile in [
            format!("{{0..99999}}{long}"),
            format!("{{{width}1..99999}}"),
            format!("{copies}{{0..99999}}"),
            format!("{}{{0..90000}}{}", "{,".repeat(depth), "}".repeat(depth)),
        ] {
            assert!(braces(&hostile).unwrap_err().contains("stands for names of more than"));
        }
        // As many files as are allowed, with long paths.
        let path = "folder/".repeat(20);
        assert_eq!(braces(&format!("{path}{{0..9}}/shard-{{0000..9999}}.tar")).unwrap().len(), MOST_FILES);
    }

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
