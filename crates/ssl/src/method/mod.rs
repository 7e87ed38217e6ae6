//! The training methods, one file each, behind one trait.
//!
//! A method says which views it wants and adds the gradient of its loss; it owns its heads, its targets and what it knows
//! of its own health. Networks, optimiser, accumulation, processes and checkpoints are the [`Learner`]'s, which knows no
//! method by name.
//!
//! [`Learner`]: crate::learner::Learner

pub mod dino;
pub mod ibot;
pub mod msn;

use std::fmt;
use std::ops::Range;

use model::{DropPath, Layout, ParamSpec, Tokens, Vit, VitConfig, VitSaved};
use tensor::{Device, ParamId, ParamSet, Tensor};
use train::optimizer::Treatment;
use train::reduce::{EarlySums, PeerError, Reduce, Wire};
use train::run::Record;
use train::state::{SavedState, State, StateError};
use train::{Position, StepError};

use crate::health::{Finding, Moment};
use crate::learner::LearnError;
use crate::recipe::{MethodName, Recipe};
use crate::view_plan::{Part, ViewPlan};

/// The two networks of a step.
#[derive(Clone, Copy, Debug)]
pub struct Networks<'a> {
    /// Where they compute.
    pub device: &'a Device,
    /// What both are.
    pub vit: &'a Vit,
    /// The weights that are trained.
    pub student: &'a ParamSet,
    /// Their moving average.
    pub teacher: &'a ParamSet,
}

/// A part of a step, possibly all of it.
#[derive(Clone, Debug)]
pub struct StepPart<'a> {
    /// Its images with their views.
    pub views: Part<'a>,
    /// What the draws of each of them are keyed by, in the same order.
    pub keys: &'a [u64],
    /// Images of the whole step, in all processes: what the loss is a mean over.
    pub step_images: usize,
    /// Which residual branches each of the student's rows takes.
    pub drop_path: Option<&'a DropPath>,
    /// Which step it is.
    pub at: Position,
    /// Whether the backbone learns in this step. Where it is held still, nobody needs its gradient.
    pub backbone_learns: bool,
    /// How gradients travel to other processes, in the last part of a step: what is final then may leave. None in the others.
    pub leaving: Option<Wire>,
}

impl StepPart<'_> {
    /// The share of its images in the step.
    pub fn share(&self) -> f64 {
        self.views.images() as f64 / self.step_images as f64
    }
}

/// The backward pass of the student's backbone, which is the last thing that a part adds to a gradient. In the last part of a
/// step gradients leave for the other processes as soon as they are final: those of `heads` first.
fn backward_backbone(
    networks: &Networks<'_>,
    part: &StepPart<'_>,
    (saved, d_tokens): (VitSaved, &Tensor),
    heads: Range<usize>,
    reduce: &mut dyn Reduce,
    gradient: &mut ParamSet,
) -> Result<(), StepError> {
    let Networks { vit, student, .. } = *networks;
    if !part.backbone_learns {
        return Ok(());
    }
    let early = part.leaving.map(|wire| EarlySums::begin(reduce, wire)).transpose()?.flatten();
    let Some(mut early) = early else {
        vit.backward(student, saved, d_tokens, gradient);
        return Ok(());
    };
    early.are_final(gradient, heads);
    vit.backward_telling(student, saved, d_tokens, gradient, &mut |gradient, ids| early.are_final(gradient, ids));
    Ok(early.end()?)
}

/// What all processes have seen, in their order.
fn of_all_processes(seen: Vec<usize>, reduce: &mut dyn Reduce) -> Result<Vec<usize>, PeerError> {
    if reduce.ranks() == 1 {
        return Ok(seen);
    }
    let here: Vec<f64> = seen.into_iter().map(|prototype| prototype as f64).collect();
    Ok(reduce.gather(&here)?.into_iter().flatten().map(|prototype| prototype as usize).collect())
}

/// A training method.
pub trait Method: fmt::Debug + Send {
    /// Which views it wants of an image.
    fn views(&self) -> &ViewPlan;

    /// How the optimiser treats a parameter.
    fn treatment(&self, id: ParamId, spec: &ParamSpec) -> Treatment {
        _ = id;
        Treatment::usual(spec)
    }

    /// Forgets what is left of a step that was not completed.
    fn start_step(&mut self);

    /// Whether the gradient of a part depends on the other parts of its step, which are then surveyed before the first
    /// gradient. Where a step is one part there is no survey: that part knows all.
    fn surveys(&self) -> bool {
        false
    }

    /// Takes note of a part of a step. `reduce` is for what all processes must know of it.
    fn survey(
        &mut self,
        networks: &Networks<'_>,
        part: &StepPart<'_>,
        reduce: &mut dyn Reduce,
    ) -> Result<(), StepError> {
        _ = (networks, part, reduce);
        Ok(())
    }

    /// Puts together what was noted of all parts, in all processes.
    fn end_survey(&mut self, reduce: &mut dyn Reduce) -> Result<(), StepError> {
        _ = reduce;
        Ok(())
    }

    /// Adds the gradient of the loss of some images to `gradient`, and returns their share of the loss. The loss is the
    /// mean over all images of the step: the shares of its parts add up to it. `reduce` is for what all processes must know
    /// before their gradients; these are summed up later, or begin to be where the part says that they may leave.
    fn add_gradient(
        &mut self,
        networks: &Networks<'_>,
        part: &StepPart<'_>,
        reduce: &mut dyn Reduce,
        gradient: &mut ParamSet,
    ) -> Result<f64, StepError>;

    /// Whether parameters that are frozen at first stay as they are in this step.
    fn is_frozen(&self, at: Position) -> bool {
        _ = at;
        false
    }

    /// Ends a step whose weights have been updated: centres move, the method's health is taken note of. `loss` is that of
    /// all processes.
    fn end_step(&mut self, loss: f64, reduce: &mut dyn Reduce) -> Result<(), StepError>;

    /// Centres of targets, by their names in a checkpoint: a run may begin with those of another one.
    fn centers_mut(&mut self) -> Vec<(&'static str, &mut Tensor)> {
        Vec::new()
    }

    /// Adds what there is to say of the last step to a record of the log; what is wrong at this moment of the run.
    fn vitals(&self, student: &ParamSet, moment: &Moment, record: Record) -> (Record, Finding);

    /// Adds the values of the method's own schedules at a step to a record of the log.
    fn schedules(&self, at: Position, record: Record) -> Record;

    /// Names what a step changes beside weights and moments.
    fn save<'a>(&'a self, state: &mut State<'a>);

    /// Restores what was saved.
    fn restore(&mut self, saved: &SavedState<'_>) -> Result<(), StateError>;
}

/// What a method is made from.
pub trait MethodSpec: fmt::Debug + Send + Sync {
    /// Adds the parameters of the method's heads to a layout that has those of the backbone, and makes the method.
    fn build(&self, layout: &mut Layout, vit: &VitConfig, device: &Device) -> Result<Box<dyn Method>, LearnError>;

    /// Which views it wants of an image.
    fn views(&self) -> ViewPlan;

    /// For each view of a sample in an epoch, from the first on: the patches of it that the student does not see, row by
    /// row. Views that are seen whole may be missing at the end.
    fn hidden_patches(&self, sample: u64, epoch: u64) -> Vec<Vec<usize>> {
        _ = (sample, epoch);
        Vec::new()
    }

    /// Which tokens of the student's last block it reads.
    fn reads(&self) -> Tokens {
        Tokens::Class
    }

    /// Values that a step holds at once beside those of the networks, such as logits and targets, for this many rows of
    /// student and teacher: for the estimate of a CPU's memory.
    fn output_values(&self, student_rows: usize, teacher_rows: usize) -> usize;
}

/// The method of a recipe.
pub fn of(recipe: &Recipe) -> Box<dyn MethodSpec> {
    match recipe.method() {
        MethodName::Dino => Box::new(dino::DinoOptions::of(recipe)),
        MethodName::Ibot => Box::new(ibot::IbotOptions::of(recipe)),
        MethodName::Msn => Box::new(msn::MsnOptions::of(recipe)),
    }
}
