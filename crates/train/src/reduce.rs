//! What the processes of one run do together: they add up gradients and statistics, and decide as one.
//!
//! Each process computes on its part of a step's images, with its loss weighted by the images of the whole step, so that
//! the sum over all of them is the step's gradient. It is taken between the gradient and the optimiser; from there on
//! every process computes the same. A decision that one process makes alone (to stop, to save, that something failed)
//! would leave the others waiting, so it is made by all.

use tensor::{DeviceError, ParamSet};

/// The processes of a run, as one of them sees them. All of them call the same functions in the same order.
pub trait Reduce: Send {
    /// The number of this process, from 0.
    fn rank(&self) -> usize;
    /// How many processes there are.
    fn ranks(&self) -> usize;
    /// Replaces each tensor by its sum over all processes.
    fn sum(&mut self, tensors: &mut ParamSet) -> Result<(), DeviceError>;
    /// The numbers of all processes, in their order.
    fn gather(&mut self, here: &[f64]) -> Result<Vec<Vec<f64>>, DeviceError>;
    /// Whether any process says so.
    fn any(&mut self, here: bool) -> Result<bool, DeviceError>;
}

/// A run of one process: its own sum, and nobody to ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alone;

impl Reduce for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn ranks(&self) -> usize {
        1
    }

    fn sum(&mut self, _: &mut ParamSet) -> Result<(), DeviceError> {
        Ok(())
    }

    fn gather(&mut self, here: &[f64]) -> Result<Vec<Vec<f64>>, DeviceError> {
        Ok(vec![here.to_vec()])
    }

    fn any(&mut self, here: bool) -> Result<bool, DeviceError> {
        Ok(here)
    }
}
