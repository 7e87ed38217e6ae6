//! Processes that meet at a desk over loopback and are threads of one program, which carries what is large.

use std::net::{Ipv4Addr, TcpListener};

use train::reduce::desk::{Desk, Place, Team, Who};
use train::reduce::threads::{self, Member};
use train::reduce::{Group, Waiting};

/// So many of them.
pub fn group(ranks: usize) -> Vec<Group<Team<Member>>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let place = Place::here(listener.local_addr().unwrap().port());
    let who = |rank| Who { rank, ranks, version: "1".to_owned(), token: "of this run".to_owned() };
    let first = Desk::keep(listener, &who(0), Waiting::default()).unwrap();
    let others = (1..ranks).map(|rank| Desk::open(&place, &who(rank), Waiting::default()).unwrap());
    let with_carrier = |(desk, carrier)| {
        let team = Team::at(desk);
        team.carry_with(carrier);
        Group::new(team)
    };
    std::iter::once(first).chain(others).zip(threads::carriers(ranks)).map(with_carrier).collect()
}
