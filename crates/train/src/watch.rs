//! Who accompanies a run: somebody who is told of its progress, and somebody who evaluates what it has learnt.
//!
//! Neither can change what is learnt.

use data::BadSample;

/// Where a run is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Steps done.
    pub step: u64,
    /// Steps in all.
    pub total_steps: u64,
    /// Epoch of the last step, from 0.
    pub epoch: u64,
    /// Loss of the last step.
    pub loss: f64,
    /// Images per second since the last report.
    pub images_per_second: f64,
    /// Share of the time spent waiting for data since the last report.
    pub data_wait: f64,
}

/// Is told how a run goes: a terminal, a log, nobody.
pub trait Monitor {
    /// After every step.
    fn step(&mut self, progress: &Progress);
    /// Something that a person should read: that a run is resumed, a verdict on its health.
    fn say(&mut self, text: &str);
    /// What an evaluation found, whose words were said.
    fn evaluated(&mut self, _found: &Evaluation) {}
    /// An image that could not be read; another took its place.
    fn skipped(&mut self, bad: &BadSample);
    /// Images that were turned upright, for the first time.
    fn turned(&mut self, _images: usize) {}
}

/// What an evaluation found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// Numbers for the log, by their keys.
    pub numbers: Vec<(String, f64)>,
    /// The same in words, or why there are none; empty where there is nothing to say.
    pub words: String,
}

/// Evaluates what is trained after each epoch that is due.
pub trait Evaluator<T> {
    /// What `trained` is worth after `epoch`, counted from 0. A failed evaluation is no reason to end a training: it says
    /// so in words.
    fn evaluate(&mut self, trained: &T, epoch: u64) -> Evaluation;

    /// What `trained` is worth before its first step, where that is asked for
    /// ([`LoopOptions::evaluate_start`](crate::LoopOptions::evaluate_start)).
    fn evaluate_start(&mut self, _trained: &T) -> Evaluation {
        Evaluation::default()
    }
}

/// For a training that nobody evaluates.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvaluation;

impl<T> Evaluator<T> for NoEvaluation {
    fn evaluate(&mut self, _: &T, _: u64) -> Evaluation {
        Evaluation::default()
    }
}
