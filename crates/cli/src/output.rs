//! Results on standard output, everything else on standard error. Neither may end the program with a panic: output is
//! often piped into something that stops reading.

use std::io::{self, ErrorKind, Write};

use crate::error::CliError;

/// Prints a result.
pub fn result(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    let written = write!(out, "{text}{newline}").and_then(|()| out.flush());
    match written {
        // The reader has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|source| CliError::Output { source }),
    }
}

/// Says something to the person at the terminal.
pub fn note(text: &str) {
    // There is nobody to tell that standard error cannot be written.
    _ = writeln!(io::stderr().lock(), "{text}");
}

/// A speed with as many digits as tell it: `0.87`, `4.2`, `3050`.
pub fn speed(per_second: f64) -> String {
    let digits = [1.0, 10.0].iter().filter(|&&limit| per_second < limit).count();
    format!("{per_second:.digits$} img/s")
}

/// A word as a shell takes it.
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
