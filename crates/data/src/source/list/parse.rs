//! The text of a list: which part of a line is the path, which the label.

use super::super::folder_index::is_image;
use super::super::ranges::{MAX_CLASSES, Names};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use text::{escape_name, excerpt, thousands};

/// Names of a column that holds paths, and of one that holds labels.
const PATH_WORDS: [&str; 17] = [
    "path",
    "paths",
    "file",
    "files",
    "filename",
    "file_name",
    "filepath",
    "file_path",
    "image",
    "images",
    "image_path",
    "image_name",
    "image_id",
    "img",
    "img_name",
    "img_path",
    "name",
];
const LABEL_WORDS: [&str; 10] =
    ["label", "labels", "class", "cls", "class_name", "class_id", "target", "category", "category_id", "y"];

/// What a list says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parsed {
    /// Paths, as written.
    pub paths: Names,
    /// One for each path, or none at all.
    pub labels: Vec<u32>,
    pub class_names: Vec<String>,
    pub remarks: Vec<String>,
}

/// The format of the lines of a list, the same for all of them.
#[derive(Debug, PartialEq, Eq)]
enum LineFormat {
    /// Nothing but a path.
    Path,
    /// A path, white space, and a class number.
    PathNumber,
    /// Fields between separators.
    Columns { separator: char, path: usize, label: Option<usize>, heading: bool },
}

/// Reads a list. `extension` is that of its file, in lower case. An error is the problem, in words.
pub(super) fn parse(text: &str, extension: &str) -> Result<Parsed, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut parsed = Parsed::default();
    let line_format = line_format(text, extension, &mut parsed.remarks);
    let skipped = usize::from(matches!(line_format, LineFormat::Columns { heading: true, .. }));
    let (mut labels, mut missing) = (Names::default(), Missing::default());
    for (number, line) in lines(text).skip(skipped) {
        let (path, label) = match &line_format {
            LineFormat::Path => (Cow::Borrowed(line), None),
            LineFormat::PathNumber => {
                let (path, number) = trailing_number(line).unwrap_or((line, ""));
                (Cow::Borrowed(path), Some(Cow::Borrowed(number)))
            }
            &LineFormat::Columns { separator, path, label, .. } => {
                let field = |column: usize| fields(line, separator).nth(column);
                (field(path).unwrap_or_default(), label.map(|column| field(column).unwrap_or_default()))
            }
        };
        if path.is_empty() {
            return Err(format!("line {number} has no path: {}", excerpt(line)));
        }
        parsed.paths.push(&path);
        if let Some(label) = label {
            if label.is_empty() {
                missing.add(number, line);
            }
            labels.push(&label);
        }
    }
    parsed.remarks.extend(repeated(&parsed.paths));
    match missing.problem {
        Some(problem) => parsed.remarks.push(missing_labels(&problem, missing.lines, labels.len())),
        None if labels.len() > 0 => (parsed.labels, parsed.class_names) = classes(&labels, &mut parsed.remarks),
        None => {}
    }
    Ok(parsed)
}

/// Lines that have no label where others do.
#[derive(Debug, Default)]
struct Missing {
    lines: usize,
    /// The first of them.
    problem: Option<String>,
}

impl Missing {
    fn add(&mut self, number: usize, line: &str) {
        self.lines += 1;
        self.problem.get_or_insert_with(|| format!("line {number} has no label: {}", excerpt(line)));
    }
}

fn missing_labels(first: &str, missing: usize, lines: usize) -> String {
    match missing {
        1 => format!("labels are not used: {first}. Give it one, or remove the line"),
        _ => format!("labels are not used: {} of {} lines have none; {first}", thousands(missing), thousands(lines)),
    }
}

/// How many lines name an image that a line before them names, and the first of those images.
fn repeated(paths: &Names) -> Option<String> {
    let mut seen = HashSet::with_capacity(paths.len());
    let mut repeated = paths.iter().filter(|path| !seen.insert(*path));
    let first = repeated.next()?;
    let count = 1 + repeated.count();
    let (lines, name) = (text::count(count, "line"), if count == 1 { "names" } else { "name" });
    Some(format!(
        "{lines} of the list {name} an image once more, the first: {}. It counts as often as it is listed",
        escape_name(excerpt(first).as_bytes())
    ))
}

/// Lines that say something, numbered from 1 and trimmed.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let trimmed = text.lines().map(str::trim).zip(1..).map(|(line, number)| (number, line));
    trimmed.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn line_format(text: &str, extension: &str, remarks: &mut Vec<String>) -> LineFormat {
    let all = |holds: &dyn Fn(&str) -> bool| lines(text).all(|(_, line)| holds(line));
    let starts_with_image = |line: &str| line.split_once(',').is_some_and(|(path, _)| image(path));
    let separator = match extension {
        "csv" => ',',
        "tsv" => '\t',
        _ if all(&|line| line.contains('\t')) => '\t',
        _ if all(&|line| trailing_number(line).is_some()) => return LineFormat::PathNumber,
        _ if all(&starts_with_image) => ',',
        // Most lines are an image with a label and the others an image alone: those lack theirs.
        _ if most_say_more(text, |line| line.split_once('\t').is_some_and(|(path, _)| image(path))) => '\t',
        _ if most_say_more(text, |line| trailing_number(line).is_some_and(|(path, _)| image(path))) => {
            return LineFormat::PathNumber;
        }
        _ if most_say_more(text, starts_with_image) => ',',
        _ => return LineFormat::Path,
    };
    let mut rows = lines(text).map(|(_, line)| fields(line, separator).map(|field| field.to_lowercase()).collect());
    let (Some(first), second): (Option<Vec<String>>, Option<Vec<String>>) = (rows.next(), rows.next()) else {
        return LineFormat::Path;
    };
    let images = |row: &[String]| row.iter().map(|field| image(field)).collect::<Vec<bool>>();
    let (first_images, second_images) = (images(&first), images(&second.unwrap_or_default()));
    let is_word = |column: usize, words: &[&str]| words.contains(&first[column].as_str());
    let find = |holds: &dyn Fn(usize) -> bool| (0..first.len()).find(|&column| holds(column));
    let below = |column: usize| second_images.get(column) == Some(&true);
    let named = find(&|column| is_word(column, &PATH_WORDS));
    // A heading names no image. It is known by its words, or by the images in the next line.
    let heading = !first_images.contains(&true) && (named.is_some() || find(&below).is_some());
    let path = match heading {
        true => find(&|column| below(column) && is_word(column, &PATH_WORDS)).or_else(|| find(&below)).or(named),
        false => first_images.iter().position(|&is_image| is_image),
    };
    let path = path.unwrap_or(0);
    let label = find(&|column| heading && column != path && is_word(column, &LABEL_WORDS));
    // Of two columns, the other; but not where the heading calls it something else.
    let label = label.or_else(|| (first.len() == 2 && !(heading && named.is_some())).then_some(1 - path.min(1)));
    if label.is_none() && first.len() > 1 {
        remarks.push(match heading {
            true => format!("no labels: no column of the list has one of the names {}", LABEL_WORDS.join(", ")),
            false => format!(
                "no labels: the list has {} columns and no heading. A first line such as path,label says which is which",
                first.len()
            ),
        });
    }
    LineFormat::Columns { separator, path, label, heading }
}

/// Whether `says_more` of more than half of the lines, and all others are an image alone.
fn most_say_more(text: &str, says_more: impl Fn(&str) -> bool) -> bool {
    let (mut more, mut bare) = (0, 0);
    for (_, line) in lines(text) {
        match (says_more(line), image(line)) {
            (true, _) => more += 1,
            (false, true) => bare += 1,
            (false, false) => return false,
        }
    }
    more > bare
}

fn image(path: &str) -> bool {
    is_image(OsStr::new(path))
}

/// Splits `a b.jpg 17` at its last white space.
fn trailing_number(line: &str) -> Option<(&str, &str)> {
    let (path, number) = line.rsplit_once(char::is_whitespace)?;
    let digits = number.strip_prefix('-').unwrap_or(number);
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some((path.trim_end(), number))
}

/// The fields of a line, trimmed. In quotes, a separator is a character like any other and `""` is a quote.
fn fields(line: &str, separator: char) -> impl Iterator<Item = Cow<'_, str>> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let text = rest?;
        if let Some(quoted) = text.trim_start().strip_prefix('"')
            && let Some(end) = closing_quote(quoted)
        {
            rest = quoted[end + 1..].split_once(separator).map(|(_, rest)| rest);
            let field = &quoted[..end];
            return Some(if field.contains("\"\"") { Cow::Owned(field.replace("\"\"", "\"")) } else { field.into() });
        }
        let (field, after) = text.split_once(separator).map_or((text, None), |(field, rest)| (field, Some(rest)));
        rest = after;
        Some(field.trim().into())
    })
}

/// Where a quoted field ends.
fn closing_quote(text: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let quote = from + text[from..].find('"')?;
        if !text[quote + 1..].starts_with('"') {
            return Some(quote);
        }
        from = quote + 2;
    }
}

/// Class numbers where all labels are numbers, otherwise the sorted names.
fn classes(labels: &Names, remarks: &mut Vec<String>) -> (Vec<u32>, Vec<String>) {
    if labels.iter().all(|label| label.parse::<i128>().is_ok()) {
        let number = |label: &str| label.parse().ok().filter(|&label| label < MAX_CLASSES);
        let Some(numbers) = labels.iter().map(number).collect::<Option<Vec<u32>>>() else {
            remarks.push(format!("labels are not used: class numbers go from 0 to {}", MAX_CLASSES - 1));
            return (Vec::new(), Vec::new());
        };
        let classes = numbers.iter().max().map_or(0, |&largest| largest + 1);
        return (numbers, (0..classes).map(|class| class.to_string()).collect());
    }
    let names: BTreeSet<&str> = labels.iter().collect();
    let number: HashMap<&str, u32> = names.iter().copied().zip(0..).collect();
    let numbers = labels.iter().filter_map(|label| number.get(label).copied()).collect();
    (numbers, names.into_iter().map(|name| escape_name(name.as_bytes()).into_owned()).collect())
}
