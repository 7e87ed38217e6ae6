//! The processes that train a run together, as one of them sees them.
//!
//! The first one writes, prints and decides what only one can decide; it tells the others, who take the same turns.

mod error;
mod gpus;
mod launcher;
#[cfg(test)]
mod launcher_tests;
mod meeting;
mod node_list;
pub mod own;

use std::process::ExitCode;
use std::time::Duration;

use tensor::Device;
use train::reduce::agreement::{Facts, first_disagreement};
use train::reduce::{Alone, PeerError, Reduce, Until, Waiting};

pub use error::{GpusError, ProcessesError};
pub use launcher::{LaunchError, Launched, Launcher, launched};
pub use meeting::place;

use crate::args::{DeviceArgs, PretrainArgs};
use crate::error::{CliError, message};
use crate::output;

/// How long a process that has failed waits for the others to hear of it.
const WAIT_FOR_OTHERS: Duration = Duration::from_secs(20);

/// Refuses to do in each of several processes what one of them does.
pub fn check_alone() -> Result<(), CliError> {
    match launched() {
        Ok(Some(launched)) => Err(ProcessesError::OneProcess { launched }.into()),
        // What the environment means is of no interest to one process.
        Ok(None) | Err(_) => Ok(()),
    }
}

/// How processes reach each other.
enum Way {
    Alone,
    #[cfg(feature = "mpi")]
    Mpi(train::reduce::mpi::Mpi),
    /// Each has a GPU, this one that of the number.
    Gpus(gpus::OnGpus, usize),
}

/// The processes of a run.
pub struct Processes {
    way: Way,
}

impl Processes {
    /// This process, however it was started.
    pub fn alone() -> Self {
        Self { way: Way::Alone }
    }

    /// Finds those that this process was started with: on GPUs at their desk, on CPUs through MPI.
    pub fn find(args: &PretrainArgs) -> Result<Self, CliError> {
        match launched()? {
            None => {
                if let Some(doubt) = launcher::lonely() {
                    output::note(&doubt);
                }
                Ok(Self::alone())
            }
            Some(launched) => Self::reach(launched, &args.device, waiting(args.process_timeout)),
        }
    }

    fn reach(launched: Launched, device: &DeviceArgs, waiting: Waiting) -> Result<Self, CliError> {
        match gpus::number_of(&launched, device)? {
            Some(number) => Ok(Self { way: Way::Gpus(gpus::meet(&launched, waiting)?, number) }),
            None => Self::reach_by_mpi(launched, waiting),
        }
    }

    #[cfg(not(feature = "mpi"))]
    fn reach_by_mpi(launched: Launched, _: Waiting) -> Result<Self, CliError> {
        Err(ProcessesError::NoMpi { launched }.into())
    }

    #[cfg(feature = "mpi")]
    fn reach_by_mpi(launched: Launched, waiting: Waiting) -> Result<Self, CliError> {
        // They know nothing of MPI.
        if matches!(launched.by, Launcher::Own | Launcher::Torchrun | Launcher::Hand) {
            return Err(ProcessesError::NoMpi { launched }.into());
        }
        let started = Started::watch(waiting.limit);
        let mpi = train::reduce::mpi::Mpi::start(waiting).ok_or(ProcessesError::MpiThreads)?;
        started.done();
        let found = train::reduce::Peers::ranks(&mpi.group());
        if found != launched.ranks {
            return Err(ProcessesError::OtherMpi { launched, found }.into());
        }
        Ok(Self { way: Way::Mpi(mpi) })
    }

    /// All of them, for something that they do together.
    pub fn reduce(&self) -> Box<dyn Reduce> {
        match &self.way {
            Way::Alone => Box::new(Alone),
            #[cfg(feature = "mpi")]
            Way::Mpi(mpi) => Box::new(mpi.group()),
            Way::Gpus(gpus, _) => Box::new(gpus.group()),
        }
    }

    /// The number of the GPU that this process has beside others that have theirs.
    pub fn gpu(&self) -> Option<usize> {
        match &self.way {
            Way::Gpus(_, number) => Some(*number),
            _ => None,
        }
    }

    /// Makes ready what carries many numbers, now that this process has its device.
    pub fn begin_on(&self, device: &Device) -> Result<(), CliError> {
        match &self.way {
            Way::Gpus(gpus, number) => gpus.begin(device, *number),
            _ => Ok(()),
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.reduce().ranks()
    }

    /// Whether there are others.
    pub fn are_several(&self) -> bool {
        self.count() > 1
    }

    /// Whether this is the one that writes and prints.
    pub fn is_first(&self) -> bool {
        self.reduce().rank() == 0
    }

    /// What the first process says, in all of them. In the others `word` is not looked at.
    pub fn told(&self, word: u8, until: Until) -> Result<u8, CliError> {
        Ok(self.reduce().told(f64::from(word), until)? as u8)
    }

    /// An error, in all of them, unless all were asked for the same.
    pub fn agree_on(&self, facts: &Facts) -> Result<(), CliError> {
        match first_disagreement(&mut *self.reduce(), facts)? {
            Some(disagreement) => Err(ProcessesError::Disagreement { disagreement }.into()),
            None => Ok(()),
        }
    }

    /// Ends what they have done together: all end when all are done, with the status of the first, or with an error that the
    /// process which had it has told of.
    pub fn end(self, ended: Result<u8, CliError>) -> Result<ExitCode, CliError> {
        if !self.are_several() {
            return ended.map(ExitCode::from);
        }
        match ended {
            // The first one may still evaluate what the others have no part in.
            Ok(status) => match self.told(status, Until::Done) {
                Ok(status) => Ok(ExitCode::from(status)),
                Err(_) => Ok(ExitCode::FAILURE),
            },
            Err(error) => {
                // Before anything that might have to be waited for.
                if !is_elsewhere(&error) {
                    output::note(&format!("error in process {}: {}", self.reduce().rank(), message(&error)));
                }
                // Whoever waits for this process, waits no longer. Should they wait at another place, or not at all, this one
                // ends alone, and its launcher ends the others.
                std::thread::spawn(|| {
                    std::thread::sleep(WAIT_FOR_OTHERS);
                    std::process::exit(1)
                });
                let told = self.reduce().any(true, Until::Limit);
                if let Err(PeerError::Late(awaited)) = told {
                    // Somebody does not come any more. The first process may still save, unless it is the one; as soon as one
                    // has ended, the launcher ends all.
                    if !self.is_first() && !awaited.ranks.contains(&0) {
                        std::thread::sleep(WAIT_FOR_OTHERS);
                    }
                    std::process::exit(1);
                }
                Ok(ExitCode::FAILURE)
            }
        }
    }
}

/// How long they wait for each other, and what is said of it.
fn waiting(timeout: u64) -> Waiting {
    let limit = (timeout > 0).then(|| Duration::from_secs(timeout));
    Waiting { limit, say: std::sync::Arc::new(output::note), ..Waiting::default() }
}

/// The beginning of MPI, for which all processes have to come: MPI itself waits for ever.
#[cfg(feature = "mpi")]
struct Started(std::sync::mpsc::Sender<()>);

#[cfg(feature = "mpi")]
impl Started {
    /// Ends the process unless it has begun within the limit.
    fn watch(limit: Option<Duration>) -> Self {
        let (done, when_done) = std::sync::mpsc::channel();
        if let Some(limit) = limit {
            std::thread::spawn(move || {
                if let Err(std::sync::mpsc::RecvTimeoutError::Timeout) = when_done.recv_timeout(limit) {
                    let seconds = limit.as_secs();
                    output::note(&format!(
                        "error: MPI has not begun after {seconds} s (--process-timeout): one of the processes has not come"
                    ));
                    std::process::exit(1)
                }
            });
        }
        Self(done)
    }

    fn done(self) {
        // Nobody listens where there is no limit.
        _ = self.0.send(());
    }
}

/// Whether an error is another process's, which tells of it.
fn is_elsewhere(error: &CliError) -> bool {
    use ssl::pretraining::PretrainError;
    use train::{StepError, TrainFailure};
    let of_step = |error: &StepError| matches!(error, StepError::Peers(PeerError::Elsewhere));
    let of_train = |cause: &TrainFailure| matches!(cause, TrainFailure::Step(error) if of_step(error));
    match error {
        CliError::Peers(PeerError::Elsewhere) => true,
        CliError::Train(error) => of_train(&error.cause),
        CliError::Pretrain(PretrainError::Train(error)) => of_train(&error.cause),
        _ => false,
    }
}
