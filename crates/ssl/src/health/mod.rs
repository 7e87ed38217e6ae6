//! Is the run learning, has it collapsed, or is it too early to tell?
//!
//! The loss alone does not tell: it falls when the teacher gets sharper and rises when it gets smoother. What tells is
//! its divergence part, how the teacher's weight is spread over the prototypes, and whether features differ at all.
//!
//! - `window`: the numbers of a step, from tensors already at hand.
//! - `rank`: in how many directions features differ.
//! - `verdict`: what is wrong in the middle of a run.
//! - `remedy`: what to change in a run that has collapsed, and why.
//! - `movement`: how far the weights have come from where they began.
//! - `progress`: accuracies, and which differences chance explains.
//! - `start`: whether what was given is being lost.
//! - `judgement`: what a run is worth at its end, and the next thing to try.

mod judgement;
#[cfg(test)]
mod judgement_tests;
mod movement;
mod progress;
mod rank;
mod remedy;
mod start;
mod verdict;
mod window;

pub use judgement::{Ending, Evidence, FEW_IMAGES, Judgement, Kind, judge};
pub use movement::Movement;
pub(crate) use rank::RANK_ROWS;
pub use rank::effective_rank;
pub use remedy::Remedy;
pub use start::fall;
pub use verdict::{CollapseKind, Course, Finding, Moment, USUAL_LR, Verdict};
pub use window::{Health, Vitals};
