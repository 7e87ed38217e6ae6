//! One student, one teacher, and the step that trains them.

use model::{ConfigError, DinoHead, DropPath, HeadConfig, Layout, Vit, VitConfig};
use tensor::ops::Pixels;
use tensor::{Device, ParamSet};

use crate::loss::{DinoLoss, LossOptions, LossReport, NotFinite, Pairing, Side};
use crate::optimizer::{GradientReport, Optimizer, OptimizerOptions};
use crate::schedule::StepValues;

/// Everything that a step changes.
#[derive(Debug)]
pub struct Learner {
    device: Device,
    layout: Layout,
    vit: Vit,
    head: DinoHead,
    /// The network that is trained.
    pub student: ParamSet,
    /// Its moving average: the network that is kept.
    pub teacher: ParamSet,
    gradient: ParamSet,
    /// Moments and step counts.
    pub optimizer: Optimizer,
    /// The loss with its centre.
    pub loss: DinoLoss,
    accumulate: usize,
}

/// What a [`Learner`] is made from.
#[derive(Clone, Debug)]
pub struct LearnerOptions {
    /// The backbone.
    pub vit: VitConfig,
    /// The head.
    pub head: HeadConfig,
    /// The loss.
    pub loss: LossOptions,
    /// The optimiser.
    pub optimizer: OptimizerOptions,
    /// Seed of the initial weights.
    pub seed: u64,
    /// Parts in which the images of a step are taken one after another; their gradients are added up.
    pub accumulate: usize,
    /// Whether only the input of each block is kept, and the block computed again in the backward pass.
    pub checkpoint_activations: bool,
}

/// A learner that cannot be, or a step that cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum LearnError {
    /// The network's shape.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The log-normaliser's dimension.
    #[error(transparent)]
    Vmf(#[from] vmf::Error),
    /// A value of the step.
    #[error(transparent)]
    NotFinite(#[from] NotFinite),
    /// The device.
    #[error(transparent)]
    Device(#[from] tensor::DeviceError),
}

/// What a step was like.
#[derive(Clone, Debug)]
pub struct StepReport {
    /// The loss.
    pub loss: LossReport,
    /// The gradient.
    pub gradient: GradientReport,
}

impl Learner {
    /// A student with initial weights, and a teacher that is its copy.
    pub fn new(device: &Device, options: LearnerOptions) -> Result<Self, LearnError> {
        let seed = options.seed;
        Self::with_weights(device, options, |layout| layout.initial(device, seed))
    }

    /// The same with weights of zero: for a plan, which has no use for the seconds that drawing millions of weights takes.
    pub(crate) fn blank(device: &Device, options: LearnerOptions) -> Result<Self, LearnError> {
        Self::with_weights(device, options, |layout| layout.zeros(device))
    }

    fn with_weights(
        device: &Device,
        options: LearnerOptions,
        weights: impl FnOnce(&Layout) -> ParamSet,
    ) -> Result<Self, LearnError> {
        let mut layout = Layout::default();
        let vit =
            Vit::new(&mut layout, "backbone.", options.vit.checked()?).keep_inputs_only(options.checkpoint_activations);
        let (count, p) = (options.head.prototypes, options.head.bottleneck);
        let head = DinoHead::new(&mut layout, "head.", options.head);
        let student = weights(&layout);
        let teacher = student.duplicate();
        let gradient = student.zeros_like();
        let optimizer = Optimizer::new(&layout, &student, head.magnitude(), options.optimizer);
        let loss = DinoLoss::new(device, count, p, options.loss)?;
        let (device, accumulate) = (device.clone(), options.accumulate.max(1));
        Ok(Self { device, layout, vit, head, student, teacher, gradient, optimizer, loss, accumulate })
    }

    /// The parameters by name.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The backbone.
    pub fn vit(&self) -> &Vit {
        &self.vit
    }

    /// The head.
    pub fn head(&self) -> &DinoHead {
        &self.head
    }

    /// Where it computes.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// One iteration. `views` are the global crops and then, if there are any, the local ones, each view by view over the
    /// same `batch` images. Where a value is not finite no weight has changed; the loss's centre may have. After a failure of
    /// the device nothing can be said of its memory.
    pub fn step(
        &mut self,
        views: &[Pixels<'_>],
        batch: usize,
        drop_path: Option<&DropPath>,
        values: &StepValues,
    ) -> Result<StepReport, LearnError> {
        let device = self.device.clone();
        device.run(|| {
            // Zeros stand for results after a failure of the device, so its trouble is asked for before theirs.
            let loss = self.compute_gradient(views, batch, drop_path, values);
            device.check()?;
            let loss = loss?;
            let gradient =
                self.optimizer.step(&self.layout, &mut self.student, &self.gradient, &mut self.teacher, values);
            device.check()?;
            Ok(StepReport { loss, gradient: gradient? })
        })
    }

    /// Puts the gradient of the loss into `self.gradient` and moves the centre.
    fn compute_gradient(
        &mut self,
        views: &[Pixels<'_>],
        batch: usize,
        drop_path: Option<&DropPath>,
        values: &StepValues,
    ) -> Result<LossReport, LearnError> {
        self.gradient.clear();
        self.loss.start_step();
        let parts = self.accumulate.min(batch);
        if parts == 1 {
            return self.add_gradient(views, 1, (batch, batch), drop_path, values);
        }
        let mut report = LossReport::default();
        let globals = views[0].count / batch;
        for part in 0..parts {
            let images = part * batch / parts..(part + 1) * batch / parts;
            let taken: Vec<Pixels<'_>> =
                views.iter().flat_map(|g| g.images_of_each_view(batch, images.clone())).collect();
            let drop_path = drop_path.map(|d| d.segments(|segment| images.contains(&(segment % batch))));
            let share = images.len() as f64 / batch as f64;
            let loss = self.add_gradient(&taken, globals, (images.len(), batch), drop_path.as_ref(), values)?;
            report.loss += loss.loss;
            report.teacher_entropy += share * loss.teacher_entropy;
            report.assignments.extend(loss.assignments);
        }
        Ok(report)
    }

    /// Adds the gradient of `batch` images of a step, out of `of`, whose first `globals` groups are the global crops.
    fn add_gradient(
        &mut self,
        views: &[Pixels<'_>],
        globals: usize,
        (batch, of): (usize, usize),
        drop_path: Option<&DropPath>,
        values: &StepValues,
    ) -> Result<LossReport, LearnError> {
        let pairing = Pairing { batch, of, views: views.iter().map(|g| g.count).sum::<usize>() / batch };
        let teacher = self.teacher_logits(&views[..globals])?;
        let teacher = Side { logits: teacher, magnitude: &self.teacher[self.head.magnitude()] };

        let (features, saved) = self.vit.forward(&self.student, &self.device, views, drop_path)?;
        let embedded = self.head.embed(&self.student, features);
        let logits = self.head.logits(&self.student, &embedded);

        let magnitude = self.head.magnitude();
        let student = Side { logits, magnitude: &self.student[magnitude] };
        let (d_logits, loss) = self.loss.forward_backward(
            student,
            &teacher,
            values.teacher_temperature,
            pairing,
            &mut self.gradient[magnitude],
        )?;
        drop(teacher);
        let d_features = self.head.backward(&self.student, embedded, d_logits, &mut self.gradient);
        self.vit.backward(&self.student, saved, &d_features, &mut self.gradient);
        Ok(loss)
    }

    fn teacher_logits(&self, globals: &[Pixels<'_>]) -> Result<tensor::ops::Logits, LearnError> {
        let features = self.teacher_features(globals)?;
        let embedded = self.head.embed(&self.teacher, features);
        Ok(self.head.logits(&self.teacher, &embedded))
    }

    /// Class-token features of the teacher, [images, dim].
    pub fn teacher_features(&self, images: &[Pixels<'_>]) -> Result<tensor::Tensor, LearnError> {
        Ok(self.device.run(|| self.vit.features(&self.teacher, &self.device, images))?)
    }
}
