//! What is known of the runs, shared by all who look.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

use super::list::List;
use super::live::Live;

/// Runs whose logs are kept at hand. Those that nobody has looked at for longest go first.
const MOST_LIVE: usize = 24;
/// Pages that are told of changes at a time.
const MOST_STREAMS: usize = 48;
/// Reports that are sent at a time: each is held in memory until it has arrived.
const MOST_REPORTS: usize = 6;
/// Runs of one comparison: more lines than that are a tangle.
pub(super) const MOST_COMPARED: usize = 12;

/// A run that is looked at.
pub(super) type SharedLive = Arc<Mutex<Live>>;

/// All that is known.
#[derive(Debug)]
pub(super) struct State {
    folder: PathBuf,
    list: Mutex<List>,
    /// Those looked at last come last.
    lives: Mutex<Vec<(PathBuf, SharedLive)>>,
    token: Option<String>,
    /// Room for streams of events.
    pub(super) streams: Arc<Semaphore>,
    /// Room for reports that are on their way.
    pub(super) reports: Arc<Semaphore>,
}

impl State {
    pub(super) fn new(folder: &Path, token: Option<String>) -> Self {
        Self {
            folder: folder.to_owned(),
            list: Mutex::new(List::of(folder)),
            lives: Mutex::new(Vec::new()),
            token,
            streams: Arc::new(Semaphore::new(MOST_STREAMS)),
            reports: Arc::new(Semaphore::new(MOST_REPORTS)),
        }
    }

    /// The folder of the runs.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What whoever stops a run must know; none where nobody may.
    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The list of the runs.
    pub(super) fn list(&self) -> MutexGuard<'_, List> {
        held(&self.list)
    }

    /// Where a run of the list is.
    pub(super) fn path_of(&self, place: &str) -> Option<PathBuf> {
        self.list().path_of(place)
    }

    /// A run of the list, to look at; none where the list has no such name.
    pub(super) fn live(&self, place: &str) -> Option<SharedLive> {
        let path = self.path_of(place)?;
        let mut lives = held(&self.lives);
        let live = match lives.iter().position(|(known, _)| *known == path) {
            Some(at) => lives.remove(at).1,
            None => Arc::new(Mutex::new(Live::new(&path, place).ok()?)),
        };
        if lives.len() >= MOST_LIVE {
            lives.remove(0);
        }
        lives.push((path, live.clone()));
        Some(live)
    }

    /// Whether somebody knows the token. Takes as long whichever digit is wrong.
    pub(super) fn is_token(&self, given: &str) -> bool {
        let Some(token) = self.token() else { return false };
        let differences = token.bytes().zip(given.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
        token.len() == given.len() && differences == 0
    }
}

/// A lock also where somebody who held it has panicked: what is behind it is read again from files.
pub(super) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_the_token_is_the_token() {
        let state = State::new(Path::new("runs"), Some("abcd".to_owned()));
        assert!(state.is_token("abcd"));
        assert!(["", "abc", "abce", "abcde", "ABCD"].iter().all(|given| !state.is_token(given)));
        assert!(!State::new(Path::new("runs"), None).is_token(""));
    }
}
