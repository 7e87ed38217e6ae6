//! The end of every training step: from a gradient to new weights, in all processes at once.

use model::Layout;
use tensor::{Device, ParamSet};

use crate::error::StepError;
use crate::optimizer::{GradientReport, Optimizer, StepValues};
use crate::reduce::{PeerError, Reduce, Until, Wire};

/// What a step was like.
#[derive(Clone, Debug, Default)]
pub struct StepReport {
    /// The loss, over all processes.
    pub loss: f64,
    /// The gradient.
    pub gradient: GradientReport,
}

/// What a step changes.
#[derive(Debug)]
pub struct Trained<'a> {
    /// The parameters by name.
    pub layout: &'a Layout,
    /// Their values.
    pub weights: &'a mut ParamSet,
    /// The gradient of this process, which is replaced by that of all.
    pub gradient: &'a mut ParamSet,
    /// The moving average that follows, where there is one.
    pub teacher: Option<&'a mut ParamSet>,
}

/// Completes a step whose gradient this process has computed, with `loss` as its share of the loss; gradients travel
/// over this `wire`. Where a process has failed, or a gradient is not finite, none changes a weight. Where one is lost after the
/// weights have changed, they belong to no step: [`Optimizer::tear`].
pub fn complete(
    loss: Result<f64, StepError>,
    trained: Trained<'_>,
    optimizer: &mut Optimizer,
    values: &StepValues,
    device: &Device,
    reduce: &mut dyn Reduce,
    wire: Wire,
) -> Result<StepReport, StepError> {
    let Trained { layout, weights, gradient, teacher } = trained;
    // Zeros stand for results after a failure of the device, so its error is asked for before theirs.
    let loss = together(device.check().map_err(StepError::from).and(loss), reduce)?;
    let loss = reduce.gather(&[loss])?.iter().flatten().sum();
    // Once a step, however many parts its images were taken in.
    reduce.sum(gradient, wire)?;
    let report = optimizer.step(layout, weights, gradient, teacher, values, reduce);
    let is_taken = report.is_ok();
    let report = together(device.check().map_err(StepError::from).and(report), reduce);
    if is_taken && report.is_err() {
        optimizer.tear();
    }
    Ok(StepReport { loss, gradient: report? })
}

/// What this process has found, if no other one has failed.
pub fn together<T, E: From<StepError>>(here: Result<T, E>, reduce: &mut dyn Reduce) -> Result<T, E> {
    together_until(here, reduce, Until::Limit)
}

/// The same; one of them may have done something alone, however long it took.
pub fn together_until<T, E: From<StepError>>(
    here: Result<T, E>,
    reduce: &mut dyn Reduce,
    until: Until,
) -> Result<T, E> {
    match reduce.any(here.is_err(), until).map_err(StepError::from)? {
        true => Err(here.err().unwrap_or_else(|| StepError::from(PeerError::Elsewhere).into())),
        false => here,
    }
}
