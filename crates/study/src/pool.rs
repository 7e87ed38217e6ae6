//! Several runs at work at a time, each a process of its own: one that fails takes no other with it.

use std::io;
use std::process::{Child, ExitStatus};
use std::thread::sleep;
use std::time::Duration;

/// How often it is looked whether a process has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Processes at a time.
    pub at_once: usize,
    /// Bytes of the device's memory that they may take together; none where that does not matter.
    pub memory: Option<u64>,
}

impl Room {
    /// The same with no more processes than could be at work at a time: each gets its share of the machine by this number.
    pub fn for_runs(self, memory: &[u64]) -> Self {
        let mut smallest = memory.to_vec();
        smallest.sort_unstable();
        let mut taken = 0;
        let fits = |bytes: &&u64| {
            taken += **bytes;
            self.memory.is_none_or(|most| taken <= most)
        };
        let at_once = smallest.iter().take_while(fits).count();
        Self { at_once: at_once.clamp(1, self.at_once.max(1)), ..self }
    }
}

/// What became of an attempt to start a run.
#[derive(Debug)]
pub enum Started {
    /// It is at work.
    Process(Child),
    /// Another process still works on it: one of a study that was killed needs a moment to stop. It is tried again.
    Busy,
}

/// What happens to a run, by its number.
#[derive(Debug)]
pub enum Event {
    /// It has begun.
    Began(usize),
    /// It has to wait for another process.
    Waits(usize),
    /// Its process has ended.
    Ended(usize, ExitStatus),
    /// It could not be started.
    NotStarted(usize, io::Error),
}

/// What a pool asks of its user.
pub trait Work {
    /// Starts a run.
    fn start(&mut self, run: usize) -> io::Result<Started>;
    /// Asks a run's process to save and stop.
    fn stop(&mut self, process: &mut Child);
    /// Hears of what happens.
    fn heard(&mut self, event: Event);
    /// Called several times a second while runs are at work.
    fn tick(&mut self) {}
    /// Whether everything is to stop.
    fn should_stop(&self) -> bool;
}

/// Has runs at work in this order, as many at a time as there is room for. `memory` is what each needs on the device; one that
/// needs more than there is runs alone, since it may know better. Whether all have ended: not where it was to stop.
pub fn run_all(order: &[usize], memory: &[u64], room: Room, work: &mut dyn Work) -> io::Result<bool> {
    let mut waiting = order.to_vec();
    let mut told = vec![false; memory.len()];
    let mut running: Vec<(usize, Child)> = Vec::new();
    let mut is_stopping = false;
    while !running.is_empty() || !(waiting.is_empty() || is_stopping) {
        if work.should_stop() && !is_stopping {
            is_stopping = true;
            running.iter_mut().for_each(|(_, process)| work.stop(process));
        }
        let mut ended = Vec::new();
        for (at, (run, process)) in running.iter_mut().enumerate() {
            if let Some(status) = process.try_wait()? {
                work.heard(Event::Ended(*run, status));
                ended.push(at);
            }
        }
        ended.into_iter().rev().for_each(|at| _ = running.remove(at));
        if !is_stopping {
            let mut left = Vec::new();
            for run in waiting {
                let taken: u64 = running.iter().map(|(other, _)| memory[*other]).sum();
                let fits = running.is_empty() || room.memory.is_none_or(|most| taken + memory[run] <= most);
                if running.len() >= room.at_once.max(1) || !fits {
                    left.push(run);
                    continue;
                }
                match work.start(run) {
                    Ok(Started::Process(process)) => {
                        work.heard(Event::Began(run));
                        running.push((run, process));
                    }
                    Ok(Started::Busy) => {
                        if !std::mem::replace(&mut told[run], true) {
                            work.heard(Event::Waits(run));
                        }
                        left.push(run);
                    }
                    Err(error) => work.heard(Event::NotStarted(run, error)),
                }
            }
            waiting = left;
        } else {
            waiting.clear();
        }
        work.tick();
        sleep(LOOK_EVERY);
    }
    Ok(!is_stopping)
}

#[cfg(all(test, unix))]
mod tests {
    use std::process::Command;

    use super::*;

    struct Script {
        commands: Vec<&'static str>,
        busy: Vec<u32>,
        running: usize,
        most: usize,
        log: Vec<String>,
        stop_after: usize,
    }

    impl Script {
        fn of(commands: &[&'static str]) -> Self {
            let busy = vec![0; commands.len()];
            Self { commands: commands.to_vec(), busy, running: 0, most: 0, log: Vec::new(), stop_after: usize::MAX }
        }
    }

    impl Work for Script {
        fn start(&mut self, run: usize) -> io::Result<Started> {
            if self.busy[run] > 0 {
                self.busy[run] -= 1;
                return Ok(Started::Busy);
            }
            let mut words = self.commands[run].split(' ');
            let process = Command::new(words.next().unwrap()).args(words).spawn()?;
            self.running += 1;
            self.most = self.most.max(self.running);
            Ok(Started::Process(process))
        }

        fn stop(&mut self, process: &mut Child) {
            process.kill().unwrap();
        }

        fn heard(&mut self, event: Event) {
            self.log.push(match event {
                Event::Began(run) => format!("began {run}"),
                Event::Waits(run) => format!("waits {run}"),
                Event::NotStarted(run, _) => format!("not started {run}"),
                Event::Ended(run, status) => {
                    self.running -= 1;
                    format!("ended {run} {}", status.success())
                }
            });
        }

        fn should_stop(&self) -> bool {
            self.log.len() >= self.stop_after
        }
    }

    #[test]
    fn runs_begin_in_order_and_a_failure_stops_no_other() {
        let mut script = Script::of(&["true", "false", "/no/such/program", "true"]);
        script.busy[3] = 2;
        let room = Room { at_once: 1, memory: None };
        assert!(run_all(&[0, 1, 2, 3], &[0; 4], room, &mut script).unwrap());
        let expected = [
            "began 0",
            "ended 0 true",
            "began 1",
            "ended 1 false",
            "not started 2",
            "waits 3",
            "began 3",
            "ended 3 true",
        ];
        assert_eq!(script.log, expected);
        assert_eq!(script.most, 1);
    }

    #[test]
    fn no_more_run_at_a_time_than_there_is_memory_for() {
        let room = Room { at_once: 3, memory: Some(10) };
        let mut script = Script::of(&["sleep 0.3"; 4]);
        assert!(run_all(&[0, 1, 2, 3], &[5, 5, 5, 11], room, &mut script).unwrap());
        assert_eq!(script.most, 2);
        let began = |run| script.log.iter().position(|line| *line == format!("began {run}")).unwrap();
        let ended = |run| script.log.iter().position(|line| *line == format!("ended {run} true")).unwrap();
        assert!(began(3) > ended(0).max(ended(1)).max(ended(2)), "{:?}", script.log);
        let mut script = Script::of(&["sleep 0.3"; 4]);
        assert!(run_all(&[0, 1, 2, 3], &[0; 4], Room { at_once: 3, memory: Some(10) }, &mut script).unwrap());
        assert_eq!(script.most, 3);
    }

    #[test]
    fn no_more_processes_are_counted_on_than_have_room() {
        let room = |at_once, memory, runs: &[u64]| Room { at_once, memory }.for_runs(runs).at_once;
        assert_eq!(room(8, Some(10), &[9, 5, 4, 3]), 2);
        assert_eq!((room(8, Some(10), &[11, 12]), room(8, None, &[0; 3]), room(2, None, &[0; 3])), (1, 3, 2));
    }

    #[test]
    fn a_wish_to_stop_reaches_every_process_and_starts_none() {
        let mut script = Script::of(&["sleep 600", "sleep 600", "true"]);
        script.stop_after = 2;
        assert!(!run_all(&[0, 1, 2], &[0; 3], Room { at_once: 2, memory: None }, &mut script).unwrap());
        let mut ended = script.log[2..].to_vec();
        ended.sort();
        assert_eq!(ended, ["ended 0 false", "ended 1 false"]);
    }
}
