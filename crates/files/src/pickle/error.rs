//! Why a pickle was not read.

use std::io;

use super::input::MAX_LINE;

/// What is wrong with a pickle, and where.
#[derive(Debug, thiserror::Error)]
#[error("byte {at} of the pickle: {problem}")]
pub struct PickleError {
    /// Where the instruction that went wrong begins, counted from the first byte of the pickle.
    pub at: u64,
    /// What is wrong with it.
    #[source]
    pub problem: Problem,
}

/// What is wrong with an instruction of a pickle.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The bytes end before the pickle does.
    #[error("the file ends within the pickle. Was it copied or downloaded to its end?")]
    End,
    /// A protocol that is newer than this reader.
    #[error("protocol {0}, of which nothing is known here; save it again with `protocol=4`")]
    Protocol(u8),
    /// No instruction of any protocol: damage, or no pickle at all.
    #[error("{0:#04x} is no instruction of a pickle: the file is damaged, or of another format")]
    UnknownInstruction(u8),
    /// A class named by a number that only the program that wrote the file knows (`copyreg.add_extension`).
    #[error("it names a class by a number of `copyreg.add_extension`, which only its writer can resolve")]
    Extension,
    /// A buffer that is not in the file (`pickle.dumps(.., buffer_callback=..)`).
    #[error("it refers to a buffer outside the file; save it again without `buffer_callback`")]
    OutOfBand,
    /// An instruction takes more from the stack than lies there.
    #[error("the stack is empty where an instruction takes something from it")]
    EmptyStack,
    /// An instruction takes everything down to a mark, and none was set.
    #[error("an instruction goes back to a mark, and there is none")]
    NoMark,
    /// A reference to something that was never remembered.
    #[error("it refers to object {0} of its memo, which is not there")]
    NoSuchMemo(u32),
    /// A number that is none, or a text with an impossible escape.
    #[error("{0} is malformed")]
    Malformed(&'static str),
    /// A length below zero.
    #[error("a length of {0} bytes")]
    NegativeLength(i32),
    /// A line that no sensible pickle has.
    #[error("a line of more than {MAX_LINE} bytes")]
    LineTooLong,
    /// An instruction finds something else than it works on.
    #[error("{instruction} finds {found} where it needs {needed}")]
    Mismatch {
        /// The instruction, by its name in Python's `pickletools`.
        instruction: &'static str,
        /// What it can work on.
        needed: &'static str,
        /// What there is.
        found: &'static str,
    },
    /// More objects than [`Limits`](super::Limits) allows.
    #[error("it makes more than {limit} objects, the most that is read")]
    TooManyNodes {
        /// The most that is read.
        limit: usize,
    },
    /// More memory than [`Limits`](super::Limits) allows.
    #[error("it takes more than {limit} bytes of memory, the most that is given to it")]
    TooManyBytes {
        /// The most that is given.
        limit: usize,
    },
}
