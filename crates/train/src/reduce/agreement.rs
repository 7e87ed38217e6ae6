//! Whether the processes of a run were asked for the same, asked before they do anything together.

use std::fmt;

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

/// The first process that differs from the first one of all; none where all have the same. All processes are told the same.
pub fn first_disagreement(peers: &mut dyn Peers, facts: &Facts) -> Result<Option<Disagreement>, PeerError> {
    // Bytes as numbers: little is sent here, and once.
    let text = serde_json::to_string(facts).map_err(|error| PeerError::Lost(error.to_string()))?;
    let sent: Vec<f64> = text.bytes().map(f64::from).collect();
    let read = |numbers: &Vec<f64>| -> Result<Facts, PeerError> {
        let bytes: Vec<u8> = numbers.iter().map(|&byte| byte as u8).collect();
        serde_json::from_slice(&bytes)
            .map_err(|error| PeerError::Lost(format!("what one of them said is no text: {error}")))
    };
    let all = peers.gather(&sent)?.iter().map(read).collect::<Result<Vec<Facts>, _>>()?;
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
