//! Safetensors: a header in JSON, then the tensors one after the other, little-endian and row-major.
//!
//! ```text
//! 8 bytes   length of the header
//! header    {"name": {"dtype": "F32", "shape": [3, 2], "data_offsets": [0, 24]}, "__metadata__": {"key": "value"}}
//! tensors   without gaps, in the order of their offsets
//! ```
//!
//! [`Writer`] streams tensors that need not be in memory; [`Header`] reads what a file claims to hold, without trusting it.

mod header;
mod write;

pub use ::safetensors::Dtype;
pub use header::{Entry, Header, HeaderError, open};
pub use write::{Content, TensorProblem, TensorToWrite, WriteError, Writer};

/// The longest header that the format allows, in bytes.
pub const MAX_HEADER: u64 = 100_000_000;

/// The key of the header that holds the metadata, and so is no tensor's name.
const METADATA: &str = "__metadata__";
