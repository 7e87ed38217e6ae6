//! Processes that talk through MPI: for CPUs, of one machine or of many.
//!
//! Whoever starts them (`mpirun`, `srun`) brings them together and ends all when one ends with an error. MPI is called by one
//! thread at a time: the one that trains, and within a step one of those that compute. A communication that fails ends the process, as MPI does by itself.

mod arrival;

use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::datatype::PartitionMut;
use mpi::environment::Universe;
use mpi::request::scope;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Equivalence, Root};
use tensor::{DType, ParamSet, Tensor};

use arrival::Arrivals;

use super::group::{Exchange, Group, Sent, Word};
use super::{PeerError, Recipient, Share, Sums, Until, Waiting, Wire, wire};

/// The status of a program that panicked, as Rust has it.
const PANICKED: i32 = 101;

/// MPI while it is in use. It is shut down when this is dropped, for which all processes have to come together.
pub struct Mpi {
    group: Group<World>,
    arrivals: Arrivals,
    /// Shuts MPI down when it goes.
    universe: Option<Universe>,
}

impl Mpi {
    /// Begins to use MPI; none where it is in use already, or cannot be called beside other threads.
    pub fn start(waiting: Waiting) -> Option<Self> {
        let (universe, threading) = mpi::initialize_with_threading(Threading::Serialized)?;
        let world = universe.world();
        let arrivals = Arrivals::new(waiting);
        let here = World { rank: world.rank() as usize, ranks: world.size() as usize, arrivals: arrivals.clone() };
        let mpi = Self { group: Group::new(here), arrivals, universe: Some(universe) };
        (threading >= Threading::Serialized).then_some(mpi)
    }

    /// All processes that were started together.
    pub fn group(&self) -> Group<World> {
        self.group.clone()
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        // The others would wait for this process, and it for them.
        if std::thread::panicking() {
            world().abort(PANICKED);
        }
        // Somebody has not come, and would not come to shut it down either: whoever ends the process ends MPI.
        if self.arrivals.are_over() {
            std::mem::forget(self.universe.take());
        }
    }
}

/// One of all processes.
#[derive(Clone, Debug)]
pub struct World {
    rank: usize,
    ranks: usize,
    arrivals: Arrivals,
}

/// What goes first: the word, and how many numbers come behind it.
fn announced(sent: &Sent) -> [u64; 2] {
    let word = match sent.word {
        Word::Numbers => 0,
        Word::No => 1,
        Word::Yes => 2,
    };
    [word, sent.numbers.len() as u64]
}

fn word_of(announced: u64) -> Result<Word, PeerError> {
    match announced {
        0 => Ok(Word::Numbers),
        1 => Ok(Word::No),
        2 => Ok(Word::Yes),
        other => Err(PeerError::Lost(format!("one of them says {other}, which nobody understands"))),
    }
}

/// How many numbers each process brings, and where they begin among those of all.
fn parts(lengths: &[usize]) -> Result<(Vec<i32>, Vec<i32>), PeerError> {
    let too_many = |_| PeerError::Lost("more numbers than MPI can count are to be exchanged".to_owned());
    let counts = lengths.iter().map(|&n| i32::try_from(n)).collect::<Result<_, _>>().map_err(too_many)?;
    let starts = lengths.iter().scan(0, |end, &n| Some(std::mem::replace(end, *end + n)));
    Ok((counts, starts.map(i32::try_from).collect::<Result<_, _>>().map_err(too_many)?))
}

impl World {
    /// The numbers of all processes, each as many as this one has.
    fn gathered<T: Equivalence + Copy>(&self, here: &[T], zero: T) -> Vec<T> {
        let mut all = vec![zero; here.len() * self.ranks];
        scope(|scope| self.arrivals.finish(world().immediate_all_gather_into(scope, here, &mut all[..])));
        all
    }

    /// The sum over all processes of the numbers that each has.
    fn sum_of<T: Equivalence + Copy>(&self, here: &[T], zero: T) -> Vec<T> {
        let mut sum = vec![zero; here.len()];
        let add = SystemOperation::sum();
        scope(|scope| self.arrivals.finish(world().immediate_all_reduce_into(scope, here, &mut sum[..], add)));
        sum
    }

    /// The same with half the bytes: each process adds up its share, exactly and in the order of the processes, and all get it.
    fn rounded_sum_of(&self, here: &[f64]) -> Vec<f64> {
        let share = here.len().div_ceil(self.ranks);
        let mut sent = wire::rounded(here.iter().copied());
        // Equal shares for all.
        sent.resize(share * self.ranks, 0);
        let mut of_share = vec![0_u16; sent.len()];
        scope(|scope| {
            self.arrivals.finish(world().immediate_all_to_all_into(scope, &sent[..], &mut of_share[..]));
        });
        let of_all = |i: usize| (0..self.ranks).map(|rank| wire::number(of_share[rank * share + i])).sum();
        let sum = self.gathered(&wire::rounded((0..share).map(of_all)), 0);
        sum[..here.len()].iter().map(|&bits| wire::number(bits)).collect()
    }

    /// The numbers of all processes one after another, in all of them or, where `only_first`, in the first one.
    fn put_numbers_together<T: Equivalence + Copy>(
        &self,
        here: &[T],
        lengths: &[usize],
        only_first: bool,
        zero: T,
    ) -> Result<Vec<T>, PeerError> {
        let (world, (counts, starts)) = (world(), parts(lengths)?);
        let first = world.process_at_rank(0);
        if only_first && self.rank != 0 {
            scope(|scope| self.arrivals.finish(first.immediate_gather_varcount_into(scope, here)));
            return Ok(Vec::new());
        }
        let mut all = vec![zero; lengths.iter().sum()];
        let mut parts = PartitionMut::new(&mut all[..], &counts[..], &starts[..]);
        scope(|scope| {
            if only_first {
                self.arrivals.finish(first.immediate_gather_varcount_into_root(scope, here, &mut parts));
            } else {
                self.arrivals.finish(world.immediate_all_gather_varcount_into(scope, here, &mut parts));
            }
        });
        Ok(all)
    }

    fn put_tensor_together(
        &self,
        here: &Tensor,
        whole: Option<&mut Tensor>,
        only_first: bool,
    ) -> Result<(), PeerError> {
        let of = self.ranks;
        // Whoever gets nothing needs not know how long the others' shares are.
        let len = whole.as_ref().map_or(0, |whole| whole.len());
        let lengths: Vec<usize> = (0..of).map(|number| Share { number, of }.of_elements(len).len()).collect();
        if here.dtype() == DType::F64 {
            let all = self.put_numbers_together(&here.to_f64(), &lengths, only_first, 0.0)?;
            whole.into_iter().for_each(|whole| whole.copy_from_f64(&all));
        } else {
            let all = self.put_numbers_together(&here.as_f32(), &lengths, only_first, 0.0)?;
            whole.into_iter().for_each(|whole| whole.copy_from_f32(&all));
        }
        Ok(())
    }
}

fn world() -> SimpleCommunicator {
    SimpleCommunicator::world()
}

impl Sums for World {
    fn sum(&mut self, tensors: &mut ParamSet, wire: Wire) -> Result<(), PeerError> {
        self.arrivals.await_all(Until::Limit)?;
        for tensor in tensors.tensors_mut() {
            // As many bytes as the tensor has, and no more.
            match (wire, tensor.dtype()) {
                (Wire::Bf16, _) => tensor.copy_from_f64(&self.rounded_sum_of(&tensor.to_f64())),
                (Wire::Exact, DType::F64) => tensor.copy_from_f64(&self.sum_of(&tensor.to_f64(), 0.0)),
                (Wire::Exact, _) => tensor.copy_from_f32(&self.sum_of(&tensor.as_f32(), 0.0)),
            }
        }
        Ok(())
    }

    fn put_together(&mut self, shares: &ParamSet, to: Recipient<'_>) -> Result<(), PeerError> {
        self.arrivals.await_all(Until::Limit)?;
        let (whole, only_first) = match to {
            Recipient::Everyone(whole) => (Some(whole), false),
            Recipient::First(whole) => (Some(whole), true),
            Recipient::Another => (None, true),
        };
        let mut whole = whole.map(|whole| whole.tensors_mut().iter_mut());
        for share in shares.iter() {
            self.put_tensor_together(share, whole.as_mut().and_then(Iterator::next), only_first)?;
        }
        Ok(())
    }
}

impl Exchange for World {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn meet(&mut self, here: Sent, until: Until) -> Result<Vec<Sent>, PeerError> {
        self.arrivals.await_all(until)?;
        let all = self.gathered(&announced(&here), 0);
        let lengths: Vec<usize> = all.chunks_exact(2).map(|announced| announced[1] as usize).collect();
        // Decisions have no numbers.
        let numbers = match lengths.iter().any(|&length| length > 0) {
            true => self.put_numbers_together(&here.numbers, &lengths, false, 0.0)?,
            false => Vec::new(),
        };
        let mut rest = &numbers[..];
        let mut take = |announced: &[u64]| {
            let (own, others) = rest.split_at(announced[1] as usize);
            rest = others;
            Ok(Sent { word: word_of(announced[0])?, numbers: own.to_vec() })
        };
        all.chunks_exact(2).map(&mut take).collect()
    }
}
