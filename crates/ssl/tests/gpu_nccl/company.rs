//! The processes of a test, which meet at a desk as those of a run do, while NCCL carries what is large.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tensor::{Device, ParamSet};
use train::reduce::desk::{Desk, Place, Team, Who};
use train::reduce::nccl::{ID_BYTES, NcclCarrier, new_id};
use train::reduce::{Carrier, Group, PeerError, Recipient, SumMemory, Sums, Waiting, Wire};

/// Nobody waits for the others for longer.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Gradients that leave at the end of a step, however many there are.
pub const AT_THE_END: usize = usize::MAX;

/// How processes find each other: NCCL's id, and the port of the desk, which go through a file.
pub struct Meeting {
    pub id: [u8; ID_BYTES],
    port: u16,
    /// Of the first process.
    door: Option<TcpListener>,
}

impl Meeting {
    pub fn at(file: &Path, rank: usize) -> Self {
        if rank == 0 {
            let door = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let (id, port) = (new_id().unwrap(), door.local_addr().unwrap().port());
            let part = file.with_extension("part");
            std::fs::write(&part, [&id[..], &port.to_le_bytes()].concat()).unwrap();
            std::fs::rename(part, file).unwrap();
            return Self { id, port, door: Some(door) };
        }
        for _ in 0..LIMIT.as_millis() / 20 {
            if let Ok(bytes) = std::fs::read(file) {
                let (id, port) = bytes.split_at(ID_BYTES);
                let (id, port) = (id.try_into().unwrap(), u16::from_le_bytes(port.try_into().unwrap()));
                return Self { id, port, door: None };
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the first process has left nothing in {}", file.display());
    }
}

/// The processes of one start, for one training after another.
pub struct Company {
    group: Group<Team<Leaving>>,
    least: Arc<AtomicUsize>,
}

impl Company {
    pub fn meet(device: &Device, (rank, ranks): (usize, usize), file: &Path) -> Self {
        let Meeting { id, port, door } = Meeting::at(file, rank);
        let word = "a test of sums between GPUs".to_owned();
        let who = Who { rank, ranks, version: word.clone(), token: word };
        let say = Arc::new(|words: &str| eprintln!("{words}"));
        let waiting = Waiting { limit: Some(LIMIT), notice: LIMIT / 4, say };
        let desk = match door {
            Some(door) => Desk::keep(door, &who, waiting),
            None => Desk::open(&Place::here(port), &who, waiting),
        };
        let team = Team::at(desk.unwrap());
        let is_over = || team.is_over();
        let carrier = NcclCarrier::start(device, rank, ranks, &id, Some(LIMIT), &is_over).unwrap();
        let least = Arc::new(AtomicUsize::new(AT_THE_END));
        team.carry_with(Leaving { carrier, least: least.clone() });
        Self { group: Group::new(team), least }
    }

    /// All of them, where so many gradients leave as soon as they are final.
    pub fn where_leave(&self, least: usize) -> Group<Team<Leaving>> {
        self.least.store(least, Ordering::Relaxed);
        self.group()
    }

    /// All of them, whenever gradients leave.
    pub fn group(&self) -> Group<Team<Leaving>> {
        self.group.clone()
    }
}

/// NCCL, with another idea of how many gradients are worth a sum of their own: small networks have no group of blocks that is
/// by the rule of the program.
pub struct Leaving {
    carrier: NcclCarrier,
    least: Arc<AtomicUsize>,
}

impl Sums for Leaving {
    fn least_to_begin(&self) -> Option<usize> {
        Some(self.least.load(Ordering::Relaxed)).filter(|&least| least != AT_THE_END)
    }

    fn memory(&self, lengths: &[usize], wire: Wire) -> SumMemory {
        self.carrier.memory(lengths, wire)
    }

    fn prepare(&mut self, tensors: &ParamSet, wire: Wire) -> Result<(), PeerError> {
        self.carrier.prepare(tensors, wire)
    }

    fn begin_sum(&mut self, tensors: &mut ParamSet, which: Range<usize>, wire: Wire) -> Result<(), PeerError> {
        self.carrier.begin_sum(tensors, which, wire)
    }

    fn sum(&mut self, tensors: &mut ParamSet, wire: Wire) -> Result<(), PeerError> {
        self.carrier.sum(tensors, wire)
    }

    fn put_together(&mut self, shares: &ParamSet, to: Recipient<'_>) -> Result<(), PeerError> {
        self.carrier.put_together(shares, to)
    }
}

impl Carrier for Leaving {
    fn gather(&mut self, here: &[f64], lengths: &[usize]) -> Result<Vec<f64>, PeerError> {
        self.carrier.gather(here, lengths)
    }

    fn give_up(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.carrier.give_up()
    }
}
