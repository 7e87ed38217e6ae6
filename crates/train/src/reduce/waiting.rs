//! How long processes wait for each other.
//!
//! A process that hangs, or never comes, would hold up all others for ever. Whoever waits says after a while whom for, and
//! ends after a limit, unless one of them is known to do something alone that takes as long as it takes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long a process waits before it ends, unless somebody has said otherwise.
pub const LIMIT: Duration = Duration::from_secs(1200);
/// How long it waits before it says so.
pub const NOTICE: Duration = Duration::from_secs(30);

/// Until when a process waits for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until the limit of all waiting.
    Limit,
    /// Until they come: one of them does something alone, however long it takes.
    Done,
}

/// How long a process waits for the others, and who is told meanwhile.
#[derive(Clone)]
pub struct Waiting {
    /// When it gives up; none for never.
    pub limit: Option<Duration>,
    /// When it says whom it waits for.
    pub notice: Duration,
    /// To whom, in words.
    pub say: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { limit: Some(LIMIT), notice: NOTICE, say: Arc::new(|_| {}) }
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("limit", &self.limit).field("notice", &self.notice).finish_non_exhaustive()
    }
}

/// What to do after having waited for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Wait for at most so much longer; none for as long as it takes.
    Wait(Option<Duration>),
    /// Say whom for.
    Notice,
    /// Give up.
    GiveUp,
}

impl Waiting {
    /// What to do after so long, where something was said before or not.
    pub(super) fn after(&self, waited: Duration, until: Until, said: bool) -> Next {
        if until == Until::Done {
            return Next::Wait(None);
        }
        match self.limit {
            Some(limit) if waited >= limit => Next::GiveUp,
            _ if !said && waited >= self.notice => Next::Notice,
            limit => {
                let notice = if said { None } else { Some(self.notice) };
                Next::Wait([limit, notice].into_iter().flatten().min().map(|at| at.saturating_sub(waited)))
            }
        }
    }
}

/// Who is awaited, from where each process says it is: how many meetings it has come to, none where it does not answer.
#[cfg_attr(not(feature = "mpi"), allow(dead_code, reason = "threads see who has come; processes have to ask"))]
pub(super) fn behind(places: &[Option<u64>], here: u64) -> Vec<usize> {
    let silent: Vec<usize> = (0..places.len()).filter(|&rank| places[rank].is_none()).collect();
    if !silent.is_empty() {
        return silent;
    }
    // All wait, some at an earlier place: they wait for each other there.
    (0..places.len()).filter(|&rank| places[rank].is_some_and(|place| place < here)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_speaks_once_and_then_gives_up_unless_told_to_wait() {
        let seconds = Duration::from_secs;
        let waiting = Waiting { limit: Some(seconds(100)), notice: seconds(30), ..Waiting::default() };
        assert_eq!(waiting.after(seconds(10), Until::Limit, false), Next::Wait(Some(seconds(20))));
        assert_eq!(waiting.after(seconds(30), Until::Limit, false), Next::Notice);
        assert_eq!(waiting.after(seconds(31), Until::Limit, true), Next::Wait(Some(seconds(69))));
        assert_eq!(waiting.after(seconds(100), Until::Limit, true), Next::GiveUp);
        assert_eq!(waiting.after(seconds(100_000), Until::Done, false), Next::Wait(None));
        let patient = Waiting { limit: None, ..waiting };
        assert_eq!(patient.after(seconds(100_000), Until::Limit, true), Next::Wait(None));
    }

    #[test]
    fn whoever_is_silent_is_awaited_and_else_whoever_is_behind() {
        assert_eq!(behind(&[Some(7), None, Some(6), None], 7), [1, 3]);
        assert_eq!(behind(&[Some(7), Some(6), Some(7)], 7), [1]);
        assert_eq!(behind(&[Some(7), Some(7)], 7), [0; 0]);
    }
}
