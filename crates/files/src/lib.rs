//! Files: written completely or not at all, and the formats that more than one crate reads or writes.
//!
//! - `replace`: a file is there completely or not at all, also after a power loss.
//! - `cache`: where this user's caches are.
//! - [`safetensors`]: tensors with names, the format of weights, features and checkpoints.

mod cache;
mod replace;
pub mod safetensors;

pub use cache::{CACHE_VARIABLE, cache_folder};
pub use replace::{
    UNFINISHED, finished_name, is_abandoned, is_unfinished, remove_if_there, replace, replace_with, sync_folder_of,
    unfinished_path,
};
