//! Files: written completely or not at all, and the formats that more than one crate reads or writes.
//!
//! - `replace`: a file is there completely or not at all, also after a power loss.
//! - `bounded`: whole files into memory, up to a sensible size.
//! - `cache`: where this user's caches are.
//! - [`safetensors`]: tensors with names, the format of weights, features and checkpoints.

mod bounded;
mod cache;
mod replace;
pub mod safetensors;

pub use bounded::{
    Unbounded, is_line_too_long, read_bounded, read_line_bounded, read_text_bounded, read_text_or_pipe_bounded,
    skip_line,
};
pub use cache::{CACHE_VARIABLE, cache_folder};
pub use replace::{
    UNFINISHED, create_unfinished, finished_name, is_unfinished, remove_if_abandoned, remove_if_there, replace,
    replace_with, sync_folder_of, unfinished_path,
};
