//! Files: written completely or not at all, and the formats that more than one crate reads or writes.
//!
//! - `replace`: a file is there completely or not at all, also after a power loss.
//! - [`Replacement`]: the same for a file that is written over some time.
//! - `bounded`: whole files into memory, up to a sensible size.
//! - `cache`: where this user's caches are.
//! - [`csv`]: the records of a table as text.
//! - [`safetensors`]: tensors with names, the format of weights, features and checkpoints.
//! - [`parquet`]: tables that analysts read, written and read back; [`thrift`]: what their structures are made of.
//! - [`zip`]: the directory of a zip archive, whose entries lie in the file as they are.
//! - [`pickle`]: Python's pickles, read without running them. Both are what files of PyTorch are made of.
//! - [`numpy`]: NumPy's arrays, in files of their own and in pickles.
//! - [`fuzz`]: the parsers, for a fuzzer to call.

mod bounded;
mod cache;
pub mod csv;
pub mod fuzz;
pub mod numpy;
pub mod parquet;
pub mod pickle;
mod replace;
mod replacement;
pub mod safetensors;
pub mod thrift;
pub mod zip;

pub use bounded::{
    Unbounded, is_line_too_long, read_bounded, read_bounded_into, read_line_bounded, read_text_bounded,
    read_text_or_pipe_bounded, skip_line,
};
pub use cache::{CACHE_VARIABLE, cache_folder};
pub use replace::{
    UNFINISHED, create_unfinished, finished_name, is_unfinished, remove_if_abandoned, remove_if_there, replace,
    replace_with, sync_folder_of, unfinished_path,
};
pub use replacement::Replacement;
