//! Why processes did not come together at a desk.

use std::io;

/// Why there is no desk, or this process has no place at it.
#[derive(Debug, thiserror::Error)]
pub enum DeskError {
    /// Other programs hold the ports.
    #[error("{} of {host}, where the processes of this run meet, {} taken by another program", ports(taken), if taken.len() == 1 { "is" } else { "are" })]
    Taken {
        /// The host.
        host: String,
        /// The ports.
        taken: Vec<u16>,
    },
    /// Something else than a taken port.
    #[error("no connections can be taken at {place}, where the processes of this run meet: {source}")]
    Closed {
        /// Where.
        place: String,
        /// What the system says.
        source: io::Error,
    },
    /// A name that stands for no address.
    #[error("{host}, where the processes of this run meet, is no host that this machine knows: {source}")]
    Unknown {
        /// The name.
        host: String,
        /// What the system says.
        source: io::Error,
    },
    /// Nobody keeps a desk.
    #[error("process 0 was not found at {place} for {seconds} s: {last}")]
    Nobody {
        /// Where.
        place: String,
        /// For how long.
        seconds: u64,
        /// What came of the last attempt.
        last: String,
    },
    /// Process 0 does not want this one.
    #[error("process 0 at {place} has refused this process: {why}")]
    Refused {
        /// Where.
        place: String,
        /// Why.
        why: String,
    },
    /// The system gives no thread, or no connection.
    #[error("the processes of this run cannot meet: {0}")]
    System(#[from] io::Error),
}

fn ports(all: &[u16]) -> String {
    match all {
        [one] => format!("port {one}"),
        all => format!("ports {}", all.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")),
    }
}
