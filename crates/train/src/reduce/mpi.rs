//! Processes that talk through MPI: for CPUs, of one machine or of many.
//!
//! Whoever starts them (`mpirun`, `srun`) brings them together and ends all when one ends with an error. MPI is called by one
//! thread at a time: the one that trains, and within a step one of those that compute. A communication that fails ends the process, as MPI does by itself.

use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::datatype::PartitionMut;
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Equivalence};
use tensor::{DType, ParamSet};

use super::PeerError;
use super::group::{Exchange, Group, Sent, Word};

/// The status of a program that panicked, as Rust has it.
const PANICKED: i32 = 101;

/// MPI while it is in use. It is shut down when this is dropped, for which all processes have to come together.
pub struct Mpi {
    group: Group<World>,
    /// Shuts MPI down when it goes.
    _universe: Universe,
}

impl Mpi {
    /// Begins to use MPI; none where it is in use already, or cannot be called beside other threads.
    pub fn start() -> Option<Self> {
        let (universe, threading) = mpi::initialize_with_threading(Threading::Serialized)?;
        let world = universe.world();
        let group = Group::new(World { rank: world.rank() as usize, ranks: world.size() as usize });
        (threading >= Threading::Serialized).then_some(Self { group, _universe: universe })
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
            SimpleCommunicator::world().abort(PANICKED);
        }
    }
}

/// One of all processes.
#[derive(Clone, Copy, Debug)]
pub struct World {
    rank: usize,
    ranks: usize,
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

/// The sum over all processes of the numbers that each has.
fn sum_of<T: Equivalence + Copy>(here: &[T], zero: T) -> Vec<T> {
    let mut sum = vec![zero; here.len()];
    SimpleCommunicator::world().all_reduce_into(here, &mut sum[..], SystemOperation::sum());
    sum
}

impl Exchange for World {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn meet(&mut self, here: Sent) -> Result<Vec<Sent>, PeerError> {
        let world = SimpleCommunicator::world();
        let mut all = vec![0; 2 * self.ranks];
        world.all_gather_into(&announced(&here)[..], &mut all[..]);
        let too_many = |_| PeerError::Lost("more numbers than MPI can count are to be exchanged".to_owned());
        let lengths: Vec<usize> = all.chunks_exact(2).map(|announced| announced[1] as usize).collect();
        let counts: Vec<i32> = lengths.iter().map(|&n| i32::try_from(n)).collect::<Result<_, _>>().map_err(too_many)?;
        let starts = lengths.iter().scan(0, |end, &n| Some(std::mem::replace(end, *end + n)));
        let starts: Vec<i32> = starts.map(i32::try_from).collect::<Result<_, _>>().map_err(too_many)?;
        let mut numbers = vec![0.0; lengths.iter().sum()];
        // Decisions have no numbers.
        if !numbers.is_empty() {
            let mut parts = PartitionMut::new(&mut numbers[..], &counts[..], &starts[..]);
            world.all_gather_varcount_into(&here.numbers[..], &mut parts);
        }
        let mut rest = &numbers[..];
        let mut take = |announced: &[u64]| {
            let (own, others) = rest.split_at(announced[1] as usize);
            rest = others;
            Ok(Sent { word: word_of(announced[0])?, numbers: own.to_vec() })
        };
        all.chunks_exact(2).map(&mut take).collect()
    }

    fn sum(&mut self, tensors: &mut ParamSet) -> Result<(), PeerError> {
        for tensor in tensors.tensors_mut() {
            // As many bytes as the tensor has, and no more.
            if tensor.dtype() == DType::F64 {
                tensor.copy_from_f64(&sum_of(&tensor.to_f64(), 0.0));
            } else {
                tensor.copy_from_f32(&sum_of(&tensor.to_f32(), 0.0));
            }
        }
        Ok(())
    }
}
