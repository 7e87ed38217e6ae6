//! What the processes of one run do together: they add up gradients and statistics, and decide as one.
//!
//! Each process computes on its part of a step's images, with its loss weighted by the images of the whole step, so that
//! the sum over all of them is the step's gradient. It is taken between the gradient and the optimiser; from there on
//! every process computes the same. A decision that one process makes alone (to stop, to save, that a value is not
//! finite) would leave the others waiting, so it is made by all.

use tensor::ParamSet;

/// The processes of a run, as one of them sees them.
pub trait Reduce: Send {
    /// How many there are.
    fn ranks(&self) -> usize;
    /// Replaces each tensor by its sum over all processes.
    fn sum(&mut self, tensors: &mut ParamSet);
    /// The numbers of all processes, in their order.
    fn gather(&mut self, here: &[f64]) -> Vec<Vec<f64>>;
    /// Whether any process says so.
    fn any(&mut self, here: bool) -> bool;
}

/// A run of one process: its own sum, and nobody to ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alone;

impl Reduce for Alone {
    fn ranks(&self) -> usize {
        1
    }

    fn sum(&mut self, _: &mut ParamSet) {}

    fn gather(&mut self, here: &[f64]) -> Vec<Vec<f64>> {
        vec![here.to_vec()]
    }

    fn any(&mut self, here: bool) -> bool {
        here
    }
}
