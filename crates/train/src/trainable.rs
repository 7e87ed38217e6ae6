//! What a training brings to the loop: a step, what is saved of it, and what there is to say of it.

use tensor::Device;

use crate::collapse::Condition;
use crate::error::StepError;
use crate::feed::Fed;
use crate::reduce::Reduce;
use crate::run::Record;
use crate::state::{SavedState, State, StateError};

/// Where in a run a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Its number, counted from 0.
    pub step: u64,
    /// Its epoch, counted from 0.
    pub epoch: u64,
}

/// What the log says of a step.
#[derive(Clone, Debug)]
pub struct StepRecord {
    /// The numbers.
    pub record: Record,
    /// What is wrong, in words; none where all is well.
    pub verdict: Option<String>,
    /// How the training is doing. A collapse that lasts ends the run: see [`LoopOptions::patience`](crate::LoopOptions::patience).
    pub condition: Condition,
}

/// What a [`Trainer`](crate::Trainer) trains.
pub trait Trainable {
    /// Where it computes.
    fn device(&self) -> &Device;

    /// The processes that train together.
    fn reduce(&mut self) -> &mut dyn Reduce;

    /// One step of the optimiser on a batch; its loss. An error leaves everything as it was before the step, except after
    /// a failure of the device, or where another process was lost too late for that: then [`Trainable::collect`] fails.
    fn step(&mut self, fed: &Fed, at: Position) -> Result<f64, StepError>;

    /// Adds to `record` what there is to say of the step just taken on this batch.
    fn describe(&mut self, fed: &Fed, at: Position, record: Record) -> Result<StepRecord, StepError>;

    /// Brings together, before it is saved, what the processes hold in parts. All of them come for it. An error where a step
    /// was half taken: that cannot be saved.
    fn collect(&mut self) -> Result<(), StepError> {
        Ok(())
    }

    /// Lets go of what was brought together.
    fn release(&mut self) {}

    /// Names everything that a step changes. What is not finite is not saved.
    fn save<'a>(&'a self, state: &mut State<'a>);

    /// Restores what was saved.
    fn restore(&mut self, saved: &SavedState<'_>) -> Result<(), StateError>;
}
