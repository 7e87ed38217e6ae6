//! The processes that train a run together, as one of them sees them.
//!
//! The first one writes, prints and decides what only one can decide; it tells the others, who take the same turns.

mod launcher;

use std::process::ExitCode;
use std::time::Duration;

use train::reduce::agreement::{Facts, first_disagreement};
use train::reduce::{Alone, PeerError, Reduce};

#[cfg(feature = "mpi")]
use launcher::Launcher;
pub use launcher::{Launched, launched};

use crate::error::{CliError, message};
use crate::output;

/// How long a process that has failed waits for the others to hear of it.
const WAIT_FOR_OTHERS: Duration = Duration::from_secs(20);

/// How processes reach each other.
enum Way {
    Alone,
    #[cfg(feature = "mpi")]
    Mpi(train::reduce::mpi::Mpi),
}

/// The processes of a run.
pub struct Processes {
    way: Way,
}

impl Processes {
    /// Finds those that this process was started with.
    pub fn find() -> Result<Self, CliError> {
        match launched(|name| std::env::var(name).ok()) {
            None => Ok(Self { way: Way::Alone }),
            Some(launched) => Self::reach(launched),
        }
    }

    #[cfg(not(feature = "mpi"))]
    fn reach(launched: Launched) -> Result<Self, CliError> {
        Err(CliError::NoMpi { launched })
    }

    #[cfg(feature = "mpi")]
    fn reach(launched: Launched) -> Result<Self, CliError> {
        if launched.by == Launcher::Torchrun {
            return Err(CliError::NoMpi { launched });
        }
        let mpi = train::reduce::mpi::Mpi::start().ok_or(CliError::MpiThreads)?;
        let found = train::reduce::Peers::ranks(&mpi.group());
        if found != launched.ranks {
            return Err(CliError::OtherMpi { launched, found });
        }
        Ok(Self { way: Way::Mpi(mpi) })
    }

    /// All of them, for something that they do together.
    pub fn reduce(&self) -> Box<dyn Reduce> {
        match &self.way {
            Way::Alone => Box::new(Alone),
            #[cfg(feature = "mpi")]
            Way::Mpi(mpi) => Box::new(mpi.group()),
        }
    }

    /// Whether there are others.
    pub fn are_several(&self) -> bool {
        self.reduce().ranks() > 1
    }

    /// Whether this is the one that writes and prints.
    pub fn is_first(&self) -> bool {
        self.reduce().rank() == 0
    }

    /// What the first process says, in all of them. In the others `word` is not looked at.
    pub fn told(&self, word: u8) -> Result<u8, CliError> {
        let all = self.reduce().gather(&[f64::from(word)])?;
        Ok(all[0].first().map_or(0, |&word| word as u8))
    }

    /// An error, in all of them, unless all were asked for the same.
    pub fn agree_on(&self, facts: &Facts) -> Result<(), CliError> {
        match first_disagreement(&mut *self.reduce(), facts)? {
            Some(disagreement) => Err(CliError::Disagreement { disagreement }),
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
            Ok(status) => match self.told(status) {
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
                _ = self.reduce().any(true);
                Ok(ExitCode::FAILURE)
            }
        }
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
