//! Whether the processes of a run were asked for the same, asked before they do anything together.

use std::fmt;

use super::desk::FEW;
use super::{PeerError, Peers};

/// What must be the same in all processes: a name for people and a value, in any order.
pub type Facts = Vec<(String, String)>;

/// A process that was asked for something else than the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// Its number.
    pub rank: usize,
    /// What differs.
    pub what: String,
    /// What it has; none where it has nothing of that name.
    pub has: Option<String>,
    /// What the first process has.
    pub first_has: Option<String>,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        let (has, first_has) = (said(&self.has), said(&self.first_has));
        write!(f, "{} is {has} in process {} and {first_has} in process 0", self.what, self.rank)
    }
}

fn no_text(error: &dyn fmt::Display) -> PeerError {
    PeerError::Lost(format!("what one of them said is no text: {error}"))
}

/// What each process says. Bytes travel as numbers, and only few of them at a time: processes on GPUs can do that before they have
/// anything that carries many.
pub fn gather_texts(peers: &mut dyn Peers, here: &str) -> Result<Vec<String>, PeerError> {
    let lengths: Vec<usize> = peers
        .gather(&[here.len() as f64])?
        .iter()
        .map(|length| length.first().copied().unwrap_or(0.0) as usize)
        .collect();
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let mut all = vec![Vec::new(); lengths.len()];
    for from in (0..longest).step_by(FEW) {
        let part = here.as_bytes().iter().skip(from).take(FEW);
        let parts = peers.gather(&part.map(|&byte| f64::from(byte)).collect::<Vec<_>>())?;
        for (bytes, part) in all.iter_mut().zip(parts) {
            bytes.extend(part.iter().map(|&byte| byte as u8));
        }
    }
    all.into_iter().map(|bytes| String::from_utf8(bytes).map_err(|error| no_text(&error))).collect()
}

/// The first process that differs from the first one of all; none where all have the same. All processes are told the same.
pub fn first_disagreement(peers: &mut dyn Peers, facts: &Facts) -> Result<Option<Disagreement>, PeerError> {
    let text = serde_json::to_string(facts).map_err(|error| PeerError::Lost(error.to_string()))?;
    let read = |text: &String| serde_json::from_str(text).map_err(|error| no_text(&error));
    let all = gather_texts(peers, &text)?.iter().map(read).collect::<Result<Vec<Facts>, _>>()?;
    let value = |facts: &Facts, what: &str| facts.iter().find(|(name, _)| name == what).map(|(_, value)| value.clone());
    for (rank, others) in all.iter().enumerate().skip(1) {
        for (what, _) in all[0].iter().chain(others) {
            let (first_has, has) = (value(&all[0], what), value(others, what));
            if first_has != has {
                return Ok(Some(Disagreement { rank, what: what.clone(), has, first_has }));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::super::threads;
    use super::*;

    #[test]
    fn texts_of_any_length_arrive_in_few_numbers_at_a_time() {
        let text = |rank: usize| "\u{e9}x".repeat([0, 1, 2 * FEW][rank]);
        std::thread::scope(|scope| {
            for mut rank in threads::group(3) {
                scope.spawn(move || {
                    let own = text(rank.rank());
                    let all = gather_texts(&mut rank, &own).unwrap();
                    assert!(all.iter().enumerate().all(|(rank, said)| *said == text(rank)));
                });
            }
        });
    }

    #[test]
    fn whoever_differs_is_named_with_what_differs_to_all() {
        let facts = |lr: &str, more: Option<&str>| -> Facts {
            let own = [("version", "1"), ("lr", lr)].into_iter().chain(more.map(|more| ("more", more)));
            own.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let ask = |all: [Facts; 3]| {
            std::thread::scope(|scope| {
                let ask =
                    |(mut rank, facts): (_, Facts)| scope.spawn(move || first_disagreement(&mut rank, &facts).unwrap());
                let threads: Vec<_> = threads::group(3).into_iter().zip(all).map(ask).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            })
        };
        let same = || facts("0.1 \u{e9}", None);
        assert_eq!(ask([same(), same(), same()]), [None, None, None]);
        for found in ask([same(), same(), facts("0.2", None)]) {
            assert_eq!(found.unwrap().to_string(), "lr is 0.2 in process 2 and 0.1 \u{e9} in process 0");
        }
        for found in ask([same(), facts("0.1 \u{e9}", Some("x")), same()]) {
            assert_eq!(found.unwrap().to_string(), "more is x in process 1 and none in process 0");
        }
    }
}
