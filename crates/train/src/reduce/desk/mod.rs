//! Processes that meet over TCP at a desk, which process 0 keeps: as the store of torchrun stands beside NCCL.
//!
//! The desk carries words and a few numbers, knows who has come and who is gone, and lets nobody in who does not belong to the
//! run. What is large goes through a [`Carrier`](super::Carrier); [`Team`] is both. A process whose connection breaks ends the
//! others, also those that wait for it in the carrier.
//!
//! - `frame`, `greeting`: what is said, in few and counted bytes.
//! - `hall`: the rules. `keeper`: the threads that follow them at process 0. `guest`: how the others find it.
//! - `place`: where that is.

mod connection;
mod error;
mod frame;
mod greeting;
mod guest;
mod hall;
mod keeper;
mod participant;
mod place;
mod team;
#[cfg(test)]
mod tests;

use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use greeting::Greeting;
use keeper::Keeper;
use participant::Participant;

pub use error::DeskError;
pub use frame::FEW;
pub use place::Place;
pub use team::Team;

use super::{PeerError, Until, Waiting};
use frame::{Brought, ToDesk, write_frame};

/// How much longer than the desk a process waits for it.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a process whose connection has failed listens for the reason.
const REASON_WITHIN: Duration = Duration::from_secs(2);

/// Who a process is.
#[derive(Clone, Debug)]
pub struct Who {
    /// Its number, from 0.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
    /// The version of the program, which must be the same in all.
    pub version: String,
    /// What the processes of this run have in common, and no others.
    pub token: String,
}

impl Who {
    fn greeting(&self) -> Greeting {
        Greeting { version: self.version.clone(), token: self.token.clone(), rank: self.rank, ranks: self.ranks }
    }
}

/// The desk, as one process sees it. A clone is the same process; when the last is dropped, it has ended.
#[derive(Clone, Debug)]
pub struct Desk {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    rank: usize,
    ranks: usize,
    waiting: Waiting,
    participant: Arc<Participant>,
    line: Line,
    /// Meetings that it has come to.
    meetings: AtomicU64,
    /// How often it has used the carrier.
    carried: AtomicU64,
}

/// How a process speaks to the desk.
#[derive(Debug)]
enum Line {
    /// It keeps it.
    Here(Arc<Keeper>),
    There(Mutex<TcpStream>),
}

impl Desk {
    /// Opens the desk at this place in process 0; in the others, finds it. The others may come later: they are awaited where
    /// processes meet.
    pub fn open(place: &Place, who: &Who, waiting: Waiting) -> Result<Self, DeskError> {
        if who.rank == 0 {
            return Self::keep(place.listen()?, who, waiting);
        }
        let participant = Arc::new(Participant::default());
        let stream = guest::find(place, &who.greeting(), &waiting)?;
        let line = Line::There(guest::listen(stream, who.ranks, participant.clone())?);
        Ok(Self::with(who, waiting, participant, line))
    }

    /// Opens the desk in process 0, where somebody has given it the port.
    pub fn keep(listener: TcpListener, who: &Who, waiting: Waiting) -> Result<Self, DeskError> {
        let participant = Arc::new(Participant::default());
        let keeper = Keeper::open(listener, who.greeting(), waiting.clone(), participant.clone())?;
        Ok(Self::with(who, waiting, participant, Line::Here(keeper)))
    }

    fn with(who: &Who, waiting: Waiting, participant: Arc<Participant>, line: Line) -> Self {
        let (meetings, carried) = (AtomicU64::new(0), AtomicU64::new(0));
        let (rank, ranks) = (who.rank, who.ranks);
        Self { inner: Arc::new(Inner { rank, ranks, waiting, participant, line, meetings, carried }) }
    }

    /// Ends every connection of this process, as its death would.
    #[cfg(test)]
    fn cut_off(self) {
        match &self.inner.line {
            Line::Here(keeper) => keeper.close(false),
            Line::There(stream) => stream.lock().unwrap().shutdown(Shutdown::Both).unwrap(),
        }
        std::mem::forget(self);
    }

    /// What all have brought to the next meeting.
    fn meet(&self, brought: Brought, until: Until) -> Result<Vec<Brought>, PeerError> {
        let inner = &*self.inner;
        if let Some(over) = inner.participant.over() {
            return Err(over);
        }
        let meeting = inner.meetings.fetch_add(1, Ordering::Relaxed);
        inner.say(ToDesk::Came { meeting, until, brought })?;
        inner.participant.await_meeting(meeting, until, &inner.waiting, PATIENCE)
    }

    /// Does something with the carrier, which ends when it can no longer be done. The reason is the desk's where it has one: the
    /// carrier knows less.
    fn carry<R>(&self, work: impl FnOnce() -> Result<R, PeerError>) -> Result<R, PeerError> {
        let inner = &*self.inner;
        if let Some(end) = inner.participant.end_of_carrier() {
            return Err(end);
        }
        let times = inner.carried.fetch_add(1, Ordering::Relaxed) + 1;
        inner.say(ToDesk::Carrying(times))?;
        let done = work();
        let said = inner.say(ToDesk::Carried { times, well: done.is_ok() });
        match done {
            // The others may be lost by now: whoever meets them next hears of it.
            Ok(done) => Ok(done),
            Err(error @ PeerError::Device(_)) => Err(error),
            Err(error) => {
                said?;
                Err(inner.participant.end_of_carrier_within(REASON_WITHIN).unwrap_or(error))
            }
        }
    }
}

impl Inner {
    fn say(&self, said: ToDesk) -> Result<(), PeerError> {
        match &self.line {
            Line::Here(keeper) => keeper.hear(0, said),
            Line::There(stream) => {
                let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
                if let Err(error) = write_frame(&mut *stream, &said.to_frame()) {
                    drop(stream);
                    let lost = || PeerError::Lost(format!("process 0 is gone ({})", connection::broke(&error)));
                    return Err(self.participant.end_of_carrier_within(REASON_WITHIN).unwrap_or_else(lost));
                }
            }
        }
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // One that panics has not ended in order: the others would wait in the carrier for what does not come.
        let in_order = !std::thread::panicking();
        self.participant.leave();
        match &self.line {
            Line::Here(keeper) => keeper.close(in_order),
            Line::There(stream) => {
                let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
                if in_order {
                    _ = write_frame(&mut *stream, &ToDesk::Bye.to_frame());
                }
                _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}
