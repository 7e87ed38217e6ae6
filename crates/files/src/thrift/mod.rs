//! Thrift's compact protocol, as far as parquet's own structures use it: read without trust, and written.

mod read;
mod write;

pub use read::{Kind, Thrift, damage, signed, varint};
pub use write::{StructWriter, put_varint};
