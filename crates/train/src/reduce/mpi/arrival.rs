//! How MPI's processes wait for each other with a limit.
//!
//! MPI's collectives wait for ever, so those are used that can be asked whether they are done. All come to a barrier first: until
//! it is passed, whoever gives up ends in order. What follows it is exchanged at once, unless somebody hangs in the middle; memory
//! is lent to MPI by then, so that giving up ends all processes where they are. Whoever has waited for long asks the others where
//! they are. Those who wait too answer; those who do not are awaited.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use mpi::Tag;
use mpi::request::{Request, Scope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, Source};

use super::super::waiting::{Next, behind};
use super::super::{Awaited, PeerError, Until, Waiting};

/// Until then a process that waits does nothing else, as MPI's own collectives do: on a busy machine a core that is given away
/// comes back milliseconds later.
const EAGER: Duration = Duration::from_micros(200);
/// Until then it gives its core to others that want it; afterwards it sleeps in between.
const AWAKE: Duration = Duration::from_millis(5);
/// For how long it does.
const NAP: Duration = Duration::from_micros(100);
/// From then on it looks for questions of the others.
const LONG: Duration = Duration::from_millis(500);
/// For how long answers are waited for.
const ANSWERS: Duration = Duration::from_secs(3);
/// The status of a process that gave up.
const GAVE_UP: i32 = 1;
/// "Where are you?", with the number of the meeting that the asker is at.
const QUESTION: Tag = 31;
/// That number, and the one of the meeting that the answerer is at.
const ANSWER: Tag = 32;

/// The meetings of this process. A clone is the same process.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    waiting: Waiting,
    /// Meetings that it has come to.
    meetings: Arc<AtomicU64>,
    /// Why there will be no more.
    over: Arc<OnceLock<PeerError>>,
}

impl Arrivals {
    pub(super) fn new(waiting: Waiting) -> Self {
        Self { waiting, meetings: Arc::default(), over: Arc::default() }
    }

    /// Whether the others were waited for in vain: MPI cannot be shut down any more.
    pub(super) fn are_over(&self) -> bool {
        self.over.get().is_some()
    }

    /// Waits until all processes have come.
    pub(super) fn await_all(&self, until: Until) -> Result<(), PeerError> {
        if let Some(over) = self.over.get() {
            return Err(over.clone());
        }
        self.meetings.fetch_add(1, Ordering::Relaxed);
        self.complete(SimpleCommunicator::world().immediate_barrier(), until, false).map_err(|(barrier, awaited)| {
            // It can be neither completed nor taken back.
            std::mem::forget(barrier);
            self.over.get_or_init(|| PeerError::Late(awaited)).clone()
        })
    }

    /// Waits until what all have come for is done.
    pub(super) fn finish<'a, D: ?Sized, S: Scope<'a>>(&self, request: Request<'a, D, S>) {
        if let Err((_request, awaited)) = self.complete(request, Until::Limit, true) {
            let world = SimpleCommunicator::world();
            (self.waiting.say)(&format!("error in process {}: {}", world.rank(), PeerError::Late(awaited)));
            world.abort(GAVE_UP)
        }
    }

    /// Waits until something is done; the request and who is awaited where that takes too long. Where all `have_come` it does
    /// not sleep in between: they are at it.
    fn complete<'a, D: ?Sized, S: Scope<'a>>(
        &self,
        mut request: Request<'a, D, S>,
        until: Until,
        have_come: bool,
    ) -> Result<(), (Request<'a, D, S>, Awaited)> {
        let (began, mut said, mut asked) = (Instant::now(), false, None::<Asked>);
        loop {
            request = match request.test() {
                Ok(_) => return Ok(()),
                Err(request) => request,
            };
            let waited = began.elapsed();
            if waited < EAGER {
                std::hint::spin_loop();
                continue;
            }
            if waited < AWAKE || have_come {
                std::thread::yield_now();
            } else {
                std::thread::sleep(NAP);
            }
            if waited < LONG {
                continue;
            }
            let (world, here) = (SimpleCommunicator::world(), self.meetings.load(Ordering::Relaxed));
            answer(&world, here);
            if let Some(asked) = &mut asked {
                asked.listen(&world, here);
            }
            let next = self.waiting.after(waited, until, said);
            if let Next::Wait(_) = next {
                continue;
            }
            // Who is awaited is known a little later.
            let question = asked.get_or_insert_with(|| Asked::now(&world, here));
            if question.since.elapsed() < ANSWERS {
                continue;
            }
            let awaited = Awaited { ranks: behind(&question.places, here), seconds: waited.as_secs() };
            if next == Next::GiveUp {
                return Err((request, awaited));
            }
            // One of those who wait is enough.
            let first_here = question.places.iter().position(Option::is_some);
            if !awaited.ranks.is_empty() && first_here == Some(world.rank() as usize) {
                (self.waiting.say)(&format!("waiting: {awaited}"));
            }
            // They are asked again before anybody gives up.
            (asked, said) = (None, true);
        }
    }
}

/// Answers who asks where this process is.
fn answer(world: &SimpleCommunicator, here: u64) {
    while let Some(status) = world.any_process().immediate_probe_with_tag(QUESTION) {
        let asker = world.process_at_rank(status.source_rank());
        let (meeting, _) = asker.receive_with_tag::<u64>(QUESTION);
        asker.send_with_tag(&[meeting, here][..], ANSWER);
    }
}

/// The others were asked where they are.
struct Asked {
    since: Instant,
    /// What they have said, and this process itself.
    places: Vec<Option<u64>>,
}

impl Asked {
    /// Asks them.
    fn now(world: &SimpleCommunicator, here: u64) -> Self {
        let mut places = vec![None; world.size() as usize];
        places[world.rank() as usize] = Some(here);
        for rank in (0..world.size()).filter(|&rank| rank != world.rank()) {
            world.process_at_rank(rank).send_with_tag(&here, QUESTION);
        }
        Self { since: Instant::now(), places }
    }

    fn listen(&mut self, world: &SimpleCommunicator, here: u64) {
        while let Some(status) = world.any_process().immediate_probe_with_tag(ANSWER) {
            let mut said = [0; 2];
            world.process_at_rank(status.source_rank()).receive_into_with_tag(&mut said[..], ANSWER);
            // Others are to a question of an earlier meeting.
            if said[0] == here {
                self.places[status.source_rank() as usize] = Some(said[1]);
            }
        }
    }
}
