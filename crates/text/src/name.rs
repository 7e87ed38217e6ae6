//! Names of files as text, in a way that can be undone.
//!
//! A file name is a row of bytes: it may hold line breaks, the sequences that steer a terminal, or bytes that are no
//! UTF-8. Shown as they are they could do harm; replaced by a mark, two files would have one name and neither could be
//! found again. So each byte that cannot be shown is written `\xNN`, with two hexadecimal digits in lower case:
//! `photo\x0a1.jpg`. A backslash stays what it is, unless what follows it looks like such an escape; it is `\x5c` then.
//! So plain names are themselves, different names stay different, and [`unescape_name`] gives back every byte.

use std::borrow::Cow;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::steers;

/// A name as text, from which [`unescape_name`] gives the bytes back.
///
/// ```
/// let name = text::escape_name(b"a\n\xff.jpg");
/// assert_eq!(name, r"a\x0a\xff.jpg");
/// assert_eq!(*text::unescape_name(&name), *b"a\n\xff.jpg");
/// ```
pub fn escape_name(name: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(name)
        && !text.contains(steers)
        && !(0..text.len()).any(|at| escape_at(name, at).is_some())
    {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(name.len() + 8);
    let mut at = 0;
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if steers(c) || (c == '\\' && escape_at(name, at).is_some()) {
                push_bytes(&mut escaped, c.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                escaped.push(c);
            }
            at += c.len_utf8();
        }
        push_bytes(&mut escaped, chunk.invalid());
        at += chunk.invalid().len();
    }
    Cow::Owned(escaped)
}

/// The bytes of a name that [`escape_name`] wrote.
pub fn unescape_name(text: &str) -> Cow<'_, [u8]> {
    let bytes = text.as_bytes();
    if !text.contains("\\x") {
        return Cow::Borrowed(bytes);
    }
    let mut name = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match escape_at(bytes, at) {
            Some(byte) => {
                name.push(byte);
                at += 4;
            }
            None => {
                name.push(bytes[at]);
                at += 1;
            }
        }
    }
    Cow::Owned(name)
}

/// A path as it is shown in a message: neither a line break nor anything that steers a terminal is left in it.
pub fn shown(path: &Path) -> Cow<'_, str> {
    escape_name(path.as_os_str().as_encoded_bytes())
}

/// The path that [`shown`] wrote.
pub fn path_of(text: &str) -> PathBuf {
    match unescape_name(text) {
        Cow::Borrowed(_) => PathBuf::from(text),
        Cow::Owned(bytes) => of_bytes(bytes),
    }
}

#[cfg(unix)]
fn of_bytes(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(bytes).into()
}

/// Names are text on other systems.
#[cfg(not(unix))]
fn of_bytes(bytes: Vec<u8>) -> PathBuf {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

/// The byte whose escape stands at this place, where one does.
fn escape_at(bytes: &[u8], at: usize) -> Option<u8> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    match *bytes.get(at..at + 4)? {
        [b'\\', b'x', high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    }
}

fn push_bytes(text: &mut String, bytes: &[u8]) {
    // Writing into a string does not fail.
    bytes.iter().for_each(|byte| _ = write!(text, "\\x{byte:02x}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn plain_names_stay_exactly_as_they_are() {
        for name in ["a.jpg", "Füße/猫 1.png", r"C:\photos\new.jpg", r"\", r"\\x4", r"\xAB", "\u{feff}a", "it's \"b\""]
        {
            assert!(matches!(escape_name(name.as_bytes()), Cow::Borrowed(shown) if shown == name), "{name}");
            assert_eq!(*unescape_name(name), *name.as_bytes());
        }
    }

    #[test]
    fn what_cannot_be_shown_is_written_in_hexadecimal() {
        assert_eq!(escape_name(b"a\x1b[31m\n\x7f\xff.jpg"), r"a\x1b[31m\x0a\x7f\xff.jpg");
        assert_eq!(escape_name("\u{202e}gpj.a\u{9b}".as_bytes()), r"\xe2\x80\xaegpj.a\xc2\x9b");
        assert_eq!(escape_name(br"a\x0a.jpg"), r"a\x5cx0a.jpg", "not the same as a line break");
        assert_eq!(shown(Path::new("a\tb")), r"a\x09b");
    }

    #[test]
    fn different_names_stay_different_and_every_byte_comes_back() {
        // All names of up to five of these bytes: escapes, halves of them, and bytes that need one.
        let alphabet = b"\\x50c\n\xff\xc3";
        let (mut names, mut seen) = (vec![Vec::new()], HashSet::new());
        for _ in 0..5 {
            let longer = |name: &Vec<u8>| alphabet.map(|byte| [&name[..], &[byte]].concat());
            names = names.iter().flat_map(longer).collect();
            for name in &names {
                let escaped = escape_name(name).into_owned();
                assert_eq!(*unescape_name(&escaped), name[..], "{escaped}");
                assert!(!escaped.contains(steers), "{escaped}");
                assert!(seen.insert(escaped), "{name:?}");
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_path_is_found_again() {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(b"odd \xfe\n/a.jpg"));
        assert_eq!(path_of(&shown(path)), path);
    }
}
