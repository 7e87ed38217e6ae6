//! How the shares of all processes become the whole: in all of them, or in the first one alone.
//!
//! The shares of a process lie one after another, and go in chunks of as many elements of each process. One process may have a few
//! elements less than another: what is behind them in its chunk is sent along where all get all, and never looked at.

use std::ops::Range;

use super::operation::{Leg, Operation};

/// Who gets what is put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recipients {
    Everyone,
    First,
}

const FLOAT: usize = size_of::<f32>();

/// Address and length of neighbouring numbers.
type Place = (u64, usize);

/// What one process does.
#[derive(Debug)]
pub(super) struct PutPlan {
    rank: usize,
    to: Recipients,
    /// Its shares.
    here: Vec<Place>,
    /// Where the shares of each process belong; nothing in a process that only sends.
    belong: Vec<Vec<Place>>,
    /// Elements of the process that has most; in one that only sends, its own.
    most: usize,
    /// Elements of a process that go at once.
    at_once: usize,
}

/// Some elements of every process's shares, as far as it has so many, and the memory in which they travel: those of one
/// process after those of another, or of this one alone where it only sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    elements: Range<usize>,
    at: u64,
}

impl Chunk {
    fn of_rank(&self, rank: usize) -> u64 {
        self.at + (rank * self.elements.len() * FLOAT) as u64
    }

    /// How many elements a process with so many in all has in it.
    fn count(&self, total: usize) -> usize {
        total.min(self.elements.end).saturating_sub(self.elements.start)
    }

    /// From these elements, which begin at `base`, to where the shares of a process are.
    fn legs(&self, base: u64, places: &[Place]) -> Vec<Leg> {
        let bytes = |elements: usize| (elements * FLOAT) as u64;
        let Range { start, end } = self.elements;
        let mut before = 0;
        let leg = |&(address, length): &Place| {
            let begins = before;
            before += length;
            let (first, last) = (begins.max(start), (begins + length).min(end));
            let leg = |()| Leg {
                from: base + bytes(first - start),
                to: address + bytes(first - begins),
                count: last - first,
            };
            (first < last).then_some(()).map(leg)
        };
        places.iter().filter_map(leg).collect()
    }
}

fn total(places: &[Place]) -> usize {
    places.iter().map(|&(_, length)| length).sum()
}

impl PutPlan {
    /// What the process `rank` of `ranks` does with its shares. `wholes` are given to whoever gets them; `part(rank, length)` says
    /// which elements of a tensor are the share of a process. At most `at_once` elements of all processes go at once.
    pub(super) fn new(
        (rank, ranks): (usize, usize),
        to: Recipients,
        here: Vec<Place>,
        wholes: Option<&[Place]>,
        part: &dyn Fn(usize, usize) -> Range<usize>,
        at_once: usize,
    ) -> Self {
        let of_rank = |wholes: &[Place], rank: usize| -> Vec<Place> {
            let place = |&(at, length): &Place| {
                let part = part(rank, length);
                (at + (part.start * FLOAT) as u64, part.len())
            };
            wholes.iter().map(place).collect()
        };
        let belong: Vec<Vec<Place>> =
            wholes.map(|wholes| (0..ranks).map(|rank| of_rank(wholes, rank)).collect()).unwrap_or_default();
        let most = belong.iter().map(|places| total(places)).max().unwrap_or_else(|| total(&here));
        Self { rank, to, here, belong, most, at_once: (at_once / ranks).max(1) }
    }

    /// Floats of memory that a chunk needs.
    pub(super) fn floats(&self) -> usize {
        self.belong.len().max(1) * self.at_once.min(self.most)
    }

    /// The chunks one after another, all in the same memory.
    pub(super) fn chunks(&self, at: u64) -> impl Iterator<Item = Chunk> {
        let elements = |first| first..self.most.min(first + self.at_once);
        (0..self.most).step_by(self.at_once).map(move |first| Chunk { elements: elements(first), at })
    }

    /// Where this process puts its own elements of a chunk.
    fn own_place(&self, chunk: &Chunk) -> u64 {
        match self.to {
            Recipients::Everyone => chunk.of_rank(self.rank),
            Recipients::First => chunk.at,
        }
    }

    /// From this process's shares to the memory of a chunk.
    pub(super) fn legs_in(&self, chunk: &Chunk) -> Vec<Leg> {
        let turned = |leg: Leg| Leg { from: leg.to, to: leg.from, ..leg };
        chunk.legs(self.own_place(chunk), &self.here).into_iter().map(turned).collect()
    }

    /// What it asks for.
    pub(super) fn operations(&self, chunk: &Chunk) -> Vec<Operation> {
        let from = self.own_place(chunk);
        match self.to {
            Recipients::Everyone => {
                vec![Operation::Gather { from, to: chunk.at, bytes: chunk.elements.len() * FLOAT }]
            }
            Recipients::First if self.belong.is_empty() => {
                let bytes = chunk.count(total(&self.here)) * FLOAT;
                Vec::from_iter((bytes > 0).then_some(Operation::Send { from, bytes, rank: 0 }))
            }
            Recipients::First => {
                let of_rank = |(rank, places): (usize, &Vec<Place>)| {
                    let bytes = chunk.count(total(places)) * FLOAT;
                    (bytes > 0).then_some(Operation::Receive { to: chunk.of_rank(rank), bytes, rank })
                };
                self.belong.iter().enumerate().skip(1).filter_map(of_rank).collect()
            }
        }
    }

    /// From the memory of a chunk to where everything belongs.
    pub(super) fn legs_out(&self, chunk: &Chunk) -> Vec<Leg> {
        let of_rank = |(rank, places): (usize, &Vec<Place>)| chunk.legs(chunk.of_rank(rank), places);
        self.belong.iter().enumerate().flat_map(of_rank).collect()
    }
}
