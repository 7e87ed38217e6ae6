//! Words of a command that people copy.

use crate::is_plain;

/// A word quoted for a POSIX shell, if it needs to be. Control characters are written as bash, zsh and ksh read them.
pub fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !is_plain(word) {
        let quoted = word.replace('\\', "\\x5c").replace('\'', "\\x27");
        return format!("$'{}'", steering_escaped(&quoted));
    }
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Each byte of a character that steers a terminal as `\xNN`.
fn steering_escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        let mut buffer = [0; 4];
        let bytes = c.encode_utf8(&mut buffer);
        if is_plain(bytes) { escaped += bytes } else { escaped.extend(bytes.bytes().map(|b| format!("\\x{b:02x}"))) }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_to_copy_survives_the_shell() {
        assert_eq!(shell("synthetic:train=64,size=24"), "synthetic:train=64,size=24");
        assert_eq!(shell("my photos"), "'my photos'");
        assert_eq!(shell("it's"), r"'it'\''s'");
        assert_eq!(shell("a'\n\\\u{1b}[2J"), r"$'a\x27\x0a\x5c\x1b[2J'");
    }
}
