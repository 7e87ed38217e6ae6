//! The desk over loopback, in threads of one program: everything that every group does, and who does not belong there.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tensor::{CpuOptions, Device, ParamSet};

use super::super::group_tests::of_every_group;
use super::super::threads::{self, Member};
use super::super::{Carrier, Group, PeerError, Peers, Recipient, Reduce, Sums, Until, Waiting, Wire};
use super::greeting::Greeting;
use super::{Desk, DeskError, FEW, Place, Team, Who};

fn who(rank: usize, ranks: usize) -> Who {
    Who { rank, ranks, version: "1.2.3".to_owned(), token: "of this run".to_owned() }
}

/// A port that nobody else has, held.
fn port() -> (TcpListener, Place) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let place = Place::here(listener.local_addr().unwrap().port());
    (listener, place)
}

/// Processes that have met, without a carrier.
fn desks(ranks: usize, waiting: &Waiting) -> Vec<Desk> {
    let (listener, place) = port();
    let first = Desk::keep(listener, &who(0, ranks), waiting.clone()).unwrap();
    let others = (1..ranks).map(|rank| Desk::open(&place, &who(rank, ranks), waiting.clone()).unwrap());
    std::iter::once(first).chain(others).collect()
}

fn teams(ranks: usize, waiting: &Waiting) -> Vec<Group<Team<Member>>> {
    let with_carrier = |(desk, carrier)| {
        let team = Team::at(desk);
        team.carry_with(carrier);
        Group::new(team)
    };
    desks(ranks, waiting).into_iter().zip(threads::carriers(ranks)).map(with_carrier).collect()
}

of_every_group!(teams);

/// Keeps what is said.
fn listening() -> (Waiting, Arc<Mutex<Vec<String>>>) {
    let said = Arc::new(Mutex::new(Vec::new()));
    let say = said.clone();
    let say = Arc::new(move |words: &str| say.lock().unwrap().push(words.to_owned()));
    (Waiting { say, ..Waiting::default() }, said)
}

/// Whether two processes at this desk, the second of which is yet to come, still meet.
#[track_caller]
fn assert_they_still_meet(first: Desk, place: &Place) {
    let second = Desk::open(place, &who(1, 2), Waiting::default()).unwrap();
    let groups: Vec<Group<Team<Member>>> = [first, second].into_iter().map(|desk| Group::new(Team::at(desk))).collect();
    std::thread::scope(|scope| {
        for mut group in groups {
            scope.spawn(move || assert_eq!(group.gather(&[group.rank() as f64]).unwrap(), [[0.0], [1.0]]));
        }
    });
}

#[test]
fn strangers_garbage_and_slow_clients_are_sent_away_and_hold_up_nobody() {
    let (listener, place) = port();
    let address = listener.local_addr().unwrap();
    let first = Desk::keep(listener, &who(0, 2), Waiting::default()).unwrap();
    let send = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let mut hello = Vec::new();
    Greeting { version: "1.2.3".into(), token: "of this run".into(), rank: 1, ranks: 2 }.send(&mut hello).unwrap();
    let mut oversized = hello[..8].to_vec();
    oversized.extend(u32::MAX.to_le_bytes());
    let mut open = Vec::new();
    // Nothing, another protocol, a length of four gigabytes: all at once, and all stay connected.
    for bytes in [&[][..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 4000], &oversized, &hello[..hello.len() - 1]] {
        open.push(send(bytes));
    }
    // One byte at a time, for as long as it is listened to.
    let mut stream = TcpStream::connect(address).unwrap();
    let slow = std::thread::spawn(move || {
        for byte in hello.iter().cycle() {
            std::thread::sleep(Duration::from_millis(300));
            if stream.write_all(&[*byte]).is_err() {
                break;
            }
        }
    });
    assert_they_still_meet(first, &place);
    for mut stream in open {
        // Each was closed, without a word.
        let mut answer = Vec::new();
        _ = stream.read_to_end(&mut answer);
        assert_eq!(answer, b"");
    }
    slow.join().unwrap();
}

#[test]
fn more_strangers_than_can_be_listened_to_leave_room_for_a_process() {
    let (listener, place) = port();
    let address = listener.local_addr().unwrap();
    let first = Desk::keep(listener, &who(0, 2), Waiting::default()).unwrap();
    let _crowd: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    // Sent away with the crowd at first, and let in when those who say nothing have been sent away.
    assert_they_still_meet(first, &place);
}

#[test]
fn another_version_size_or_number_is_refused_by_name_on_both_sides() {
    let (listener, place) = port();
    let (waiting, said) = listening();
    let first = Desk::keep(listener, &who(0, 2), waiting).unwrap();
    let open = |who: Who| match Desk::open(&place, &who, Waiting::default()) {
        Err(DeskError::Refused { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    let older = Who { version: "1.2.2".to_owned(), ..who(1, 2) };
    let all = [
        (older, "the program's version is 1.2.2 in process 1 and 1.2.3 in process 0"),
        (who(2, 3), "process 2 is one of 3 and process 0 one of 2"),
    ];
    for (other, expected) in all {
        assert_eq!(open(other), expected);
        assert_eq!(said.lock().unwrap().pop().unwrap(), format!("a process of this run was refused: {expected}"));
    }
    assert_they_still_meet(first, &place);
}

#[test]
fn a_second_process_of_the_same_number_is_refused_and_the_first_goes_on() {
    let (listener, place) = port();
    let (waiting, said) = listening();
    let mut all = vec![Desk::keep(listener, &who(0, 3), waiting).unwrap()];
    all.push(Desk::open(&place, &who(1, 3), Waiting::default()).unwrap());
    let error = Desk::open(&place, &who(1, 3), Waiting::default()).unwrap_err();
    assert!(error.to_string().ends_with("has refused this process: there is a process 1 already"), "{error}");
    assert_eq!(*said.lock().unwrap(), ["a process of this run was refused: there is a process 1 already"]);
    all.push(Desk::open(&place, &who(2, 3), Waiting::default()).unwrap());
    std::thread::scope(|scope| {
        for desk in all {
            scope.spawn(|| assert!(!Group::new(Team::<Member>::at(desk)).any(false, Until::Limit).unwrap()));
        }
    });
}

#[test]
fn a_process_finds_its_own_run_behind_another_one_and_behind_a_stranger() {
    let (silent, _) = port();
    let (of_other, _) = port();
    let (own, _) = port();
    let ports: Vec<u16> =
        [&silent, &of_other, &own].iter().map(|listener| listener.local_addr().unwrap().port()).collect();
    // Whoever connects to the first gets nothing, not even an end.
    let other = Who { token: "of another run".to_owned(), ..who(0, 2) };
    let _other = Desk::keep(of_other, &other, Waiting::default()).unwrap();
    let first = Desk::keep(own, &who(0, 2), Waiting::default()).unwrap();
    assert_they_still_meet(first, &Place { host: None, ports });
}

#[test]
fn nobody_at_the_desk_and_another_run_at_it_are_errors_that_say_so_in_time() {
    let waiting = Waiting { limit: Some(Duration::from_millis(300)), ..Waiting::default() };
    let (listener, place) = port();
    drop(listener);
    let error = Desk::open(&place, &who(1, 2), waiting.clone()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("process 0 was not found at {place} for ")), "{error}");
    let (listener, place) = port();
    let other = Who { token: "of another run".to_owned(), ..who(0, 2) };
    let _other = Desk::keep(listener, &other, Waiting::default()).unwrap();
    let error = Desk::open(&place, &who(1, 2), waiting).unwrap_err().to_string();
    assert!(error.contains(&format!("another run meets at {place}")), "{error}");
}

#[test]
fn a_host_that_cannot_be_reached_is_an_error_in_time() {
    // Addresses that are kept for documentation: nobody has them.
    let place = Place { host: Some("192.0.2.1".to_owned()), ports: vec![7] };
    let waiting = Waiting { limit: Some(Duration::from_millis(300)), ..Waiting::default() };
    let error = Desk::open(&place, &who(1, 2), waiting).unwrap_err().to_string();
    assert!(error.starts_with("process 0 was not found at 192.0.2.1:7 for "), "{error}");
}

/// A carrier of which one process fails in the middle, and the others wait for it.
struct Failing {
    inner: Member,
    fails: bool,
}

impl Sums for Failing {
    fn sum(&mut self, tensors: &mut ParamSet, wire: Wire) -> Result<(), PeerError> {
        if self.fails {
            return Err(PeerError::Lost("the GPU has fallen off the bus".to_owned()));
        }
        self.inner.sum(tensors, wire)
    }

    fn put_together(&mut self, shares: &ParamSet, to: Recipient<'_>) -> Result<(), PeerError> {
        self.inner.put_together(shares, to)
    }
}

impl Carrier for Failing {
    fn gather(&mut self, here: &[f64], lengths: &[usize]) -> Result<Vec<f64>, PeerError> {
        self.inner.gather(here, lengths)
    }

    fn give_up(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.inner.give_up()
    }
}

#[test]
fn who_waits_in_the_carrier_for_one_that_failed_is_freed_and_all_decide_together() {
    for failing in [0, 2] {
        let groups = desks(3, &Waiting::default()).into_iter().zip(threads::carriers(3));
        let seen: Vec<(PeerError, bool)> = std::thread::scope(|scope| {
            let start = |(desk, inner)| {
                scope.spawn(move || {
                    let team = Team::at(desk);
                    let mut group = Group::new(team.clone());
                    team.carry_with(Failing { inner, fails: group.rank() == failing });
                    let device = Device::cpu(CpuOptions { threads: Some(1), ..Default::default() }).unwrap();
                    let mut set = ParamSet::zeros(&device, [&[2][..]]);
                    let error = group.sum(&mut set, Wire::Exact).unwrap_err();
                    (error, group.any(true, Until::Limit).unwrap())
                })
            };
            let threads: Vec<_> = groups.map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (rank, (error, decided)) in seen.iter().enumerate() {
            assert!(decided, "all end together");
            let is_its_own = error.to_string().contains("fallen off the bus");
            assert!(
                if rank == failing { is_its_own } else { matches!(error, PeerError::Elsewhere) },
                "{rank}: {error}"
            );
        }
    }
}

#[test]
fn who_is_cut_off_ends_all_others_wherever_they_wait() {
    for gone in [0, 2] {
        let mut all: Vec<Option<Desk>> = desks(3, &Waiting::default()).into_iter().map(Some).collect();
        let lost = all[gone].take().unwrap();
        let carriers = threads::carriers(3);
        let began = Instant::now();
        let errors: Vec<PeerError> = std::thread::scope(|scope| {
            let wait = |((rank, desk), carrier): ((usize, Option<Desk>), Member)| {
                let desk = desk?;
                Some(scope.spawn(move || {
                    let team = Team::at(desk);
                    team.carry_with(carrier);
                    let mut group = Group::new(team);
                    // One waits in the carrier, the other at the desk.
                    match rank {
                        1 => {
                            let device = Device::cpu(CpuOptions { threads: Some(1), ..Default::default() }).unwrap();
                            group.sum(&mut ParamSet::zeros(&device, [&[2][..]]), Wire::Exact).unwrap_err()
                        }
                        _ => group.any(false, Until::Done).unwrap_err(),
                    }
                }))
            };
            // The third carrier stays, as that of a process that is killed would.
            let mut carriers: Vec<Option<Member>> = carriers.into_iter().map(Some).collect();
            let _kept = carriers[gone].take();
            let present: Vec<Member> = carriers.into_iter().flatten().collect();
            let desks = all.into_iter().enumerate().filter(|(_, desk)| desk.is_some());
            let threads: Vec<_> = desks.zip(present).filter_map(wait).collect();
            lost.cut_off();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(errors.len(), 2);
        for error in errors {
            assert!(error.to_string().contains(&format!("process {gone} is gone (its connection broke")), "{error}");
        }
        assert!(began.elapsed() < Duration::from_secs(60), "not by a limit of time");
    }
}

#[test]
fn who_sits_down_when_process_0_has_ended_already_is_not_left_waiting() {
    for in_order in [true, false] {
        let first = Desk::keep(port().0, &who(0, 2), Waiting::default()).unwrap();
        let super::Line::Here(keeper) = &first.inner.line else { panic!("it keeps the desk") };
        let (door, _) = port();
        let mut guest = TcpStream::connect(door.local_addr().unwrap()).unwrap();
        let (stream, _) = door.accept().unwrap();
        // It was let in, and is given its seat too late.
        keeper.close(in_order);
        keeper.seat(1, &stream).unwrap();
        let mut heard = Vec::new();
        guest.read_to_end(&mut heard).unwrap();
        let bye = super::frame::FromDesk::Bye.to_frame();
        assert_eq!(heard.ends_with(&bye), in_order, "{heard:?}");
    }
}

#[test]
fn a_process_of_the_run_that_talks_nonsense_is_lost_and_named() {
    let (listener, place) = port();
    let first = Desk::keep(listener, &who(0, 2), Waiting::default()).unwrap();
    let mut stream = super::guest::find(&place, &who(1, 2).greeting(), &Waiting::default()).unwrap();
    stream.write_all(&[200, 0, 0, 0]).unwrap();
    stream.write_all(&[9; 200]).unwrap();
    let error = Group::new(Team::<Member>::at(first)).any(false, Until::Limit).unwrap_err().to_string();
    assert!(error.contains("process 1 is gone (it says what nobody understands"), "{error}");
}

#[test]
fn without_a_carrier_few_numbers_travel_and_many_are_an_error() {
    let all = std::thread::scope(|scope| {
        let threads: Vec<_> = desks(2, &Waiting::default())
            .into_iter()
            .map(|desk| {
                scope.spawn(|| {
                    let mut group = Group::new(Team::<Member>::at(desk));
                    assert_eq!(group.gather(&[1.0; FEW]).unwrap().len(), 2);
                    group.gather(&[1.0; FEW + 1]).unwrap_err().to_string()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(all.iter().all(|error| error.ends_with("they have nothing that carries many numbers")), "{all:?}");
}
