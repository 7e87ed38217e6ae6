//! Slurm's lists of hosts: `gpu[01-03,7],b12-[1-2]x`, with ranges in brackets, as `SLURM_JOB_NODELIST` has them.
//!
//! A list is read without being written out: `n[1-999999999]` takes no more memory than its text.

use std::fmt;

/// The most characters of a list, many times what a large machine needs.
const LONGEST: usize = 1 << 20;
/// The most pairs of brackets in one name, and the most digits of a number.
const MOST_BRACKETS: usize = 8;
const MOST_DIGITS: usize = 18;

/// The hosts of a list, of which the first is where the first process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeList {
    /// The first host.
    pub first: String,
    /// How many there are.
    pub hosts: u64,
}

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
    TooManyHosts,
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
            Self::TooManyHosts => f.write_str("it names more hosts than can be counted"),
        }
    }
}

impl NodeList {
    /// Reads a list.
    pub fn parse(text: &str) -> Result<Self, NodeListError> {
        let text = text.trim();
        if text.len() > LONGEST {
            return Err(NodeListError::TooLong);
        }
        let (mut first, mut hosts) = (None, 0_u64);
        for name in names(text)? {
            let (host, count) = host(name)?;
            first.get_or_insert(host);
            hosts = hosts.checked_add(count).ok_or(NodeListError::TooManyHosts)?;
        }
        first.map(|first| Self { first, hosts }).ok_or(NodeListError::Empty)
    }
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

/// The first host of a name with any brackets, and how many it stands for. All brackets are known to match.
fn host(name: &str) -> Result<(String, u64), NodeListError> {
    let (mut first, mut count, mut rest, mut brackets) = (String::new(), 1_u64, name, 0);
    while let Some((before, (inside, after))) =
        rest.split_once('[').and_then(|(before, rest)| rest.split_once(']').map(|parts| (before, parts)))
    {
        brackets += 1;
        if brackets > MOST_BRACKETS {
            return Err(NodeListError::TooManyBrackets);
        }
        let (number, numbers) = ranges(inside)?;
        first = first + before + number;
        count = count.checked_mul(numbers).ok_or(NodeListError::TooManyHosts)?;
        rest = after;
    }
    first += rest;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match first.as_str() {
        "" => Err(NodeListError::Empty),
        name if name.chars().all(fits) => Ok((first, count)),
        _ => Err(NodeListError::BadName),
    }
}

/// The first number of `01-03,7` as it is written, and how many numbers there are.
fn ranges(inside: &str) -> Result<(&str, u64), NodeListError> {
    let number = |text: &str| match text.parse::<u64>() {
        Ok(number) if text.len() <= MOST_DIGITS && text.bytes().all(|b| b.is_ascii_digit()) => Ok(number),
        _ => Err(NodeListError::BadRange),
    };
    let (mut first, mut count) = (None, 0_u64);
    for range in inside.split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let numbers = number(high)?.checked_sub(number(low)?).ok_or(NodeListError::BadRange)? + 1;
        first.get_or_insert(low);
        count = count.checked_add(numbers).ok_or(NodeListError::TooManyHosts)?;
    }
    first.map(|first| (first, count)).ok_or(NodeListError::BadRange)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (String, u64) {
        let list = NodeList::parse(text).unwrap();
        (list.first, list.hosts)
    }

    #[test]
    fn the_first_host_is_written_as_it_is_called() {
        for (text, first, hosts) in [
            ("gpu7", "gpu7", 1),
            ("a,b", "a", 2),
            ("a[01-03,7],b12-[1-2]x", "a01", 6),
            ("b12-[1-2]x,a[01-03,7]", "b12-1x", 6),
            ("n[008-010]", "n008", 3),
            ("n[7]", "n7", 1),
            ("rack[1-2]-node[003-004]", "rack1-node003", 4),
            ("node-1.cluster.example", "node-1.cluster.example", 1),
            ("[10-11]", "10", 2),
            (" a[0-1] ", "a0", 2),
        ] {
            assert_eq!(of(text), (first.to_owned(), hosts), "{text}");
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
            ("a[0-999999999999999999][0-999999999999999999]", TooManyHosts),
        ] {
            assert_eq!(NodeList::parse(text), Err(expected), "{text:?}");
        }
        assert_eq!(NodeList::parse(&"a,".repeat(LONGEST)), Err(TooLong));
        // Counted, not written out.
        assert_eq!(of("n[0-999999999999999999]"), ("n0".to_owned(), 1_000_000_000_000_000_000));
    }
}
