//! `bench`: how fast this machine is. One file a benchmark.

pub mod data;
pub mod knn;
mod operations;
pub mod step;
mod usage;
