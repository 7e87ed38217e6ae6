//! AdamW with a treatment for each parameter: decayed or not, clipped by tensor or by the norm of all, frozen at first,
//! waiting for others, pulled towards where it began, or trained by its logarithm; the teacher follows in the same pass.
//!
//! Of several processes each may keep the moments of its [`Share`] of every parameter and step that share alone (ZeRO-1: Rajbhandari
//! et al. 2020); the new weights are put together, and from there on all compute the same bits as with all moments everywhere.

use model::{Layout, ParamSpec};
use tensor::ops::{self, AdamW, ParameterUpdate, PartMoments, Teacher};
use tensor::{ParamSet, Tensor};

use crate::error::{NotFinite, StepError};
use crate::logarithm::{self, Logarithms};
use crate::reduce::{PeerError, Recipient, Reduce, Share};
use crate::state::{SavedState, State, StateError};

/// Added to a gradient's norm before it divides, as PyTorch and DINO do.
const CLIP_EPSILON: f64 = 1e-6;

/// How the optimiser treats a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Treatment {
    /// Whether it is trained at all.
    pub trained: bool,
    /// Whether weight decay applies to it.
    pub decays: bool,
    /// How its gradient is clipped.
    pub clip: Clip,
    /// What the learning rate is multiplied by.
    pub lr_factor: f64,
    /// Whether it stays as it is in the steps that say so ([`StepValues::frozen`]): no gradient, no decay, no moments.
    pub frozen_at_first: bool,
    /// Whether it waits until others have warmed up: its learning rate has a factor of its own
    /// ([`StepValues::waiting_lr`]), and at zero nothing of it moves, its teacher included.
    pub waits: bool,
    /// Whether it is pulled towards where it began ([`OptimizerOptions::pull`]).
    pub pulled: bool,
    /// Whether the teacher, where there is one, follows it.
    pub followed: bool,
    /// Whether the logarithm of its size is trained in its place: l = ln |w| has the gradient w dw, moments, clipping and decay
    /// of its own, and the teacher averages logarithms. The sign stays. Between steps there is w alone.
    pub in_log: bool,
}

/// How a gradient is clipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clip {
    /// By its own norm.
    ByTensor,
    /// By the norm of all gradients that are clipped so.
    ByGlobalNorm,
    /// Not at all.
    No,
}

impl Treatment {
    /// The usual treatment: trained from the first step, followed, clipped by itself; biases and other vectors are not
    /// decayed.
    pub fn usual(spec: &ParamSpec) -> Self {
        Self {
            trained: true,
            decays: spec.decays(),
            clip: Clip::ByTensor,
            lr_factor: 1.0,
            frozen_at_first: false,
            waits: false,
            pulled: false,
            followed: true,
            in_log: false,
        }
    }
}

/// What all parameters share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimizerOptions {
    /// AdamW's constants.
    pub adam: AdamW,
    /// Largest norm of a gradient that is clipped; 0 for no limit.
    pub clip: f64,
    /// Strength of the pull of a weight w towards w0, where it began: before each step w <- w - lr pull (w - w0), with the
    /// learning rate of that weight. 0 for none.
    pub pull: f64,
}

/// The scheduled values of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepValues {
    /// Learning rate.
    pub lr: f64,
    /// Weight decay of what is decayed.
    pub weight_decay: f64,
    /// Momentum m of the teacher, t <- m t + (1 - m) s.
    pub momentum: f64,
    /// Whether parameters that are frozen at first stay as they are.
    pub frozen: bool,
    /// What the learning rate of parameters that wait is multiplied by; at 0 they are held still.
    pub waiting_lr: f64,
}

/// Moments and step counts.
#[derive(Debug)]
pub struct Optimizer {
    options: OptimizerOptions,
    treatments: Vec<Treatment>,
    /// Which part of every parameter the moments are of.
    share: Share,
    /// First moment.
    first: ParamSet,
    /// Second moment.
    second: ParamSet,
    /// Both moments of all parameters, in the process that writes, while it does and where it has only a share itself.
    whole: Option<(ParamSet, ParamSet)>,
    /// Whether a step has changed something and was never completed: there is nothing to save.
    is_torn: bool,
    /// Steps that each parameter has seen.
    steps: Vec<u64>,
    /// Where the weights began, if they are pulled there. No step changes it.
    begun: Option<ParamSet>,
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
}

impl Optimizer {
    /// Zero moments for parameters like these, or for a share of each: in all processes that train together, each with its
    /// own.
    ///
    /// # Panics
    /// When there is not one treatment for each parameter.
    pub fn new(like: &ParamSet, treatments: Vec<Treatment>, options: OptimizerOptions, share: Share) -> Self {
        assert_eq!(treatments.len(), like.len(), "one treatment for each parameter");
        let steps = vec![0; like.len()];
        let is_pulled = options.pull > 0.0 && treatments.iter().any(|t| t.pulled);
        let begun = is_pulled.then(|| like.duplicate());
        let (first, second) = (share.zeros_of(like), share.zeros_of(like));
        Self { options, treatments, share, first, second, whole: None, is_torn: false, steps, begun }
    }

    /// Says anew where the weights begin, if they are pulled there.
    pub fn begin_at(&mut self, weights: &ParamSet) {
        let pairs = self.begun.iter_mut().flat_map(|begun| begun.tensors_mut().iter_mut().zip(weights.iter()));
        pairs.for_each(|(begun, weight)| begun.copy_from(weight));
    }

    /// Numbers that this process keeps beside the weights: both moments of its share.
    pub fn state_elements(&self) -> usize {
        self.first.iter().chain(self.second.iter()).map(Tensor::len).sum()
    }

    /// The first moment of each parameter, or of this process's share of it: the mean of its gradients.
    pub fn first_moment(&self) -> &ParamSet {
        &self.first
    }

    /// Brings the moments of all processes together in the first one, which is to save them. All of them come for it.
    pub fn collect(&mut self, like: &ParamSet, reduce: &mut dyn Reduce) -> Result<(), PeerError> {
        if self.is_torn {
            return Err(PeerError::Lost("the last step was not taken by all of them".to_owned()));
        }
        if self.share.is_whole() {
            return Ok(());
        }
        let mut whole = (reduce.rank() == 0).then(|| (like.zeros_like(), like.zeros_like()));
        let to = |whole| Recipient::First(whole);
        let (first, second) = whole.as_mut().map(|(first, second)| (to(first), to(second))).unzip();
        reduce.put_together(&self.first, first.unwrap_or(Recipient::Another))?;
        reduce.put_together(&self.second, second.unwrap_or(Recipient::Another))?;
        self.whole = whole;
        Ok(())
    }

    /// Says that what belongs to the last step beside this was not done: all together is of no step, and cannot be collected
    /// until something is restored.
    pub fn tear(&mut self) {
        self.is_torn = true;
    }

    /// Lets go of what [`Optimizer::collect`] has brought.
    pub fn release(&mut self) {
        self.whole = None;
    }

    /// Names moments and step counts for a checkpoint. Where they are spread over processes, they have been brought together
    /// first: [`Optimizer::collect`].
    pub fn save<'a>(&'a self, layout: &Layout, state: &mut State<'a>) {
        let (first, second) =
            self.whole.as_ref().map_or((&self.first, &self.second), |(first, second)| (first, second));
        state.set("first", layout, first);
        state.set("second", layout, second);
        state.value("optimizer_steps", self.steps.clone());
    }

    /// Restores moments, or this process's share of them, and step counts.
    pub fn restore(&mut self, layout: &Layout, saved: &SavedState<'_>) -> Result<(), StateError> {
        saved.shares("first", layout, self.share, &mut self.first)?;
        saved.shares("second", layout, self.share, &mut self.second)?;
        self.steps = saved.numbers("optimizer_steps", self.steps.len())?;
        self.is_torn = false;
        Ok(())
    }

    /// Clips, steps and averages. Changes no weight where a gradient is not finite; the gradient may become that of logarithms.
    pub fn step(
        &mut self,
        layout: &Layout,
        weights: &mut ParamSet,
        gradient: &mut ParamSet,
        mut teacher: Option<&mut ParamSet>,
        values: &StepValues,
        reduce: &mut dyn Reduce,
    ) -> Result<GradientReport, StepError> {
        logarithm::gradients(&self.treatments, weights, gradient);
        let norms = self.norms(layout, gradient)?;
        let mut report = GradientReport::default();
        let mut total = 0.0;
        let mut updates = Vec::with_capacity(norms.len());
        let is_held = |t: &Treatment| t.waits && values.waiting_lr == 0.0;
        let global = self.coefficient(self.global_norm(&norms, is_held));
        for (i, (&norm, treatment)) in norms.iter().zip(&self.treatments).enumerate() {
            if !treatment.trained || is_held(treatment) {
                updates.push(ParameterUpdate::Freeze);
                continue;
            }
            total += norm.square;
            report.sum_of_norms += norm.root;
            let coefficient = match treatment.clip {
                Clip::ByTensor => self.coefficient(norm.root),
                Clip::ByGlobalNorm => global,
                Clip::No => 1.0,
            };
            report.clipped += usize::from(coefficient < 1.0);
            updates.push(if values.frozen && treatment.frozen_at_first {
                ParameterUpdate::Freeze
            } else {
                ParameterUpdate::Train {
                    lr: treatment.lr_factor * values.lr * if treatment.waits { values.waiting_lr } else { 1.0 },
                    decay: if treatment.decays { values.weight_decay } else { 0.0 },
                    clip: coefficient.min(1.0),
                    t: self.steps[i] + 1,
                }
            });
        }
        for (steps, update) in self.steps.iter_mut().zip(&updates) {
            *steps += u64::from(*update != ParameterUpdate::Freeze);
        }
        self.pull(weights, gradient, &updates);
        // A momentum of one leaves a teacher where it is.
        let follows = |t: &Treatment| t.followed && !is_held(t);
        let momentum: Vec<f64> =
            self.treatments.iter().map(|t| if follows(t) { values.momentum } else { 1.0 }).collect();
        report.norm = total.sqrt();
        let logarithms = Logarithms::of(&self.treatments, &updates, weights, teacher.as_deref_mut());
        let followers = teacher.as_deref_mut().map(|weights| Teacher { weights, momentum: &momentum });
        let moved = self.advance(weights, gradient, &updates, followers, reduce);
        logarithms.back(weights, teacher);
        moved.map(|()| report)
    }

    /// The step itself: of all parameters, or of this process's share of them, after which all have those of all.
    fn advance(
        &mut self,
        weights: &mut ParamSet,
        gradient: &ParamSet,
        updates: &[ParameterUpdate],
        teacher: Option<Teacher<'_>>,
        reduce: &mut dyn Reduce,
    ) -> Result<(), StepError> {
        let (first, second) = (&mut self.first, &mut self.second);
        if self.share.is_whole() {
            ops::adamw_and_average(weights, gradient, first, second, updates, &self.options.adam, teacher);
            return Ok(());
        }
        self.is_torn = true;
        let parts: Vec<_> = weights.iter().map(|weights| self.share.of_elements(weights.len())).collect();
        let moments = PartMoments { parts: &parts, first, second };
        ops::adamw_on_parts(weights, gradient, moments, updates, &self.options.adam);
        reduce.put_together(&self.share.copy_of(weights), Recipient::Everyone(weights))?;
        self.is_torn = false;
        if let Some(teacher) = teacher {
            ops::average(weights, teacher);
        }
        Ok(())
    }

    /// Moves each weight that is pulled a part of its way back to where it began. That is what a teacher does that follows
    /// a student: here the weights follow where they began, which stays.
    fn pull(&mut self, weights: &mut ParamSet, gradient: &ParamSet, updates: &[ParameterUpdate]) {
        let Self { options, treatments, share: kept, first, second, begun, .. } = self;
        let Some(begun) = begun else { return };
        let share = |(update, treatment): (&ParameterUpdate, &Treatment)| match update {
            ParameterUpdate::Train { lr, .. } if treatment.pulled => (lr * options.pull).min(1.0),
            _ => 0.0,
        };
        let momentum: Vec<f64> = updates.iter().zip(treatments.iter()).map(share).map(|share| 1.0 - share).collect();
        if momentum.iter().all(|&m| m == 1.0) {
            return;
        }
        let followers = Teacher { weights, momentum: &momentum };
        if kept.is_whole() {
            let still = vec![ParameterUpdate::Freeze; updates.len()];
            ops::adamw_and_average(begun, gradient, first, second, &still, &options.adam, Some(followers));
        } else {
            ops::average(begun, followers);
        }
    }

    /// The norm of each tensor's gradient, if those of all that are trained are finite.
    fn norms(&self, layout: &Layout, gradient: &ParamSet) -> Result<Vec<Norm>, NotFinite> {
        let squares = ops::squared_norms(gradient).into_iter();
        let norms: Vec<Norm> = squares.map(|square| Norm { square, root: square.sqrt() }).collect();
        let mut trained = self.treatments.iter().zip(&norms).enumerate().filter(|(_, (t, _))| t.trained);
        match trained.find(|(_, (_, norm))| !norm.square.is_finite()) {
            Some((i, _)) => Err(NotFinite { term: format!("the gradient of {}", layout.specs()[i].name) }),
            None => Ok(norms),
        }
    }

    fn global_norm(&self, norms: &[Norm], is_held: impl Fn(&Treatment) -> bool) -> f64 {
        let shared = |t: &Treatment| t.trained && !is_held(t) && t.clip == Clip::ByGlobalNorm;
        norms.iter().zip(&self.treatments).filter(|(_, t)| shared(t)).map(|(norm, _)| norm.square).sum::<f64>().sqrt()
    }

    /// What a gradient of this norm is multiplied by where that is less than one.
    fn coefficient(&self, norm: f64) -> f64 {
        if self.options.clip > 0.0 { self.options.clip / (norm + CLIP_EPSILON) } else { 1.0 }
    }
}

/// The size of one tensor's gradient.
#[derive(Clone, Copy, Debug)]
struct Norm {
    square: f64,
    root: f64,
}
