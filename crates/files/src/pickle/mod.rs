//! Python's pickles, read without running them.
//!
//! A pickle is a program for a small stack machine, and among what it may say is: call this function with these arguments.
//! To load one with Python is to run whatever its writer wanted. Here the machine has no functions: a call becomes a node that
//! says what would have been called, and the reader of the pickle decides what it takes that for.
//!
//! All nodes lie in one list and hold each other by their places there. An object that a pickle uses a thousand times is
//! there once, so that no pickle is larger in memory than a fixed multiple of its bytes; [`Limits`] bounds that as well.
//!
//! ```
//! use files::pickle::{Limits, Pickle};
//!
//! // pickle.dumps({"epoch": 7}, protocol=2)
//! let bytes = b"\x80\x02}q\x00X\x05\x00\x00\x00epochq\x01K\x07s.";
//! let pickle = Pickle::read(&mut &bytes[..], &Limits::default()).unwrap();
//! let epoch = pickle.get(pickle.root(), "epoch").unwrap();
//! assert_eq!(pickle.int(epoch), Some(7));
//! ```

mod access;
mod budget;
mod error;
mod input;
mod literal;
mod machine;
mod node;
mod opcode;
mod parse;

use std::io::BufRead;

pub use error::{PickleError, Problem};
pub use node::{Call, Global, Node, NodeId};

use input::Input;

/// What reading a pickle may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most objects.
    pub nodes: usize,
    /// The most memory, in bytes: of the objects, and of everything that reading them needs. A few MiB for the longest line of
    /// text come on top.
    pub bytes: usize,
}

impl Default for Limits {
    /// A million objects and 80 MiB. A checkpoint of a large network has some ten thousand, in a few hundred KiB.
    fn default() -> Self {
        Self { nodes: 1 << 20, bytes: 80 << 20 }
    }
}

/// A pickle: its nodes, one of which stands for the whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Pickle {
    nodes: Vec<Node>,
    root: NodeId,
    length: u64,
}

impl Pickle {
    /// Reads one pickle of any protocol from 0 to 5. The reader stands behind its last byte then, where another may begin.
    pub fn read<R: BufRead + ?Sized>(reader: &mut R, limits: &Limits) -> Result<Self, PickleError> {
        let mut input = Input::new(reader);
        let (nodes, root) = parse::parse(&mut input, limits)?;
        Ok(Self { nodes, root, length: input.position() })
    }

    /// Bytes of the pickle.
    pub fn length(&self) -> u64 {
        self.length
    }
}
