//! What the processes of one run do together: they add up gradients and statistics, and decide as one.
//!
//! Each process computes on its part of a step's images, with its loss weighted by the images of the whole step, so that
//! the sum over all of them is the step's gradient. It is taken between the gradient and the optimiser; from there on
//! every process computes the same. A decision that one process makes alone (to stop, to save, that something failed)
//! would leave the others waiting, so it is made by all.
//!
//! - `group`: how processes that can exchange numbers decide and fail as one, however these travel.
//! - `mpi`, with the feature of that name: processes that talk through MPI.
//! - [`agreement`]: whether they were asked for the same.
//! - [`threads`]: processes that are threads of one program, for tests and as the reference of every other way.

pub mod agreement;
mod group;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod threads;

use tensor::ParamSet;

pub use group::{Exchange, Group, Sent, Word};
pub use model::{Alone, PeerError, Peers};

/// The processes of a run that train together.
pub trait Reduce: Peers {
    /// Replaces each tensor by its sum over all processes.
    fn sum(&mut self, tensors: &mut ParamSet) -> Result<(), PeerError>;

    /// Whether any process says so.
    fn any(&mut self, here: bool) -> Result<bool, PeerError>;
}

impl Reduce for Alone {
    fn sum(&mut self, _: &mut ParamSet) -> Result<(), PeerError> {
        Ok(())
    }

    fn any(&mut self, here: bool) -> Result<bool, PeerError> {
        Ok(here)
    }
}
