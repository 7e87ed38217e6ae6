//! What several processes ask of NCCL, played through in memory of the host: the plain version of every kernel of `wire.cu` beside
//! NCCL's documented meaning of each operation.

use std::ops::Range;

use half::bf16;

use super::operation::{Leg, Operation, ROUNDED, RoundedChunk};
use super::put::{PutPlan, Recipients};
use super::staging::{Sizes, Staging};
use crate::cuda::memory::Arena;

/// The memory of one process, by address.
struct Memory(Vec<u8>);

impl Memory {
    fn bytes(&self, at: u64, count: usize) -> &[u8] {
        &self.0[at as usize..at as usize + count]
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.0[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }

    fn float(&self, at: u64) -> f32 {
        f32::from_le_bytes(self.bytes(at, 4).try_into().unwrap())
    }

    fn rounded(&self, at: u64) -> bf16 {
        bf16::from_le_bytes(self.bytes(at, 2).try_into().unwrap())
    }

    fn floats(&self, at: u64, count: usize) -> Vec<f32> {
        (0..count as u64).map(|i| self.float(at + 4 * i)).collect()
    }

    fn write_floats(&mut self, at: u64, values: &[f32]) {
        values.iter().enumerate().for_each(|(i, x)| self.write(at + 4 * i as u64, &x.to_le_bytes()));
    }

    /// `copy_numbers`.
    fn copy_numbers(&mut self, legs: &[Leg]) {
        for leg in legs {
            let values = self.floats(leg.from, leg.count);
            self.write_floats(leg.to, &values);
        }
    }

    /// `round_to_wire`.
    fn round_to_wire(&mut self, legs: &[Leg]) {
        for leg in legs {
            for i in 0..leg.count as u64 {
                let rounded = bf16::from_f32(self.float(leg.from + 4 * i));
                self.write(leg.to + 2 * i, &rounded.to_le_bytes());
            }
        }
    }

    /// `read_from_wire`.
    fn read_from_wire(&mut self, legs: &[Leg]) {
        for leg in legs {
            for i in 0..leg.count as u64 {
                let number = self.rounded(leg.from + 2 * i).to_f32();
                self.write(leg.to + 4 * i, &number.to_le_bytes());
            }
        }
    }

    /// `add_on_wire`.
    fn add_on_wire(&mut self, chunk: &RoundedChunk, ranks: usize) {
        for i in 0..chunk.share {
            let part = |rank: usize| self.rounded(chunk.parts + ((rank * chunk.share + i) * ROUNDED) as u64).to_f64();
            let total = (1..ranks).fold(part(0), |total, rank| total + part(rank));
            let rounded = bf16::from_f32(total as f32);
            self.write(chunk.sum + (i * ROUNDED) as u64, &rounded.to_le_bytes());
        }
    }
}

/// What NCCL does where each process has queued its operations as a group.
fn play(memories: &mut [Memory], asked: &[Vec<Operation>]) {
    let mut sent: Vec<(usize, usize, Vec<u8>)> = Vec::new();
    for (rank, operations) in asked.iter().enumerate() {
        for operation in operations {
            if let Operation::Send { from, bytes, rank: to } = *operation {
                sent.push((rank, to, memories[rank].bytes(from, bytes).to_vec()));
            }
        }
    }
    for (rank, operations) in asked.iter().enumerate() {
        for operation in operations {
            if let Operation::Receive { to, bytes, rank: from } = *operation {
                let first = sent.iter().position(|&(a, b, _)| (a, b) == (from, rank)).expect("it was sent");
                let (_, _, what) = sent.remove(first);
                assert_eq!(what.len(), bytes, "both sides say the same length");
                memories[rank].write(to, &what);
            }
        }
    }
    assert!(sent.is_empty(), "whatever was sent was taken");
    let gathers = |rank: usize| -> Vec<(u64, u64, usize)> {
        let gather = |operation: &Operation| match *operation {
            Operation::Gather { from, to, bytes } => Some((from, to, bytes)),
            _ => None,
        };
        asked[rank].iter().filter_map(gather).collect()
    };
    for i in 0..gathers(0).len() {
        let of_all: Vec<Vec<u8>> = (0..memories.len())
            .map(|rank| {
                let (from, _, bytes) = gathers(rank)[i];
                memories[rank].bytes(from, bytes).to_vec()
            })
            .collect();
        assert!(of_all.iter().all(|bytes| bytes.len() == of_all[0].len()), "all gather as much");
        for (rank, memory) in memories.iter_mut().enumerate() {
            memory.write(gathers(rank)[i].1, &of_all.concat());
        }
    }
}

/// Numbers that are all different, of different sizes.
fn number(rank: usize, i: usize) -> f32 {
    ((i * 37 + rank * 1001) % 4099) as f32 * 0.013_7 * if (i + rank).is_multiple_of(3) { -50.0 } else { 1.0 }
}

#[test]
fn rounded_sums_are_those_that_the_wire_promises() {
    let lengths = [5, 1, 300, 17, 64];
    for ranks in [1, 2, 3, 4, 7] {
        // Tensors behind the staging, in whose memory addresses begin at its alignment.
        let sizes = Sizes::of(&lengths, ranks);
        let begin = 1024 + sizes.bytes() as u64;
        let tensors: Vec<(u64, usize)> =
            lengths.iter().scan(begin, |at, &n| Some((std::mem::replace(at, *at + 4 * n as u64), n))).collect();
        let end = tensors.iter().map(|&(at, n)| at as usize + 4 * n).max().unwrap();
        let mut memories: Vec<Memory> = (0..ranks).map(|_| Memory(vec![0xff; end])).collect();
        let total: usize = lengths.iter().sum();
        for (rank, memory) in memories.iter_mut().enumerate() {
            memory.write_floats(begin, &(0..total).map(|i| number(rank, i)).collect::<Vec<_>>());
        }
        let mut stagings: Vec<Staging> =
            (0..ranks).map(|_| Staging::new(Arena::for_plan().take(sizes.bytes()).unwrap(), sizes)).collect();
        // Two groups, the last one first, as a backward pass has it.
        for group in [2..5, 0..2] {
            let boarded: Vec<_> =
                stagings.iter_mut().map(|staging| staging.board(&tensors[group.clone()], ranks).unwrap()).collect();
            for (memory, (_, legs)) in memories.iter_mut().zip(&boarded) {
                memory.round_to_wire(legs);
            }
            for i in 0..boarded[0].0.len() {
                let asked: Vec<_> = boarded.iter().map(|(chunks, _)| chunks[i].scatter(ranks)).collect();
                play(&mut memories, &asked);
                for (memory, (chunks, _)) in memories.iter_mut().zip(&boarded) {
                    memory.add_on_wire(&chunks[i], ranks);
                }
                let asked: Vec<_> = boarded.iter().map(|(chunks, _)| chunks[i].gather().to_vec()).collect();
                play(&mut memories, &asked);
            }
        }
        for (memory, staging) in memories.iter_mut().zip(&mut stagings) {
            memory.read_from_wire(&staging.alight());
        }
        let round = |x: f64| bf16::from_f32(x as f32).to_f64();
        let promised: Vec<f32> =
            (0..total).map(|i| round((0..ranks).map(|rank| round(f64::from(number(rank, i)))).sum()) as f32).collect();
        for memory in &memories {
            assert_eq!(memory.floats(begin, total), promised, "{ranks} processes");
        }
    }
}

/// Shares as equal as can be.
fn part(of: usize) -> impl Fn(usize, usize) -> Range<usize> {
    move |number, length| length * number / of..length * (number + 1) / of
}

#[test]
fn shares_become_the_whole_where_it_is_wanted() {
    let lengths = [1, 0, 7, 2, 30, 13];
    let total: usize = lengths.iter().sum();
    for ranks in [1, 2, 3, 5, 8] {
        for at_once in [1, 9, 1000] {
            for to in [Recipients::Everyone, Recipients::First] {
                let part = part(ranks);
                // A chunk's memory, then the shares, then the whole.
                let (shares_at, whole_at) = (8192_u64, 16_384_u64);
                let places = |base: u64, lengths: &[usize]| -> Vec<(u64, usize)> {
                    lengths.iter().scan(base, |at, &n| Some((std::mem::replace(at, *at + 4 * n as u64), n))).collect()
                };
                let wholes = places(whole_at, &lengths);
                let value = |tensor: usize, i: usize| (tensor * 100 + i) as f32 + 0.5;
                let mut memories = Vec::new();
                let mut plans = Vec::new();
                for rank in 0..ranks {
                    let mut memory = Memory(vec![0; 32_768]);
                    let own: Vec<usize> = lengths.iter().map(|&n| part(rank, n).len()).collect();
                    let here = places(shares_at, &own);
                    for (tensor, &(at, _)) in here.iter().enumerate() {
                        let values: Vec<f32> = part(rank, lengths[tensor]).map(|i| value(tensor, i)).collect();
                        memory.write_floats(at, &values);
                    }
                    let is_another = to == Recipients::First && rank > 0;
                    let wholes = (!is_another).then_some(&wholes[..]);
                    plans.push(PutPlan::new((rank, ranks), to, here, wholes, &part, at_once));
                    memories.push(memory);
                }
                let chunks: Vec<Vec<_>> = plans.iter().map(|plan| plan.chunks(0).collect()).collect();
                assert!(plans.iter().all(|plan| plan.floats() * 4 <= shares_at as usize));
                // One that only sends may be through before the others.
                for i in 0..chunks[0].len() {
                    for (rank, plan) in plans.iter().enumerate() {
                        let legs = chunks[rank].get(i).map(|chunk| plan.legs_in(chunk)).unwrap_or_default();
                        memories[rank].copy_numbers(&legs);
                    }
                    let asked: Vec<_> = plans
                        .iter()
                        .zip(&chunks)
                        .map(|(plan, chunks)| chunks.get(i).map(|chunk| plan.operations(chunk)).unwrap_or_default())
                        .collect();
                    play(&mut memories, &asked);
                    for (rank, plan) in plans.iter().enumerate() {
                        let legs = chunks[rank].get(i).map(|chunk| plan.legs_out(chunk)).unwrap_or_default();
                        memories[rank].copy_numbers(&legs);
                    }
                }
                let whole: Vec<f32> =
                    lengths.iter().enumerate().flat_map(|(t, &n)| (0..n).map(move |i| value(t, i))).collect();
                for (rank, memory) in memories.iter().enumerate() {
                    let has_it = to == Recipients::Everyone || rank == 0;
                    let found = memory.floats(whole_at, total);
                    assert_eq!(found == whole, has_it, "process {rank} of {ranks}, {to:?}, {at_once} at once");
                }
            }
        }
    }
}
