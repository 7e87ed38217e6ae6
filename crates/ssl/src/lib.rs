//! Self-supervised training of vision transformers: what to train, by which schedule, and where it is kept.

pub mod health;
pub mod learner;
pub mod loss;
pub mod memory;
pub mod optimizer;
pub mod recipe;
pub mod run;
pub mod schedule;
pub mod trainer;
