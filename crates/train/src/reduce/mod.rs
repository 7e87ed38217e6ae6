//! What the processes of one run do together: they add up gradients and statistics, and decide as one.
//!
//! Each process computes on its part of a step's images, with its loss weighted by the images of the whole step, so that
//! the sum over all of them is the step's gradient. It is taken between the gradient and the optimiser; from there on
//! every process computes the same. A decision that one process makes alone (to stop, to save, that something failed)
//! would leave the others waiting, so it is made by all.
//!
//! - [`Sums`]: what they do with tensors.
//! - `group`: how processes that can exchange numbers decide and fail as one, however these travel.
//! - [`Carrier`]: what moves many numbers between GPUs.
//! - [`nccl`]: the one for GPUs.
//! - [`desk`]: where processes meet that have one, over TCP.
//! - [`EarlySums`]: gradients that leave while the backward pass still computes others.
//! - `mpi`, with the feature of that name: processes that talk through MPI.
//! - [`agreement`]: whether they were asked for the same.
//! - [`waiting`]: how long they wait for each other.
//! - [`Share`], [`Wire`]: which part of every parameter a process looks after, and how exactly gradients travel.
//! - [`threads`]: processes that are threads of one program, for tests and as the reference of every other way.

pub mod agreement;
mod carrier;
pub mod desk;
mod early;
mod group;
#[cfg(test)]
mod group_tests;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod nccl;
mod share;
mod sums;
pub mod threads;
pub mod waiting;
mod wire;

use std::time::Duration;

use tensor::ParamSet;

pub use carrier::Carrier;
pub use early::EarlySums;
pub use group::{Exchange, Group, Sent, Word};
pub use model::{Alone, Awaited, PeerError, Peers};
pub use share::Share;
pub use sums::{Recipient, SumMemory, Sums};
pub use waiting::{Until, Waiting};
pub use wire::Wire;

/// The processes of a run that train together.
pub trait Reduce: Peers + Sums {
    /// Whether any process says so.
    fn any(&mut self, here: bool, until: Until) -> Result<bool, PeerError>;

    /// What the first process says, in all of them; in the others `word` is not looked at.
    fn told(&mut self, word: f64, until: Until) -> Result<f64, PeerError>;

    /// How long this process has been here with the others, above all to wait for them.
    fn waited(&self) -> Duration {
        Duration::ZERO
    }
}

impl Sums for Alone {
    fn sum(&mut self, _: &mut ParamSet, _: Wire) -> Result<(), PeerError> {
        Ok(())
    }

    fn put_together(&mut self, shares: &ParamSet, to: Recipient<'_>) -> Result<(), PeerError> {
        if let Recipient::Everyone(whole) | Recipient::First(whole) = to {
            for (whole, share) in whole.tensors_mut().iter_mut().zip(shares.iter()) {
                whole.copy_from(share);
            }
        }
        Ok(())
    }
}

impl Reduce for Alone {
    fn any(&mut self, here: bool, _: Until) -> Result<bool, PeerError> {
        Ok(here)
    }

    fn told(&mut self, word: f64, _: Until) -> Result<f64, PeerError> {
        Ok(word)
    }
}
