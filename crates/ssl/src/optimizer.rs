//! AdamW with DINO's parameter groups, per-tensor clipping and frozen prototypes; the teacher follows in the same pass.

use model::Layout;
use tensor::ops::{self, AdamW, ParameterUpdate, Teacher};
use tensor::{ParamId, ParamSet};

use crate::loss::NotFinite;
use crate::schedule::StepValues;

/// Moments and step counts.
#[derive(Debug)]
pub struct Optimizer {
    adam: AdamW,
    clip: f64,
    groups: Vec<Group>,
    /// First moment.
    pub first: ParamSet,
    /// Second moment.
    pub second: ParamSet,
    /// Steps that each parameter has seen.
    pub steps: Vec<u64>,
}

/// How a parameter is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    trainable: bool,
    decays: bool,
    last_layer: bool,
}

/// What [`Optimizer::new`] needs besides the parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimizerOptions {
    /// AdamW's constants.
    pub adam: AdamW,
    /// Largest norm of a parameter's gradient; 0 for no limit.
    pub clip: f64,
    /// Whether g, the prototypes' lengths, is trained.
    pub train_magnitude: bool,
    /// Whether weight decay applies to g.
    pub decay_magnitude: bool,
}

/// Gradient norms of a step, before clipping.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GradientReport {
    /// Norm of the whole gradient.
    pub norm: f64,
    /// Sum of the norms of the trained tensors.
    pub sum_of_norms: f64,
    /// How many tensors were clipped.
    pub clipped: usize,
    /// The tensor with the largest norm.
    pub largest: Option<ParamId>,
}

impl Optimizer {
    /// Zero moments for every parameter of a network; `magnitude` is its g.
    pub fn new(layout: &Layout, like: &ParamSet, magnitude: ParamId, options: OptimizerOptions) -> Self {
        let group = |(i, spec): (usize, &model::ParamSpec)| {
            let is_magnitude = ParamId(i) == magnitude;
            Group {
                trainable: !is_magnitude || options.train_magnitude,
                decays: spec.decays() && (!is_magnitude || options.decay_magnitude),
                last_layer: spec.name.contains("last_layer"),
            }
        };
        Self {
            adam: options.adam,
            clip: options.clip,
            groups: layout.specs().iter().enumerate().map(group).collect(),
            first: like.zeros_like(),
            second: like.zeros_like(),
            steps: vec![0; like.len()],
        }
    }

    /// Clips, steps and averages: steps 5 to 8 of a training iteration. Changes nothing where a gradient is not finite.
    pub fn step(
        &mut self,
        layout: &Layout,
        student: &mut ParamSet,
        gradient: &ParamSet,
        teacher: &mut ParamSet,
        values: &StepValues,
    ) -> Result<GradientReport, NotFinite> {
        let squares = ops::squared_norms(gradient);
        let mut report = GradientReport::default();
        let mut total = 0.0;
        let mut largest = 0.0;
        let mut updates = Vec::with_capacity(squares.len());
        for (i, (&square, group)) in squares.iter().zip(&self.groups).enumerate() {
            if !group.trainable {
                updates.push(ParameterUpdate::Freeze);
                continue;
            }
            if !square.is_finite() {
                return Err(NotFinite { term: format!("the gradient of {}", layout.specs()[i].name) });
            }
            let norm = square.sqrt();
            total += square;
            report.sum_of_norms += norm;
            if norm > largest {
                (largest, report.largest) = (norm, Some(ParamId(i)));
            }
            let coefficient = if self.clip > 0.0 { self.clip / (norm + 1e-6) } else { 1.0 };
            report.clipped += usize::from(coefficient < 1.0);
            updates.push(if values.last_layer_frozen && group.last_layer {
                ParameterUpdate::Freeze
            } else {
                ParameterUpdate::Train {
                    lr: values.lr,
                    decay: if group.decays { values.weight_decay } else { 0.0 },
                    clip: coefficient.min(1.0),
                    t: self.steps[i] + 1,
                }
            });
        }
        for (steps, update) in self.steps.iter_mut().zip(&updates) {
            *steps += u64::from(*update != ParameterUpdate::Freeze);
        }
        let momentum = vec![values.momentum; updates.len()];
        ops::adamw_and_average(
            student,
            gradient,
            &mut self.first,
            &mut self.second,
            &updates,
            &self.adam,
            Some(Teacher { weights: teacher, momentum: &momentum }),
        );
        report.norm = total.sqrt();
        Ok(report)
    }
}
