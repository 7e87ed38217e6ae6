//! Slurm's lists of hosts: `gpu[01-03,7],b12-[1-2]x`, with ranges in brackets, as `SLURM_JOB_NODELIST` has them.
//!
//! A list is read without being written out: `n[1-999999999]` takes no more memory than its text.

use std::fmt;

/// The most characters of a list, many times what a large machine needs.
const LONGEST: usize = 1 << 20;
/// The most pairs of brackets in one name, and the most digits of a number.
const MOST_BRACKETS: usize = 8;
const MOST_DIGITS: usize = 18;

/// What is wrong with a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeListError {
    Empty,
    TooLong,
    Unbalanced,
    TooManyBrackets,
    /// Something in brackets that is no number or range of numbers.
    BadRange,
    /// A character that no name of a host has.
    BadName,
}

impl fmt::Display for NodeListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it names no host where it should"),
            Self::TooLong => write!(f, "it has more than {LONGEST} characters"),
            Self::Unbalanced => f.write_str("its brackets do not match"),
            Self::TooManyBrackets => write!(f, "a name in it has more than {MOST_BRACKETS} pairs of brackets"),
            Self::BadRange => f.write_str("something in its brackets is no number and no range like 01-03"),
            Self::BadName => f.write_str("it has a character that no host's name has"),
        }
    }
}

/// The first host of a list, where the first process runs. All of the list is looked at.
pub fn first_host(text: &str) -> Result<String, NodeListError> {
    let text = text.trim();
    if text.len() > LONGEST {
        return Err(NodeListError::TooLong);
    }
    let mut first = None;
    for name in names(text)? {
        let host = host(name)?;
        first.get_or_insert(host);
    }
    first.ok_or(NodeListError::Empty)
}

/// The parts between the commas outside of brackets.
fn names(text: &str) -> Result<Vec<&str>, NodeListError> {
    let (mut found, mut from, mut inside) = (Vec::new(), 0, false);
    for (at, character) in text.char_indices() {
        match (character, inside) {
            ('[', false) => inside = true,
            (']', true) => inside = false,
            ('[', true) | (']', false) => return Err(NodeListError::Unbalanced),
            (',', false) => {
                found.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(NodeListError::Unbalanced);
    }
    found.push(&text[from..]);
    Ok(found)
}

/// The first host of a name with any brackets. All brackets are known to match.
fn host(name: &str) -> Result<String, NodeListError> {
    let (mut first, mut rest, mut brackets) = (String::new(), name, 0);
    while let Some((before, (inside, after))) =
        rest.split_once('[').and_then(|(before, rest)| rest.split_once(']').map(|parts| (before, parts)))
    {
        brackets += 1;
        if brackets > MOST_BRACKETS {
            return Err(NodeListError::TooManyBrackets);
        }
        first = first + before + first_number(inside)?;
        rest = after;
    }
    first += rest;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match first.as_str() {
        "" => Err(NodeListError::Empty),
        name if name.chars().all(fits) => Ok(first),
        _ => Err(NodeListError::BadName),
    }
}

/// The first number of `01-03,7` as it is written.
fn first_number(inside: &str) -> Result<&str, NodeListError> {
    let number = |text: &str| match text.parse::<u64>() {
        Ok(number) if text.len() <= MOST_DIGITS && text.bytes().all(|b| b.is_ascii_digit()) => Ok(number),
        _ => Err(NodeListError::BadRange),
    };
    let mut first = None;
    for range in inside.split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        if number(high)? < number(low)? {
            return Err(NodeListError::BadRange);
        }
        first.get_or_insert(low);
    }
    first.ok_or(NodeListError::BadRange)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_host_is_written_as_it_is_called() {
        for (text, first) in [
            ("gpu7", "gpu7"),
            ("a,b", "a"),
            ("a[01-03,7],b12-[1-2]x", "a01"),
            ("b12-[1-2]x,a[01-03,7]", "b12-1x"),
            ("n[008-010]", "n008"),
            ("n[7]", "n7"),
            ("rack[1-2]-node[003-004]", "rack1-node003"),
            ("node-1.cluster.example", "node-1.cluster.example"),
            ("[10-11]", "10"),
            (" a[0-1] ", "a0"),
            // Not written out.
            ("n[0-999999999999999999]", "n0"),
        ] {
            assert_eq!(first_host(text).as_deref(), Ok(first), "{text}");
        }
    }

    #[test]
    fn hostile_lists_are_refused_and_cost_nothing() {
        use NodeListError::*;
        for (text, expected) in [
            ("", Empty),
            (",", Empty),
            ("a,,b", Empty),
            ("a,", Empty),
            ("a[1-2", Unbalanced),
            ("a1-2]", Unbalanced),
            ("a[[1]]", Unbalanced),
            ("a]1[", Unbalanced),
            ("a[]", BadRange),
            ("a[1,]", BadRange),
            ("a[3-1]", BadRange),
            ("a[1-2-3]", BadRange),
            ("a[x]", BadRange),
            ("a[-1]", BadRange),
            ("a[+1]", BadRange),
            ("a[1-99999999999999999999]", BadRange),
            ("a b", BadName),
            ("a\u{1b}[1]", BadName),
            ("\u{e9}1", BadName),
            ("a[1][1][1][1][1][1][1][1][1]", TooManyBrackets),
        ] {
            assert_eq!(first_host(text), Err(expected), "{text:?}");
        }
        assert_eq!(first_host(&"a,".repeat(LONGEST)), Err(TooLong));
    }
}
