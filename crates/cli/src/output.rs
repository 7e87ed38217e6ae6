//! Results go to standard output, messages to standard error. Neither panics when it cannot be written: output is often
//! piped into a program that stops reading.

use std::io::{self, ErrorKind, Write};

use crate::error::CliError;

/// Prints a result to standard output.
pub fn result(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    let written = write!(out, "{text}{newline}").and_then(|()| out.flush());
    match written {
        // Not an error: `| head` has read enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|source| CliError::Output { source }),
    }
}

/// Prints a message to standard error.
pub fn note(text: &str) {
    // There is nobody to tell that standard error cannot be written.
    _ = writeln!(io::stderr().lock(), "{text}");
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

/// A word quoted for a POSIX shell, if it needs to be.
pub fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_short_to_read() {
        assert_eq!([0.871, 4.24, 41.2, 3050.4].map(speed), ["0.87 img/s", "4.2 img/s", "41 img/s", "3050 img/s"]);
    }

    #[test]
    fn a_command_to_copy_survives_the_shell() {
        assert_eq!(shell("synthetic:train=64,size=24"), "synthetic:train=64,size=24");
        assert_eq!(shell("my photos"), "'my photos'");
        assert_eq!(shell("it's"), r"'it'\''s'");
    }
}
