//! From the members of one archive to its images, labels and what else should be known.

use super::super::folder_index::is_image;
use super::super::passed_over::PassedOver;
use super::super::ranges::Names;
use super::members::{Damage, Member, Members};
use std::ffi::OsStr;
use std::io::{self, Read, Seek};
use text::{escape_name, shortened};

/// Longer than any class number.
const LABEL_BYTES: usize = 16;

/// What an archive holds.
#[derive(Default)]
pub(super) struct Contents {
    /// Names of the images as text that can be undone, without a leading `./`.
    pub images: Names,
    /// Offset and length of each.
    pub ranges: Vec<(u64, u64)>,
    /// Keys of the `.cls` members, see [`key`].
    pub label_keys: Names,
    /// What each of them says, where that is a class number.
    pub labels: Vec<Option<u32>>,
    /// True where members with the same key belong together, in the way of WebDataset.
    pub samples: bool,
    /// Images that are links or sparse files.
    pub unusable: Counted,
    /// Files that are not images by their name.
    pub others: Counted,
    /// Those among them that are images of a format that is not read.
    pub passed_over: PassedOver,
    /// Where the archive stops making sense.
    pub damage: Option<Damage>,
    /// The last member, if any.
    pub last: Option<String>,
}

/// How many, and the first.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    pub count: usize,
    pub first: Option<String>,
}

impl Counted {
    pub(super) fn add(&mut self, name: &str) {
        self.count += 1;
        self.first.get_or_insert_with(|| bearable(name));
    }

    pub(super) fn merge(&mut self, other: Counted) {
        self.count += other.count;
        self.first = self.first.take().or(other.first);
    }
}

/// A name for a message: an archive may have names of any length.
fn bearable(name: &str) -> String {
    shortened(name, 200).into_owned()
}

/// Lists an archive. `advance` is told how many bytes more were looked through.
pub(super) fn scan<R: Read + Seek>(input: R, advance: impl Fn(u64)) -> io::Result<Contents> {
    let mut members = Members::new(input)?;
    let end = members.length();
    // Where the last member began. Its length is what the archive claims.
    let mut at = 0;
    let mut contents = Contents::default();
    // Key and kind of the member before this one.
    let (mut last_key, mut last_image) = (String::new(), false);
    while let Some(member) = members.next()? {
        let begin = member.offset.clamp(at, end.max(at));
        advance(begin - at);
        at = begin;
        let name = escape_name(&member.name);
        let name = plain(&name);
        if is_hidden(name) {
            continue;
        }
        let image = is_image(OsStr::new(name));
        let (key, extension) = key(name);
        contents.samples |= image != last_image && !last_key.is_empty() && key == last_key;
        if (key, image) != (last_key.as_str(), last_image) {
            last_key.clear();
            last_key.push_str(key);
            last_image = image;
        }
        if image && member.plain {
            contents.images.push(name);
            contents.ranges.push((member.offset, member.bytes));
        } else if image {
            contents.unusable.add(name);
        } else if extension.eq_ignore_ascii_case("cls") && member.plain {
            contents.label_keys.push(key);
            contents.labels.push(label(&mut members, &member)?);
            contents.samples = true;
        } else {
            contents.others.add(name);
            contents.passed_over.add(name.rsplit_once('.').map_or("", |(_, extension)| extension), || bearable(name));
        }
        if members.damage.is_some() {
            contents.last = Some(bearable(name));
        }
    }
    advance(end.saturating_sub(at));
    contents.damage = members.damage;
    Ok(contents)
}

/// The class number that a `.cls` member holds.
fn label<R: Read + Seek>(members: &mut Members<R>, member: &Member) -> io::Result<Option<u32>> {
    if member.bytes > LABEL_BYTES as u64 {
        return Ok(None);
    }
    let text = members.start(member, LABEL_BYTES)?.trim_ascii();
    Ok(std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()))
}

/// A name as `tar` shows it to people: `./a`, `/a` and `a` are the same.
fn plain(mut name: &str) -> &str {
    while let Some(rest) = name.strip_prefix("./").or_else(|| name.strip_prefix('/')) {
        name = rest;
    }
    name
}

/// Hidden files and folders are passed over, as in a folder; among them the `._name` files that macOS adds.
fn is_hidden(name: &str) -> bool {
    name.is_empty() || name.split('/').any(|part| part.starts_with('.') && part != "." && part != "..")
}

/// Splits a name the way of WebDataset: the key is the path up to the first dot of the file name.
pub(super) fn key(name: &str) -> (&str, &str) {
    let base = name.rfind('/').map_or(0, |slash| slash + 1);
    match name[base..].find('.') {
        Some(dot) => (&name[..base + dot], &name[base + dot + 1..]),
        None => (name, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_ends_at_the_first_dot_of_the_file_name() {
        assert_eq!(key("a.b/c.seg.png"), ("a.b/c", "seg.png"));
        assert_eq!(key("a.b/c"), ("a.b/c", ""));
        assert_eq!(key("x.jpg"), ("x", "jpg"));
    }

    #[test]
    fn names_lose_their_leading_dots_and_hidden_ones_are_known() {
        assert_eq!(plain(".//./a/./b.jpg"), "a/./b.jpg");
        for hidden in ["", "._a.jpg", "a/._b.jpg", ".git/x.jpg"] {
            assert!(is_hidden(hidden), "{hidden}");
        }
        assert!(!is_hidden("../../a.jpg"));
    }
}
