//! Parquet: a table, column by column, whose description stands at its end.
//!
//! ```text
//! PAR1
//! for each group of rows, for each column: a page (a header in Thrift, levels, values)
//! description: the columns, where their pages are, metadata as texts by key
//! 4 bytes   length of the description
//! PAR1
//! ```
//!
//! [`TableWriter`] writes plain, uncompressed pages, a group of rows at a time. [`TableReader`] reads columns of such tables,
//! and [`metadata`] the texts of a file's description, without trusting it.

mod columns;
mod levels;
mod metadata;
mod read;
mod schema;
mod write;

pub use columns::{Column, Values};
pub use metadata::metadata;
pub use read::{TableError, TableReader};
pub use write::TableWriter;

/// What a file starts and ends with.
const MAGIC: &[u8; 4] = b"PAR1";
