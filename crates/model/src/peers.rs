//! Other processes that see other rows of the same batch.
//!
//! A layer whose result depends on all rows of a batch (batch norm) has to know of the rows elsewhere. What the processes of a
//! run do together besides, the training crate says; it is built on what is here.

use std::fmt;

use tensor::DeviceError;

/// Processes that others wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// Their numbers; none where nobody knows them.
    pub ranks: Vec<usize>,
    /// For how long, in seconds.
    pub seconds: u64,
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.ranks.iter().map(usize::to_string).collect();
        match numbers.as_slice() {
            [] => f.write_str("some process")?,
            [one] => write!(f, "process {one}")?,
            [most @ .., last] => write!(f, "processes {} and {last}", most.join(", "))?,
        }
        write!(f, " {} not come for {} s", if numbers.len() > 1 { "have" } else { "has" }, self.seconds)
    }
}

/// Why something that processes do together was not done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PeerError {
    /// Another process has failed in the middle of a step, and says why itself.
    #[error("another process of this run has failed")]
    Elsewhere,
    /// The others cannot be reached any more.
    #[error("the processes of this run have lost each other: {0}")]
    Lost(String),
    /// Some have not come to where the others wait.
    #[error("{0}, which is longer than the others wait for it (--process-timeout)")]
    Late(Awaited),
    /// The device on which something was to be put together.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// The processes of a run, as one of them sees them. All of them call the same functions in the same order.
pub trait Peers: Send {
    /// The number of this process, from 0.
    fn rank(&self) -> usize;

    /// How many processes there are.
    fn ranks(&self) -> usize;

    /// The numbers of all processes, in their order. Each may have another number of them.
    fn gather(&mut self, here: &[f64]) -> Result<Vec<Vec<f64>>, PeerError>;
}

/// A process without others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alone;

impl Peers for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn ranks(&self) -> usize {
        1
    }

    fn gather(&mut self, here: &[f64]) -> Result<Vec<Vec<f64>>, PeerError> {
        Ok(vec![here.to_vec()])
    }
}
