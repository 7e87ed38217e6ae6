//! One student, one teacher, and the step that trains them. Knows no method.

use model::{ConfigError, DropPath, Layout, Start, Vit, VitConfig};
use tensor::ops::Pixels;
use tensor::{Device, ParamId, ParamSet, Tensor};
use train::optimizer::{Optimizer, OptimizerOptions, StepValues};
use train::reduce::{Alone, Reduce, Share, Wire};
use train::state::{SavedState, State, StateError};
use train::step::{self, StepReport, Trained};
use train::{Position, StepError};

use crate::beginning::{Beginning, Taken};
use crate::layer_decay::BackboneLearning;
use crate::method::{Method, Networks, StepPart};
use crate::view_plan::ViewPlan;

/// What stands before the names of the backbone's parameters.
pub const BACKBONE: &str = "backbone.";

/// Everything that a step changes.
pub struct Learner<M: Method + ?Sized = dyn Method> {
    device: Device,
    layout: Layout,
    vit: Vit,
    /// The network that is trained.
    pub student: ParamSet,
    /// Its moving average: the network that is kept.
    pub teacher: ParamSet,
    gradient: ParamSet,
    optimizer: Optimizer,
    /// What the loss is.
    pub method: Box<M>,
    views: ViewPlan,
    reduce: Box<dyn Reduce>,
    wire: Wire,
    accumulate: usize,
}

/// What a [`Learner`] is made from, whatever the method.
#[derive(Clone, Debug)]
pub struct LearnerOptions {
    /// The backbone.
    pub vit: VitConfig,
    /// The optimiser.
    pub optimizer: OptimizerOptions,
    /// How it begins.
    pub start: Start,
    /// How fast it learns beside its heads.
    pub backbone: BackboneLearning,
    /// Seed of the initial weights.
    pub seed: u64,
    /// Parts in which the images of a step are taken one after another; their gradients are added up.
    pub accumulate: usize,
    /// Whether only the input of each block is kept, and the rest recomputed in the backward pass.
    pub checkpoint_activations: bool,
    /// How exactly gradients travel between processes.
    pub wire: Wire,
    /// Which part of every parameter this process keeps the moments of.
    pub share: Share,
}

/// A learner that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum LearnError {
    /// The network's shape.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The log-normaliser's dimension.
    #[error(transparent)]
    Vmf(#[from] vmf::Error),
    /// A step that was tried.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The device.
    #[error(transparent)]
    Device(#[from] tensor::DeviceError),
}

/// The images of a step, on all groups of views.
#[derive(Clone, Copy, Debug)]
pub struct StepInput<'a> {
    /// The groups of views in the order of the method's plan, each view by view over the same images.
    pub groups: &'a [Pixels<'a>],
    /// What the draws of each image are keyed by; as many as there are images.
    pub keys: &'a [u64],
    /// Which residual branches each of the student's rows takes.
    pub drop_path: Option<&'a DropPath>,
}

impl<M: Method + ?Sized> Learner<M> {
    /// A student with initial weights, and a teacher that is its copy. `method` adds the parameters of its heads.
    pub fn new<E: Into<LearnError>>(
        device: &Device,
        options: &LearnerOptions,
        method: impl FnOnce(&mut Layout, &VitConfig, &Device) -> Result<Box<M>, E>,
    ) -> Result<Self, LearnError> {
        Self::with_weights(device, options, method, |layout, vit| {
            vit.initial(layout, options.start, device, options.seed)
        })
    }

    /// The same with weights of zero: for a plan, which has no use for the seconds that drawing millions of weights takes.
    pub(crate) fn blank<E: Into<LearnError>>(
        device: &Device,
        options: &LearnerOptions,
        method: impl FnOnce(&mut Layout, &VitConfig, &Device) -> Result<Box<M>, E>,
    ) -> Result<Self, LearnError> {
        Self::with_weights(device, options, method, |layout, _| layout.zeros(device))
    }

    fn with_weights<E: Into<LearnError>>(
        device: &Device,
        options: &LearnerOptions,
        method: impl FnOnce(&mut Layout, &VitConfig, &Device) -> Result<Box<M>, E>,
        weights: impl FnOnce(&Layout, &Vit) -> ParamSet,
    ) -> Result<Self, LearnError> {
        let mut layout = Layout::default();
        let vit = Vit::new(&mut layout, BACKBONE, options.vit.clone().checked()?)
            .keep_inputs_only(options.checkpoint_activations);
        let method = method(&mut layout, &options.vit, device).map_err(Into::into)?;
        let views = method.views().clone();
        let student = weights(&layout, &vit);
        let teacher = student.duplicate();
        let gradient = student.zeros_like();
        let specs = layout.specs().iter().enumerate();
        let (learning, depth) = (options.backbone, options.vit.depth);
        let treatment = |(i, spec)| learning.treatment(method.treatment(ParamId(i), spec), spec, depth);
        let treatments = specs.map(treatment).collect();
        let optimizer = Optimizer::new(&student, treatments, options.optimizer, options.share);
        let (device, accumulate, reduce, wire) =
            (device.clone(), options.accumulate.max(1), Box::new(Alone), options.wire);
        Ok(Self { device, layout, vit, student, teacher, gradient, optimizer, method, views, reduce, wire, accumulate })
    }

    /// Begins with given weights in place of drawn ones, as far as they fit.
    pub fn begin_with(&mut self, beginning: &Beginning) -> Taken {
        let Self { layout, vit, student, teacher, method, optimizer, .. } = self;
        let taken = beginning.put_into(layout, vit.config(), student, teacher, method.centers_mut());
        optimizer.begin_at(student);
        taken
    }

    /// The parameters by name.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The backbone.
    pub fn vit(&self) -> &Vit {
        &self.vit
    }

    /// Which views a step has.
    pub fn views(&self) -> &ViewPlan {
        &self.views
    }

    /// Where it computes.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Trains together with other processes.
    pub fn with_reduce(mut self, reduce: Box<dyn Reduce>) -> Self {
        self.reduce = reduce;
        self
    }

    /// Takes the memory that sums with the other processes need, before the first step.
    pub fn prepare_sums(&mut self) -> Result<(), StepError> {
        Ok(self.reduce.prepare(&self.gradient, self.wire)?)
    }

    /// Moments and step counts.
    pub fn optimizer(&self) -> &Optimizer {
        &self.optimizer
    }

    /// The processes that train together.
    pub fn reduce(&mut self) -> &mut dyn Reduce {
        &mut *self.reduce
    }

    /// One iteration. Where a value is not finite nothing has changed; after a failure of the device nothing can be said
    /// of its memory; where another process is lost in the middle of it, [`Learner::collect`] says whether there is still
    /// something to save.
    pub fn step(&mut self, input: &StepInput<'_>, at: Position, values: &StepValues) -> Result<StepReport, StepError> {
        let device = self.device.clone();
        device.run(|| {
            let loss = self.compute_gradient(input, at, values.waiting_lr != 0.0);
            let Self { layout, student, gradient, teacher, optimizer, reduce, wire, .. } = self;
            let trained = Trained { layout, weights: student, gradient, teacher: Some(teacher) };
            let report = step::complete(loss, trained, optimizer, values, &device, &mut **reduce, *wire)?;
            // The weights are of the next step by now, whatever the method keeps of this one.
            self.method.end_step(report.loss, &mut *self.reduce).inspect_err(|_| self.optimizer.tear())?;
            Ok(report)
        })
    }

    /// Puts the gradient of the loss into `self.gradient`; returns the loss.
    fn compute_gradient(
        &mut self,
        input: &StepInput<'_>,
        at: Position,
        backbone_learns: bool,
    ) -> Result<f64, StepError> {
        self.gradient.clear();
        self.method.start_step();
        let StepInput { groups, keys, drop_path } = *input;
        let batch = keys.len();
        let step_images = batch * self.reduce.ranks();
        let parts = self.accumulate.min(batch);
        let (plan, networks) = (
            &self.views,
            Networks { device: &self.device, vit: &self.vit, student: &self.student, teacher: &self.teacher },
        );
        // Each part with the residual branches of its rows. They are not taken apart where there is one part: the choices of
        // all rows are many.
        let of_part = |part: usize| {
            let images = part * batch / parts..(part + 1) * batch / parts;
            let views = plan.part(groups, batch, images.clone());
            let some = (parts > 1).then(|| drop_path.map(|d| d.segments(|row| views.contains_row(row)))).flatten();
            (views, images, some)
        };
        let mut loss = 0.0;
        if parts > 1 && self.method.surveys() {
            for part in 0..parts {
                let (views, images, some) = of_part(part);
                let drop_path = some.as_ref().or(drop_path);
                let keys = &keys[images];
                let part = StepPart { views, keys, step_images, drop_path, at, backbone_learns, leaving: None };
                self.method.survey(&networks, &part, &mut *self.reduce)?;
            }
            self.method.end_survey(&mut *self.reduce)?;
        }
        for part in 0..parts {
            let (views, images, some) = of_part(part);
            let drop_path = some.as_ref().or(drop_path);
            let (keys, leaving) = (&keys[images], (part + 1 == parts).then_some(self.wire));
            let part = StepPart { views, keys, step_images, drop_path, at, backbone_learns, leaving };
            loss += self.method.add_gradient(&networks, &part, &mut *self.reduce, &mut self.gradient)?;
        }
        Ok(loss)
    }

    /// Class-token features of the teacher, [images, dim].
    pub fn teacher_features(&self, images: &[Pixels<'_>]) -> Result<Tensor, StepError> {
        let Self { device, vit, teacher, .. } = self;
        Ok(device.run(|| vit.features(teacher, device, images))?)
    }

    /// Brings together in the first process, before it saves, what the processes hold in parts. All of them come for it.
    pub fn collect(&mut self) -> Result<(), StepError> {
        Ok(self.optimizer.collect(&self.student, &mut *self.reduce)?)
    }

    /// Lets go of what was brought together.
    pub fn release(&mut self) {
        self.optimizer.release();
    }

    /// Names everything that a step changes.
    pub fn save<'a>(&'a self, state: &mut State<'a>) {
        state.set("student", &self.layout, &self.student);
        state.set("teacher", &self.layout, &self.teacher);
        self.optimizer.save(&self.layout, state);
        self.method.save(state);
    }

    /// Restores what was saved.
    pub fn restore(&mut self, saved: &SavedState<'_>) -> Result<(), StateError> {
        saved.set("student", &self.layout, &mut self.student)?;
        saved.set("teacher", &self.layout, &mut self.teacher)?;
        self.optimizer.restore(&self.layout, saved)?;
        self.method.restore(saved)
    }
}
