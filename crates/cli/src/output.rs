//! Results go to standard output, messages to standard error. Neither panics when it cannot be written: output is often
//! piped into a program that stops reading. Whatever a file or its name holds, nothing of it steers a terminal: this is
//! the one place that prints, and it lets no control character through but line breaks and tabs.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;

use crate::error::CliError;

/// Prints a result to standard output.
pub fn result(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    let text = tame(text);
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    let written = write!(out, "{text}{newline}").and_then(|()| out.flush());
    match written {
        // Not an error: `| head` has read enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|source| CliError::Output { source }),
    }
}

/// Writes bytes to standard output, which another program reads; whether it still does.
pub fn bytes(bytes: &[u8]) -> Result<bool, CliError> {
    let mut out = io::stdout().lock();
    if out.is_terminal() {
        return Err(CliError::Output { source: io::Error::other("bytes are for another program, not for a terminal") });
    }
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(source) => Err(CliError::Output { source }),
    }
}

/// Prints a message to standard error.
pub fn note(text: &str) {
    // There is nobody to tell that standard error cannot be written.
    _ = writeln!(io::stderr().lock(), "{}", tame(text));
}

/// Prints a result as one line of JSON, in which every character that could steer a terminal is written as its number.
pub fn json(value: &serde_json::Value) -> Result<(), CliError> {
    let mut text = String::new();
    for c in value.to_string().chars() {
        if text::is_plain(c.encode_utf8(&mut [0; 4])) { text.push(c) } else { text += &format!("\\u{:04x}", c as u32) }
    }
    result(&text)
}

/// A text that neither steers a terminal nor has a line that is not ours: libraries quote paths as they were given, and a
/// line break in one of them would pass for the end of a line.
fn tame(text: &str) -> String {
    static ODD: OnceLock<Vec<OsString>> = OnceLock::new();
    let odd = ODD.get_or_init(|| {
        let has_line_break = |argument: &OsString| argument.as_encoded_bytes().contains(&b'\n');
        std::env::args_os().skip(1).filter(has_line_break).collect()
    });
    let shown = odd.iter().fold(Cow::Borrowed(text), |text, argument| {
        text.replace(&*argument.to_string_lossy(), &text::escape_name(argument.as_encoded_bytes())).into()
    });
    text::message(&shown).into_owned()
}

/// Images per second with two significant digits or more: `0.87`, `4.2`, `3050`.
pub fn speed(per_second: f64) -> String {
    let digits = [1.0, 10.0].iter().filter(|&&limit| per_second < limit).count();
    format!("{per_second:.digits$} img/s")
}

/// How many images were turned upright.
pub fn turned(images: usize) -> String {
    let (images, were) = (text::count(images, "image"), if images == 1 { "was" } else { "were" });
    format!("{images} {were} turned upright, as the EXIF data says (--orientation as-stored leaves them)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_short_to_read() {
        assert_eq!([0.871, 4.24, 41.2, 3050.4].map(speed), ["0.87 img/s", "4.2 img/s", "41 img/s", "3050 img/s"]);
    }
}
