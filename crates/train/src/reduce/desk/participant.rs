//! What one process has heard from the desk, and how it waits to hear more.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::super::waiting::Next;
use super::super::{Awaited, PeerError, Until, Waiting};
use super::frame::{Brought, FromDesk};

/// What ends a wait in the carrier.
type GiveUp = Arc<dyn Fn() + Send + Sync>;

/// One process, as the desk speaks to it.
#[derive(Default)]
pub(super) struct Participant {
    heard: Mutex<Heard>,
    changed: Condvar,
}

#[derive(Default)]
struct Heard {
    /// The last meeting that is over, until it is taken.
    together: Option<(u64, Vec<Brought>)>,
    over: Option<PeerError>,
    in_vain: bool,
    /// Whether this process has ended.
    has_left: bool,
    give_up: Option<GiveUp>,
}

impl fmt::Debug for Participant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Participant").finish_non_exhaustive()
    }
}

impl Participant {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        // Nothing in here is ever half changed.
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The desk has said something.
    pub fn hear(&self, said: FromDesk) {
        let mut heard = self.heard();
        let ends_waits = match said {
            FromDesk::Together { meeting, all } => {
                heard.together = Some((meeting, all));
                false
            }
            FromDesk::Over(why) => {
                heard.over.get_or_insert(why);
                true
            }
            FromDesk::InVain => {
                heard.in_vain = true;
                true
            }
            // What is on its way in the carrier may still arrive.
            FromDesk::Bye => {
                heard.over.get_or_insert_with(|| PeerError::Lost("process 0 has ended".to_owned()));
                false
            }
        };
        self.changed.notify_all();
        let give_up = heard.give_up.clone().filter(|_| ends_waits);
        drop(heard);
        // Never under the lock: it is somebody else's code.
        give_up.into_iter().for_each(|give_up| give_up());
    }

    /// What ends this process's waits in the carrier from now on.
    pub fn give_up_with(&self, give_up: GiveUp) {
        let mut heard = self.heard();
        let is_late = heard.over.is_some() || heard.in_vain;
        heard.give_up = Some(give_up.clone());
        drop(heard);
        if is_late {
            give_up();
        }
    }

    /// Ends this process's waits in the carrier, whatever they are for.
    pub fn give_up(&self) {
        let give_up = self.heard().give_up.clone();
        give_up.into_iter().for_each(|give_up| give_up());
    }

    /// Why this process can do nothing more with the others.
    pub fn over(&self) -> Option<PeerError> {
        self.heard().over.clone()
    }

    /// Why it can use the carrier no more.
    pub fn end_of_carrier(&self) -> Option<PeerError> {
        let heard = self.heard();
        heard.over.clone().or(heard.in_vain.then_some(PeerError::Elsewhere))
    }

    /// The same, which may become known a little later.
    pub fn end_of_carrier_within(&self, most: Duration) -> Option<PeerError> {
        let not_yet = |heard: &mut Heard| heard.over.is_none() && !heard.in_vain;
        drop(self.changed.wait_timeout_while(self.heard(), most, not_yet).unwrap_or_else(PoisonError::into_inner));
        self.end_of_carrier()
    }

    /// This process has ended.
    pub fn leave(&self) {
        self.heard().has_left = true;
        self.changed.notify_all();
    }

    /// Whether it ends within this time.
    pub fn leaves_within(&self, most: Duration) -> bool {
        let not_yet = |heard: &mut Heard| !heard.has_left;
        self.changed.wait_timeout_while(self.heard(), most, not_yet).unwrap_or_else(PoisonError::into_inner).0.has_left
    }

    /// Waits for a meeting to be over. The desk ends it when the time is up; `patience` later this process does so itself, should
    /// the desk not work any more.
    pub fn await_meeting(
        &self,
        meeting: u64,
        until: Until,
        waiting: &Waiting,
        patience: Duration,
    ) -> Result<Vec<Brought>, PeerError> {
        let began = Instant::now();
        let mut heard = self.heard();
        loop {
            // A meeting that took place counts, also where it was the last.
            if let Some((_, all)) = heard.together.take_if(|(number, _)| *number == meeting) {
                return Ok(all);
            }
            if let Some(over) = &heard.over {
                return Err(over.clone());
            }
            let waited = began.elapsed();
            let left = match waiting.after(waited.saturating_sub(patience), until, true) {
                Next::GiveUp => {
                    let late = PeerError::Late(Awaited { ranks: vec![0], seconds: waited.as_secs() });
                    heard.over = Some(late.clone());
                    return Err(late);
                }
                Next::Wait(left) => left.map(|left| left + patience),
                Next::Notice => Some(patience),
            };
            heard = match left {
                Some(left) => self.changed.wait_timeout(heard, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(heard).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}
