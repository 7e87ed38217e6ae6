//! The desk at process 0: a thread that lets processes in, one for each that listens to it, and one that looks at the clock.
//!
//! What follows from what is heard, [`Hall`] says. Nobody is let in any more once all are there.

use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::super::Waiting;
use super::connection::{broke, prepare, settle};
use super::error::DeskError;
use super::frame::{FromDesk, LONGEST_TO_DESK, ToDesk, read_frame, write_frame};
use super::greeting::{Answer, Greeting, Hurried, IN_TIME};
use super::hall::{Hall, Order};
use super::participant::Participant;

/// Connections at a time that have not said yet who they are. More are sent away unheard.
const MOST_STRANGERS: usize = 64;
/// How often it is looked whether somebody comes, until all are there.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How often the clock is looked at.
const TICK: Duration = Duration::from_millis(250);
/// How long process 0 stays when it ends, for the others to hear what it has said last.
const LINGER: Duration = Duration::from_secs(3);

/// The desk.
#[derive(Debug)]
pub(super) struct Keeper {
    greeting: Greeting,
    waiting: Waiting,
    hall: Mutex<Hall>,
    /// Process 0 itself.
    participant: Arc<Participant>,
    /// The connections to the others, by rank; that of 0 stays empty.
    seats: Vec<OnceLock<Mutex<TcpStream>>>,
    strangers: AtomicUsize,
    /// Whether process 0 has ended. Set with the hall locked, as seats are taken: whoever sits down sees it, or is seen.
    is_closed: AtomicBool,
    /// Threads that listen to a process, and how to wait for them.
    listening: Mutex<usize>,
    gone: Condvar,
}

impl Keeper {
    /// Opens the desk at a port that is held already.
    pub fn open(
        listener: TcpListener,
        greeting: Greeting,
        waiting: Waiting,
        participant: Arc<Participant>,
    ) -> Result<Arc<Self>, DeskError> {
        let ranks = greeting.ranks;
        let mut hall = Hall::new(ranks, waiting.clone());
        hall.sit(0);
        let keeper = Arc::new(Self {
            greeting,
            waiting,
            hall: Mutex::new(hall),
            participant,
            seats: (0..ranks).map(|_| OnceLock::new()).collect(),
            strangers: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            listening: Mutex::new(0),
            gone: Condvar::new(),
        });
        listener.set_nonblocking(true)?;
        let doorman = keeper.clone();
        thread::Builder::new().name("desk door".into()).spawn(move || doorman.let_in(&listener))?;
        let clock = keeper.clone();
        thread::Builder::new().name("desk clock".into()).spawn(move || {
            while !clock.is_closed.load(Ordering::Relaxed) {
                thread::sleep(TICK);
                let orders = clock.hall().tick(Instant::now());
                clock.carry_out(orders);
            }
        })?;
        Ok(keeper)
    }

    fn hall(&self) -> MutexGuard<'_, Hall> {
        self.hall.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process has said something; of 0 it is known without a connection.
    pub fn hear(&self, rank: usize, said: ToDesk) {
        let orders = self.hall().hear(rank, said, Instant::now());
        self.carry_out(orders);
    }

    fn carry_out(&self, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Say(words) => (self.waiting.say)(&words),
                Order::Tell(said) => {
                    let frame = said.to_frame();
                    // First those who are far away.
                    (1..self.seats.len()).for_each(|rank| self.tell(rank, &frame));
                    self.participant.hear(said);
                }
            }
        }
    }

    fn tell(&self, rank: usize, frame: &[u8]) {
        let Some(seat) = self.seats[rank].get() else { return };
        let mut stream = seat.lock().unwrap_or_else(PoisonError::into_inner);
        if write_frame(&mut *stream, frame).is_err() {
            // Whoever listens to it sees that the connection is gone, and says so to all.
            _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Lets processes in until all are there.
    fn let_in(self: Arc<Self>, listener: &TcpListener) {
        while !self.hall().is_complete() && !self.is_closed.load(Ordering::Relaxed) {
            let Ok((stream, _)) = listener.accept() else {
                thread::sleep(LOOK_EVERY);
                continue;
            };
            if self.strangers.fetch_add(1, Ordering::Relaxed) >= MOST_STRANGERS {
                self.strangers.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let keeper = self.clone();
            let greeted = thread::Builder::new().name("desk guest".into()).spawn(move || {
                let sat_down = keeper.greet(&stream);
                keeper.strangers.fetch_sub(1, Ordering::Relaxed);
                if let Some(rank) = sat_down {
                    keeper.listen_to(rank, stream);
                }
            });
            if greeted.is_err() {
                self.strangers.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Finds out who has come; the number of a process that was let in.
    fn greet(&self, stream: &TcpStream) -> Option<usize> {
        prepare(stream).ok()?;
        let mut hurried = Hurried::new(stream, IN_TIME);
        let other = Greeting::receive(&mut hurried).ok()?;
        let mut answer = self.greeting.answer_to(&other);
        if answer == Answer::Welcome && !self.hall().sit(other.rank) {
            answer = Answer::Refused(format!("there is a process {} already", other.rank));
        }
        if let Answer::Refused(why) = &answer {
            (self.waiting.say)(&format!("a process of this run was refused: {}", text::message(why)));
        }
        let sent = answer.send(&mut hurried).and_then(|()| hurried.flush());
        if answer != Answer::Welcome {
            return None;
        }
        if let Err(error) = sent {
            let orders = self.hall().broken(other.rank, &broke(&error));
            self.carry_out(orders);
            return None;
        }
        Some(other.rank)
    }

    fn listen_to(&self, rank: usize, mut stream: TcpStream) {
        *self.listening.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        let broken = self.seat(rank, &stream).and_then(|()| {
            loop {
                let said = ToDesk::of_frame(&read_frame(&mut stream, LONGEST_TO_DESK)?)?;
                self.hear(rank, said);
            }
        });
        // Where process 0 itself ends, it has closed the connection.
        if let (Err::<(), _>(error), false) = (broken, self.is_closed.load(Ordering::Relaxed)) {
            let orders = self.hall().broken(rank, &broke(&error));
            self.carry_out(orders);
        }
        *self.listening.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.gone.notify_all();
    }

    /// Gives a process its seat, by which it hears what is said to all.
    pub fn seat(&self, rank: usize, stream: &TcpStream) -> std::io::Result<()> {
        settle(stream)?;
        let seat = Mutex::new(stream.try_clone()?);
        let hall = self.hall();
        _ = self.seats[rank].set(seat);
        // What was said before it could hear.
        let over = hall.over().cloned().map(FromDesk::Over);
        let bye = hall.has_left(0).then_some(FromDesk::Bye);
        let is_closed = self.is_closed.load(Ordering::Relaxed);
        drop(hall);
        over.into_iter().chain(bye).for_each(|said| self.tell(rank, &said.to_frame()));
        if is_closed {
            stream.shutdown(Shutdown::Both)?;
        }
        Ok(())
    }

    /// Process 0 ends: in order, or in the middle of something.
    pub fn close(&self, in_order: bool) {
        if in_order {
            self.hear(0, ToDesk::Bye);
            let frame = FromDesk::Bye.to_frame();
            (1..self.seats.len()).for_each(|rank| self.tell(rank, &frame));
        }
        let hall = self.hall();
        self.is_closed.store(true, Ordering::Relaxed);
        drop(hall);
        let seats = || self.seats.iter().filter_map(OnceLock::get);
        let shut = |how| seats().for_each(|seat| _ = seat.lock().unwrap_or_else(PoisonError::into_inner).shutdown(how));
        if in_order {
            shut(Shutdown::Write);
            let listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
            drop(self.gone.wait_timeout_while(listening, LINGER, |count| *count > 0));
        }
        shut(Shutdown::Both);
    }
}
