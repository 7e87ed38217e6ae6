//! The desk between real processes: this test program starts itself, once for each of them.
#![cfg(unix)]

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tensor::{CpuOptions, Device, ParamSet};
use train::reduce::desk::{Desk, Place, Team, Who};
use train::reduce::{Carrier, Group, PeerError, Peers, Recipient, Reduce, Sums, Until, Waiting, Wire};

/// A carrier that carries nothing: who enters it waits as in a collective to which somebody does not come.
#[derive(Default)]
struct Stuck(Arc<(Mutex<bool>, Condvar)>);

impl Stuck {
    fn wait(&self) -> PeerError {
        let (ended, changed) = &*self.0;
        drop(changed.wait_while(ended.lock().unwrap(), |ended| !*ended).unwrap());
        PeerError::Lost("the collective was ended".to_owned())
    }
}

impl Sums for Stuck {
    fn sum(&mut self, _: &mut ParamSet, _: Wire) -> Result<(), PeerError> {
        Err(self.wait())
    }

    fn put_together(&mut self, _: &ParamSet, _: Recipient<'_>) -> Result<(), PeerError> {
        Err(self.wait())
    }
}

impl Carrier for Stuck {
    fn gather(&mut self, _: &[f64], _: &[usize]) -> Result<Vec<f64>, PeerError> {
        Err(self.wait())
    }

    fn give_up(&self) -> Arc<dyn Fn() + Send + Sync> {
        let inner = self.0.clone();
        Arc::new(move || {
            *inner.0.lock().unwrap() = true;
            inner.1.notify_all();
        })
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// One of the processes; where it was not started as one, nothing.
#[test]
#[ignore = "it is started by the tests below"]
fn one_of_them() {
    let Some(what) = variable("DESK_WHAT") else { return };
    let number = |name: &str| variable(name).unwrap().parse::<usize>().unwrap();
    let (rank, ranks, port) = (number("DESK_RANK"), number("DESK_RANKS"), number("DESK_PORT") as u16);
    let who = Who { rank, ranks, version: "1".to_owned(), token: variable("DESK_TOKEN").unwrap() };
    let limit = variable("DESK_LIMIT").map(|limit| Duration::from_secs(limit.parse().unwrap()));
    let waiting = Waiting { limit, ..Waiting::default() };
    let place = Place { host: None, ports: vec![port, port ^ 1] };
    let desk = match Desk::open(&place, &who, waiting) {
        Ok(desk) => desk,
        Err(error) => return println!("error: {error}"),
    };
    let team = Team::at(desk);
    team.carry_with(Stuck::default());
    let mut group = Group::new(team);
    match work(&what, &mut group) {
        Ok(()) => println!("done"),
        Err(error) => println!("error: {error}"),
    }
}

fn work(what: &str, group: &mut Group<Team<Stuck>>) -> Result<(), PeerError> {
    let all: Vec<Vec<f64>> = (0..group.ranks()).map(|rank| vec![rank as f64; rank]).collect();
    for _ in 0..200 {
        assert_eq!(group.gather(&vec![group.rank() as f64; group.rank()])?, all);
        assert!(!group.any(false, Until::Limit)?);
    }
    match what {
        "meet" => Ok(()),
        "fail" => {
            // One fails in the middle of a step; all decide on it, and go on.
            let failed = group.rank() == 2;
            let shared = if failed { Err(PeerError::Elsewhere) } else { group.gather(&[0.0]).map(|_| ()) };
            assert!(group.any(shared.is_err(), Until::Limit)?);
            group.told(0.0, Until::Limit).map(|_| ())
        }
        "wait" => {
            println!("ready");
            // The first waits at the desk, those after it in the carrier; the last is nowhere.
            match group.rank() {
                0 => group.any(false, Until::Done).map(|_| ()),
                last if last + 1 == group.ranks() => loop {
                    std::thread::sleep(Duration::from_secs(1));
                },
                _ => {
                    let device = Device::cpu(CpuOptions { threads: Some(1), ..Default::default() }).unwrap();
                    group.sum(&mut ParamSet::zeros(&device, [&[2][..]]), Wire::Exact)
                }
            }
        }
        "hang" => {
            println!("ready");
            loop {
                group.any(false, Until::Limit)?;
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        other => panic!("{other}"),
    }
}

/// A port that was free just now.
fn port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

struct Processes(Vec<Option<Child>>);

impl Drop for Processes {
    fn drop(&mut self) {
        for child in self.0.iter_mut().flatten() {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

impl Processes {
    fn start(what: &str, ranks: usize, port: u16, token: &str, limit: Option<u32>) -> Self {
        let start = |rank: usize| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "one_of_them", "--ignored", "--nocapture", "--test-threads", "1"]);
            command.env("DESK_WHAT", what).env("DESK_RANK", rank.to_string()).env("DESK_RANKS", ranks.to_string());
            command.env("DESK_PORT", port.to_string()).env("DESK_TOKEN", token);
            if let Some(limit) = limit {
                command.env("DESK_LIMIT", limit.to_string());
            }
            Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
        };
        // The first comes last: the others look for it until then.
        let mut all: Vec<_> = (1..ranks).map(start).collect();
        all.insert(0, start(0));
        Self(all)
    }

    /// Waits until a process has said that it is ready.
    fn await_ready(&mut self, rank: usize) {
        use std::io::Read;
        let output = self.0[rank].as_mut().unwrap().stdout.as_mut().unwrap();
        let mut said = String::new();
        while !said.contains("ready") {
            let mut byte = [0];
            assert_eq!(output.read(&mut byte).unwrap(), 1, "it has ended: {said}");
            said.push(byte[0] as char);
        }
    }

    fn signal(&self, rank: usize, signal: &str) {
        let id = self.0[rank].as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// What a process has said in the end.
    fn end_of(&mut self, rank: usize) -> String {
        let Output { stdout, stderr, .. } = self.0[rank].take().unwrap().wait_with_output().unwrap();
        let text = String::from_utf8(stdout).unwrap();
        let said =
            text.lines().find_map(|line| line.find("done").or(line.find("error: ")).map(|at| line[at..].to_owned()));
        said.unwrap_or_else(|| panic!("{text}\n{}", String::from_utf8_lossy(&stderr)))
    }
}

#[test]
fn processes_meet_and_decide_and_one_may_fail_in_the_middle_of_a_step() {
    for (what, ranks) in [("meet", 2), ("meet", 8), ("fail", 3)] {
        let mut all = Processes::start(what, ranks, port(), "a", None);
        assert!((0..ranks).all(|rank| all.end_of(rank) == "done"), "{what} in {ranks} processes");
    }
}

#[test]
fn who_is_killed_is_seen_by_all_wherever_they_wait_and_the_run_can_begin_again_at_once() {
    let port = port();
    for (attempt, killed) in [3, 0, 2].into_iter().enumerate() {
        let mut all = Processes::start("wait", 4, port, &attempt.to_string(), None);
        (0..4).for_each(|rank| all.await_ready(rank));
        let began = Instant::now();
        all.signal(killed, "-KILL");
        // The last one waits for nobody.
        for rank in (0..3).filter(|&rank| rank != killed) {
            let said = all.end_of(rank);
            assert!(said.contains(&format!("process {killed} is gone (its connection broke")), "{rank}: {said}");
        }
        assert!(began.elapsed() < Duration::from_secs(60), "nobody waits for a limit of time");
    }
}

#[test]
fn who_hangs_is_named_by_all_others_when_the_time_is_up() {
    for stopped in [0, 2] {
        let mut all = Processes::start("hang", 3, port(), "a", Some(2));
        (0..3).for_each(|rank| all.await_ready(rank));
        all.signal(stopped, "-STOP");
        // Where process 0 itself hangs, nobody else keeps the time for all: the others wait a little longer.
        for rank in (0..3).filter(|&rank| rank != stopped) {
            let said = all.end_of(rank);
            assert!(said.starts_with(&format!("error: process {stopped} has not come for ")), "{rank}: {said}");
        }
        all.signal(stopped, "-KILL");
    }
}
