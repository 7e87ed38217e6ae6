//! The rules of the desk, without connections and clocks: who has come, who waits in the carrier, who has left, and what that
//! means for the others.
//!
//! - A meeting is over when all have come. Whoever has waited for too long ends it for all, as [`Waiting`] has it.
//! - A process whose connection breaks ends everything.
//! - One that ends in order ends the meetings to come. What it has carried before, the others may complete.
//! - One that has come to a meeting to say that it failed, or instead of something that others have left to the carrier, will not
//!   help to carry it. They are told, since nothing else would end their wait, in the carrier or later for what was to come
//!   of it: GPUs are waited for when their results are read.

use std::time::{Duration, Instant};

use super::super::group::Word;
use super::super::waiting::Next;
use super::super::{Awaited, PeerError, Until, Waiting};
use super::frame::{Brought, FromDesk, ToDesk};

/// How long others may wait for what the carrier is to bring while one of them has come to a meeting with a failure.
pub(super) const IN_VAIN: Duration = Duration::from_secs(10);

/// What is to be done after something was heard.
#[derive(Debug)]
pub(super) enum Order {
    /// Tell all processes.
    Tell(FromDesk),
    /// Tell the person who looks on.
    Say(String),
}

/// Where a process is.
#[derive(Debug, Default)]
struct Place {
    /// Whether its connection stands.
    is_here: bool,
    /// What it has brought to this meeting.
    came: Option<(Instant, Until, Brought)>,
    /// How often it has used the carrier, and how often in vain or not yet to the end.
    entered: u64,
    carried: u64,
    /// When it did last, unless it has come to a meeting since.
    used: Option<Instant>,
    left: Option<Instant>,
}

impl Place {
    /// Since when it is clear that it does not help to carry what others have used the carrier for the n-th time for.
    fn stays_away(&self, times: u64) -> Option<Instant> {
        let came = self.came.as_ref().map(|(since, _, brought)| (*since, brought.word == Word::Yes));
        let (since, has_failed) = self.left.map(|left| (left, false)).or(came)?;
        (has_failed || self.carried < times).then_some(since)
    }
}

/// The processes of a run as the desk knows them.
#[derive(Debug)]
pub(super) struct Hall {
    waiting: Waiting,
    meeting: u64,
    places: Vec<Place>,
    /// Whether it was said who is awaited, at this meeting or in the carrier at this use.
    said: bool,
    said_of_carrier: u64,
    in_vain: bool,
    over: Option<PeerError>,
}

impl Hall {
    pub fn new(ranks: usize, waiting: Waiting) -> Self {
        let places = (0..ranks).map(|_| Place::default()).collect();
        Self { waiting, meeting: 0, places, said: false, said_of_carrier: 0, in_vain: false, over: None }
    }

    /// A process sits down; not where one of its number has before.
    pub fn sit(&mut self, rank: usize) -> bool {
        !std::mem::replace(&mut self.places[rank].is_here, true)
    }

    /// Why there are no more meetings.
    pub fn over(&self) -> Option<&PeerError> {
        self.over.as_ref()
    }

    /// Whether a process has ended in order.
    pub fn has_left(&self, rank: usize) -> bool {
        self.places[rank].left.is_some()
    }

    /// Whether all have a connection, or none is needed any more.
    pub fn is_complete(&self) -> bool {
        self.over.is_some() || self.places.iter().all(|place| place.is_here)
    }

    /// A process has said something.
    pub fn hear(&mut self, rank: usize, said: ToDesk, now: Instant) -> Vec<Order> {
        let expected = self.meeting;
        let place = &mut self.places[rank];
        match said {
            ToDesk::Came { meeting, until, brought } => {
                if meeting != expected || place.came.is_some() {
                    return self.broken(rank, "it came to another meeting than the others");
                }
                place.came = Some((now, until, brought));
                place.used = None;
                self.go_on()
            }
            ToDesk::Carrying(times) => {
                (place.entered, place.used) = (times, Some(now));
                Vec::new()
            }
            ToDesk::Carried { times, well } => {
                if well {
                    place.carried = times;
                }
                Vec::new()
            }
            ToDesk::Bye => {
                place.left.get_or_insert(now);
                self.go_on()
            }
        }
    }

    /// Ends the meeting if all are there, and all meetings if somebody waits for one that has left.
    fn go_on(&mut self) -> Vec<Order> {
        if self.over.is_some() || self.places.iter().all(|place| place.came.is_none()) {
            return Vec::new();
        }
        if let Some(rank) = self.places.iter().position(|place| place.left.is_some()) {
            return self.end(PeerError::Lost(format!("process {rank} has ended")));
        }
        if self.places.iter().any(|place| place.came.is_none()) {
            return Vec::new();
        }
        let all = self.places.iter_mut().filter_map(|place| place.came.take()).map(|(.., brought)| brought).collect();
        let together = FromDesk::Together { meeting: self.meeting, all };
        self.meeting += 1;
        self.said = false;
        vec![Order::Tell(together)]
    }

    fn end(&mut self, why: PeerError) -> Vec<Order> {
        if self.over.is_some() {
            return Vec::new();
        }
        self.over = Some(why.clone());
        vec![Order::Tell(FromDesk::Over(why))]
    }

    /// The connection of a process has broken. After an end in order that is what one expects.
    pub fn broken(&mut self, rank: usize, why: &str) -> Vec<Order> {
        if self.places[rank].left.is_some() {
            return Vec::new();
        }
        self.end(PeerError::Lost(format!("process {rank} is gone ({why})")))
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant) -> Vec<Order> {
        if self.over.is_some() {
            return Vec::new();
        }
        let mut orders = self.tick_of_meeting(now);
        orders.extend(self.tick_of_carrier(now));
        orders
    }

    fn tick_of_meeting(&mut self, now: Instant) -> Vec<Order> {
        let limited = |place: &Place| match &place.came {
            Some((since, Until::Limit, _)) => Some(*since),
            _ => None,
        };
        let Some(since) = self.places.iter().filter_map(limited).min() else { return Vec::new() };
        let missing = self.ranks_where(|place| place.came.is_none());
        let waited = now.saturating_duration_since(since);
        let awaited = Awaited { ranks: missing, seconds: waited.as_secs() };
        match self.waiting.after(waited, Until::Limit, self.said) {
            Next::Wait(_) => Vec::new(),
            Next::Notice => {
                self.said = true;
                vec![Order::Say(format!("waiting: {awaited}"))]
            }
            Next::GiveUp => self.end(PeerError::Late(awaited)),
        }
    }

    fn tick_of_carrier(&mut self, now: Instant) -> Vec<Order> {
        let used = || self.places.iter().filter_map(|place| place.used.map(|since| (place.entered, since)));
        let is_in_vain = |(times, since): (u64, Instant)| {
            let away = self.places.iter().filter_map(|place| place.stays_away(times)).min();
            away.is_some_and(|away| now.saturating_duration_since(away.max(since)) >= IN_VAIN)
        };
        if !self.in_vain && used().any(is_in_vain) {
            self.in_vain = true;
            return vec![Order::Tell(FromDesk::InVain)];
        }
        // What the fewest have come to.
        let Some((times, since)) = used().min() else { return Vec::new() };
        let waited = now.saturating_duration_since(since);
        let awaited = Awaited { ranks: self.ranks_where(|place| place.entered < times), seconds: waited.as_secs() };
        // Where all have used it and some have come to the next meeting, one of them does something alone.
        if awaited.ranks.is_empty() && self.places.iter().any(|place| place.used.is_none()) {
            return Vec::new();
        }
        match self.waiting.after(waited, Until::Limit, self.said_of_carrier == times) {
            Next::Wait(_) => Vec::new(),
            Next::Notice => {
                self.said_of_carrier = times;
                let is_known = !awaited.ranks.is_empty();
                is_known.then(|| Order::Say(format!("waiting: {awaited}"))).into_iter().collect()
            }
            Next::GiveUp => self.end(PeerError::Late(awaited)),
        }
    }

    fn ranks_where(&self, is_so: impl Fn(&Place) -> bool) -> Vec<usize> {
        (0..self.places.len()).filter(|&rank| is_so(&self.places[rank])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hall(ranks: usize, limit: u64) -> Hall {
        let seconds = Duration::from_secs;
        Hall::new(ranks, Waiting { limit: Some(seconds(limit)), notice: seconds(30), ..Waiting::default() })
    }

    fn came(meeting: u64, until: Until) -> ToDesk {
        ToDesk::Came { meeting, until, brought: Brought { word: Word::No, length: 0, numbers: Vec::new() } }
    }

    /// What is ordered, in words.
    fn words(orders: &[Order]) -> String {
        let word = |order: &Order| match order {
            Order::Tell(FromDesk::Together { meeting, all }) => format!("meeting {meeting} of {}", all.len()),
            Order::Tell(FromDesk::Over(why)) => why.to_string(),
            Order::Tell(FromDesk::InVain) => "in vain".to_owned(),
            Order::Tell(FromDesk::Bye) => "bye".to_owned(),
            Order::Say(words) => words.clone(),
        };
        orders.iter().map(word).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn a_meeting_is_over_when_all_have_come_and_the_next_begins() {
        let (mut hall, now) = (hall(3, 100), Instant::now());
        for meeting in 0..3 {
            assert_eq!(words(&hall.hear(2, came(meeting, Until::Limit), now)), "");
            assert_eq!(words(&hall.hear(0, came(meeting, Until::Limit), now)), "");
            let ended = words(&hall.hear(1, came(meeting, Until::Limit), now));
            assert_eq!(ended, format!("meeting {meeting} of 3"));
        }
        let twice = words(&hall.hear(1, came(7, Until::Limit), now));
        assert!(twice.contains("process 1 is gone (it came to another meeting than the others)"), "{twice}");
    }

    #[test]
    fn who_does_not_come_is_named_once_and_then_given_up() {
        let (mut hall, now) = (hall(3, 100), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        hall.hear(0, came(0, Until::Limit), now);
        assert_eq!(words(&hall.tick(after(29))), "");
        assert_eq!(words(&hall.tick(after(31))), "waiting: processes 1 and 2 have not come for 31 s");
        hall.hear(2, came(0, Until::Limit), after(40));
        assert_eq!(words(&hall.tick(after(99))), "");
        assert!(words(&hall.tick(after(100))).starts_with("process 1 has not come for 100 s"));
        assert_eq!(words(&hall.tick(after(200))), "", "once");
        assert_eq!(words(&hall.hear(1, came(0, Until::Limit), after(200))), "");
    }

    #[test]
    fn whoever_waits_until_it_is_done_gives_nobody_up() {
        let (mut hall, now) = (hall(2, 100), Instant::now());
        hall.hear(1, came(0, Until::Done), now);
        assert_eq!(words(&hall.tick(now + Duration::from_secs(10_000))), "");
    }

    #[test]
    fn who_is_gone_ends_all_and_who_leaves_ends_what_others_come_for() {
        let now = Instant::now();
        let mut of_three = hall(3, 100);
        assert!(words(&of_three.broken(2, "killed")).ends_with("process 2 is gone (killed)"));
        assert_eq!(words(&of_three.broken(1, "killed")), "", "once");
        let mut hall = hall(3, 100);
        assert_eq!(words(&hall.hear(1, ToDesk::Bye, now)), "", "nobody waits for it");
        assert_eq!(words(&hall.broken(1, "its connection broke")), "", "as one expects");
        assert!(words(&hall.hear(0, came(0, Until::Done), now)).ends_with("process 1 has ended"));
    }

    #[test]
    fn who_waits_in_the_carrier_for_one_that_has_failed_is_told() {
        let (mut hall, now) = (hall(3, 100), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        for rank in 0..3 {
            hall.hear(rank, ToDesk::Carrying(1), now);
        }
        hall.hear(2, ToDesk::Carried { times: 1, well: false }, now);
        hall.hear(2, came(0, Until::Limit), after(1));
        assert_eq!(words(&hall.tick(after(10))), "");
        assert_eq!(words(&hall.tick(after(11))), "in vain");
        assert_eq!(words(&hall.tick(after(12))), "", "once");
        for rank in 0..2 {
            hall.hear(rank, ToDesk::Carried { times: 1, well: false }, after(12));
        }
        hall.hear(0, came(0, Until::Limit), after(12));
        assert_eq!(words(&hall.hear(1, came(0, Until::Limit), after(12))), "meeting 0 of 3", "they decide together");
    }

    #[test]
    fn who_waits_for_a_gpu_that_waits_for_one_that_has_failed_is_told() {
        // The carrier has returned in all of them: what it brings is awaited elsewhere.
        for (word, seconds, expected) in [(Word::Yes, 9, ""), (Word::Yes, 10, "in vain"), (Word::No, 99, "")] {
            let (mut hall, now) = (hall(3, 100), Instant::now());
            for rank in 0..3 {
                hall.hear(rank, ToDesk::Carrying(1), now);
                hall.hear(rank, ToDesk::Carried { times: 1, well: true }, now);
            }
            let brought = Brought { word, length: 0, numbers: Vec::new() };
            hall.hear(1, ToDesk::Came { meeting: 0, until: Until::Done, brought }, now);
            assert_eq!(words(&hall.tick(now + Duration::from_secs(seconds))), expected, "{word:?} after {seconds} s");
        }
    }

    #[test]
    fn who_asks_to_stop_while_others_take_their_time_disturbs_nothing() {
        let (mut hall, now) = (hall(2, 100), Instant::now());
        for rank in 0..2 {
            hall.hear(rank, ToDesk::Carrying(1), now);
            hall.hear(rank, ToDesk::Carried { times: 1, well: true }, now);
            hall.hear(rank, came(0, Until::Limit), now);
        }
        let brought = Brought { word: Word::Yes, length: 0, numbers: Vec::new() };
        hall.hear(1, ToDesk::Came { meeting: 1, until: Until::Limit, brought }, now);
        assert_eq!(words(&hall.tick(now + Duration::from_secs(29))), "", "the other one waits for data");
    }

    #[test]
    fn who_has_carried_its_part_may_come_to_the_next_meeting_while_one_works_alone() {
        let (mut hall, now) = (hall(3, 100), Instant::now());
        for rank in 0..3 {
            hall.hear(rank, ToDesk::Carrying(1), now);
            hall.hear(rank, ToDesk::Carried { times: 1, well: true }, now);
        }
        hall.hear(1, came(0, Until::Done), now);
        hall.hear(2, came(0, Until::Done), now);
        assert_eq!(words(&hall.tick(now + Duration::from_secs(1000))), "", "the first writes a checkpoint");
    }

    #[test]
    fn where_all_wait_for_the_carrier_it_is_given_up_in_the_end() {
        let (mut hall, now) = (hall(3, 100), Instant::now());
        for rank in 0..3 {
            hall.hear(rank, ToDesk::Carrying(1), now);
            hall.hear(rank, ToDesk::Carried { times: 1, well: true }, now);
        }
        assert_eq!(words(&hall.tick(now + Duration::from_secs(99))), "");
        let stuck = words(&hall.tick(now + Duration::from_secs(101)));
        assert!(stuck.starts_with("some process has not come for 101 s"), "{stuck}");
    }

    #[test]
    fn who_does_not_come_to_the_carrier_is_named_and_given_up() {
        let (mut hall, now) = (hall(3, 100), Instant::now());
        hall.hear(0, ToDesk::Carrying(4), now);
        // Of one the carrier has returned, and its GPU waits.
        hall.hear(1, ToDesk::Carrying(4), now);
        hall.hear(1, ToDesk::Carried { times: 4, well: true }, now);
        let waiting = words(&hall.tick(now + Duration::from_secs(30)));
        assert_eq!(waiting, "waiting: process 2 has not come for 30 s");
        let late = words(&hall.tick(now + Duration::from_secs(100)));
        assert!(late.starts_with("process 2 has not come for 100 s"), "{late}");
    }
}
