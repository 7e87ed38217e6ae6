//! Self-supervised training of vision transformers.
//!
//! - [`recipe`]: what to train, with everything that was not said derived from the data.
//! - [`mask`]: which patches the student does not see.
//! - [`method`]: the methods, one file each, behind one trait.
//! - [`view_plan`], [`branches`]: which views a step has, which network sees which, and which of its branches the student skips.
//! - [`target`], [`loss`], [`sinkhorn`]: the teacher's side of a loss, and the loss; [`koleo`], [`lengths`] and [`penalty`]: what it asks of prototypes.
//! - [`learner`]: student, teacher and the step that trains them.
//! - [`beginning`], [`layer_decay`]: weights to begin with instead of drawn ones, and how fast their layers learn.
//! - [`schedule`], [`health`], [`memory`]: what changes with time, whether the run learns, what it needs.
//! - [`cost`], [`trial`]: what a step costs, by count and by the clock.
//! - [`pretraining`]: all of it as the loop of [`train`] takes it.

pub mod beginning;
pub mod branches;
pub mod cost;
pub mod health;
pub mod koleo;
pub mod layer_decay;
pub mod learner;
pub mod lengths;
pub mod loss;
pub mod mask;
pub mod memory;
pub mod method;
pub mod penalty;
pub mod pretraining;
pub mod recipe;
pub mod schedule;
pub mod setup;
pub mod sinkhorn;
pub mod target;
pub mod trial;
pub mod view_plan;
