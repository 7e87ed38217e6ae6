//! Numbers and names as they are shown to people: in messages, errors and reports.

mod name;
mod shell;

pub use name::{escape_name, path_of, shown, unescape_name};
pub use shell::shell;

use std::borrow::Cow;

/// 7390 as `7,390`.
pub fn thousands(n: impl TryInto<u64>) -> String {
    let digits = n.try_into().unwrap_or(u64::MAX).to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|g| std::str::from_utf8(g).ok()).collect();
    groups.join(",")
}

/// `1 image`, `7,390 images`, `2 classes`, `6 patches`.
pub fn count(n: usize, thing: &str) -> String {
    let plural = match thing {
        _ if n == 1 => "",
        _ if thing.ends_with('s') || thing.ends_with("tch") => "es",
        _ => "s",
    };
    format!("{} {thing}{plural}", thousands(n))
}

/// Bytes with a unit that keeps the number short.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let power = (0..UNITS.len() - 1).find(|&p| n < 1024u64.pow(p as u32 + 1)).unwrap_or(UNITS.len() - 1);
    if power == 0 {
        return format!("{n} bytes");
    }
    format!("{:.1} {}", n as f64 / 1024f64.powi(power as i32), UNITS[power])
}

/// A text from a file, fit to be shown: it can neither steer a terminal nor reorder what stands around it.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, steers)
}

/// Whether a text holds nothing that steers a terminal, ends a line or turns the direction of writing.
pub fn is_plain(text: &str) -> bool {
    !text.contains(steers)
}

/// The beginning of a text from a file, fit to be shown.
pub fn excerpt(text: &str) -> Cow<'_, str> {
    match shortened(text, 100) {
        Cow::Borrowed(whole) => printable(whole),
        Cow::Owned(beginning) => Cow::Owned(printable(&beginning).into_owned()),
    }
}

/// A message fit to be shown: it may have several lines, but nothing in it steers a terminal. The last guard before one,
/// behind [`shown`] and [`printable`], which keep line breaks of names and files out as well.
pub fn message(text: &str) -> Cow<'_, str> {
    escaped(text, |c| steers(c) && !matches!(c, '\n' | '\t'))
}

/// A text with escapes in the place of some characters.
fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_escaped(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// A text of at most so many characters, with dots for the rest.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// Whether a character moves a terminal's cursor, ends a line or turns the direction of writing.
fn steers(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let shown = [0, 999, 1000, 7390, 1_281_167].map(|n: usize| thousands(n));
        assert_eq!(shown, ["0", "999", "1,000", "7,390", "1,281,167"]);
    }

    #[test]
    fn things_are_counted_in_words() {
        let shown =
            [count(1, "image"), count(7390, "image"), count(1, "class"), count(10, "class"), count(0, "tensor")];
        assert_eq!(shown, ["1 image", "7,390 images", "1 class", "10 classes", "0 tensors"]);
        assert_eq!([count(6, "patch"), count(1, "patch"), count(2, "epoch")], ["6 patches", "1 patch", "2 epochs"]);
    }

    #[test]
    fn bytes_are_short_to_read() {
        assert_eq!([0, 1023, 1536, 3 << 30].map(bytes), ["0 bytes", "1023 bytes", "1.5 KiB", "3.0 GiB"]);
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
    }

    #[test]
    fn a_message_keeps_its_lines_and_nothing_that_steers() {
        assert_eq!(message("a\n\tb\x1b[2J\r\u{202e}"), "a\n\tb\\u{1b}[2J\\r\\u{202e}");
        assert!(matches!(message("two\nlines"), Cow::Borrowed(_)));
    }

    #[test]
    fn text_from_a_file_cannot_steer_a_terminal_or_flood_it() {
        assert_eq!(printable("a\x1b[31mb\n\u{202e}'\"é"), "a\\u{1b}[31mb\\n\\u{202e}'\"é");
        assert!(matches!(printable("a name.jpg"), Cow::Borrowed(_)));
        assert_eq!(excerpt(&"x".repeat(101)), format!("{}...", "x".repeat(100)));
        assert_eq!(excerpt(&"\n".repeat(101)), format!("{}...", "\\n".repeat(100)));
        assert_eq!(excerpt(&"x".repeat(100)), "x".repeat(100));
    }
}
