//! What a recipe key may be set to, as one value that both checks and explains.

use std::fmt;

/// The type and range of a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// Whole number, both ends included.
    Whole(u64, u64),
    /// Number between two ends; `open` says which of the two ends are excluded.
    Real { low: f64, high: f64, open: (bool, bool) },
    /// As `Real` with both ends included, or the word "off".
    RealOrOff(f64, f64),
    /// True or false.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Pixels: one number, or "HEIGHTxWIDTH".
    Size,
    /// Two increasing shares of an image's area.
    Interval,
    /// A hash, or the word "none".
    Digest,
}

/// Largest image side that a size may name.
pub(super) const MAX_SIDE: usize = 16_384;

/// A number from `low` to `high`.
pub(super) const fn between(low: f64, high: f64) -> Rule {
    Rule::Real { low, high, open: (false, false) }
}

/// A number above `low`, up to `high`.
pub(super) const fn above(low: f64, high: f64) -> Rule {
    Rule::Real { low, high, open: (true, false) }
}

/// A number from `low`, below `high`.
pub(super) const fn below(low: f64, high: f64) -> Rule {
    Rule::Real { low, high, open: (false, true) }
}

impl Rule {
    /// Whether a real number is in range. Not-a-number never is.
    pub(super) fn admits(&self, x: f64) -> bool {
        match *self {
            Rule::Real { low, high, open } => {
                (if open.0 { x > low } else { x >= low }) && (if open.1 { x < high } else { x <= high })
            }
            Rule::RealOrOff(low, high) => (low..=high).contains(&x),
            _ => false,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Whole(low, high) => write!(f, "a whole number from {low} to {high}"),
            Rule::Real { low, high, open } => {
                let (from, to) = (if open.0 { "above" } else { "from" }, if open.1 { "below" } else { "up to" });
                write!(f, "a number {from} {low}, {to} {high}")
            }
            Rule::RealOrOff(low, high) => write!(f, "\"off\" or a number from {low} to {high}"),
            Rule::Flag => f.write_str("true or false"),
            Rule::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Rule::Size => write!(
                f,
                "a number of pixels such as 224, or \"HEIGHTxWIDTH\" such as \"96x192\", each from 1 to {MAX_SIDE}"
            ),
            Rule::Interval => f.write_str("[low, high] with 0 < low <= high <= 1"),
            Rule::Digest => f.write_str("\"none\" or 16 hexadecimal digits, which --init and --adapt find"),
        }
    }
}
