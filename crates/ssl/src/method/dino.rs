//! DINO with the paper's two switches: what the prototypes' norms mean, and where the teacher is centred.
//!
//! Student: `l_s = <w, y> / tau_s + Delta(|w| / tau_s)`, p = softmax(l_s), Eqs. (6) and (7).
//! Teacher: see [`Target`].
//! The loss is the mean cross-entropy of every student view against every other view of the teacher.

use model::{Head, HeadConfig, Layout, ParamSpec, Tokens, VitConfig, VitInput};
use tensor::ops::{self, Logits};
use tensor::{Device, ParamId, ParamSet, Tensor};
use train::curve::Curve;
use train::optimizer::Treatment;
use train::reduce::Reduce;
use train::run::Record;
use train::state::{SavedState, State, StateError};
use train::{NotFinite, Position, StepError};

use super::{Method, MethodSpec, Networks, StepPart};
use crate::health::{Finding, Health, Moment};
use crate::learner::LearnError;
use crate::recipe::{Prototypes, Recipe};
use crate::setup::loader_config;
use crate::target::{Normalizer, Side, Target, TargetOptions};
use crate::view_plan::{Pairs, ViewPlan, Viewer};

/// What stands before the names of the head's parameters.
const HEAD: &str = "head.";
/// The centre's name in a checkpoint.
const CENTER: &str = "center";

/// What [`Dino`] is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct DinoOptions {
    /// The views.
    pub views: ViewPlan,
    /// The head.
    pub head: HeadConfig,
    /// The teacher's side.
    pub target: TargetOptions,
    /// Temperature tau_s of the student.
    pub student_temperature: f64,
    /// Temperature tau_t of the teacher, by epoch.
    pub teacher_temperature: Curve,
    /// Whether weight decay applies to g, the prototypes' lengths, where they are free.
    pub decay_magnitude: bool,
    /// Epochs in which the prototypes stay as they are.
    pub frozen_epochs: u64,
}

impl DinoOptions {
    /// Those of a recipe.
    pub fn of(recipe: &Recipe) -> Self {
        let target = TargetOptions {
            prototypes: recipe.prototypes(),
            centering: recipe.centering(),
            center_momentum: recipe.center_momentum(),
            center_floor: recipe.center_floor(),
        };
        let teacher_temperature = Curve::Ramp {
            from: recipe.warmup_teacher_temp(),
            to: recipe.teacher_temp(),
            points: recipe.warmup_teacher_temp_epochs() as u64,
        };
        Self {
            views: ViewPlan::multi_crop(&loader_config(recipe).views, recipe.channels()),
            head: HeadConfig {
                inputs: recipe.arch().dim(),
                hidden: recipe.head_hidden(),
                bottleneck: recipe.head_bottleneck(),
                prototypes: recipe.out_dim(),
                layers: recipe.head_layers(),
                batch_norm: recipe.head_batch_norm(),
            },
            target,
            student_temperature: recipe.student_temp(),
            teacher_temperature,
            decay_magnitude: recipe.decay_prototype_scale(),
            frozen_epochs: recipe.freeze_last_layer() as u64,
        }
    }
}

impl MethodSpec for DinoOptions {
    fn build(&self, layout: &mut Layout, _: &VitConfig, device: &Device) -> Result<Box<dyn Method>, LearnError> {
        Ok(Box::new(Dino::new(layout, device, self.clone())?))
    }

    fn views(&self) -> ViewPlan {
        self.views.clone()
    }

    fn output_values(&self, student_rows: usize, teacher_rows: usize) -> usize {
        // Of the teacher logits and targets.
        (student_rows + 2 * teacher_rows) * self.head.prototypes
    }
}

/// The method.
#[derive(Debug)]
pub struct Dino {
    options: DinoOptions,
    head: Head,
    loss: DinoLoss,
    health: Health,
    /// The step that is under way, and after it the last one.
    step: LossReport,
}

/// What a step's loss was, and what it says of the run's health.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LossReport {
    /// Mean cross-entropy over images and terms.
    pub loss: f64,
    /// Mean entropy of the teacher's targets; the loss less this is the divergence.
    pub teacher_entropy: f64,
    /// The prototype that each teacher row gives most weight.
    pub assignments: Vec<usize>,
}

impl Dino {
    /// Adds the head's parameters to a layout.
    pub fn new(layout: &mut Layout, device: &Device, options: DinoOptions) -> Result<Self, vmf::Error> {
        let head = Head::new(layout, HEAD, &options.head);
        let (count, p) = (options.head.prototypes, options.head.bottleneck);
        let loss = DinoLoss::new(device, count, p, options.target, options.student_temperature)?;
        Ok(Self { options, head, loss, health: Health::default(), step: LossReport::default() })
    }

    /// The head.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The loss with its centre.
    pub fn loss(&self) -> &DinoLoss {
        &self.loss
    }

    fn teacher_temperature(&self, at: Position) -> f64 {
        self.options.teacher_temperature.at(at.epoch)
    }
}

impl Method for Dino {
    fn views(&self) -> &ViewPlan {
        &self.options.views
    }

    fn treatment(&self, id: ParamId, spec: &ParamSpec) -> Treatment {
        let usual = Treatment::usual(spec);
        let prototypes = &self.head.prototypes;
        if id == prototypes.magnitude() {
            let trained = self.options.target.prototypes != Prototypes::L2;
            let decays = usual.decays && self.options.decay_magnitude;
            Treatment { trained, decays, frozen_at_first: true, ..usual }
        } else {
            Treatment { frozen_at_first: id == prototypes.direction(), ..usual }
        }
    }

    fn start_step(&mut self) {
        self.loss.target.start_step();
        self.step = LossReport::default();
    }

    fn add_gradient(
        &mut self,
        networks: &Networks<'_>,
        part: &StepPart<'_>,
        gradient: &mut ParamSet,
    ) -> Result<f64, StepError> {
        let Networks { device, vit, student, teacher } = *networks;
        let magnitude = self.head.prototypes.magnitude();
        let features = vit.features(teacher, device, &part.views.seen_by(Viewer::Teacher))?;
        let (_, logits) = self.head.forward(teacher, features);
        let targets = Side { logits, magnitude: &teacher[magnitude] };

        let views = part.views.seen_by(Viewer::Student);
        let input = VitInput { images: &views, drop_path: part.drop_path };
        let (features, saved) = vit.forward(student, device, &input, Tokens::Class)?;
        let (projected, logits) = self.head.forward(student, features);
        let predictions = Side { logits, magnitude: &student[magnitude] };

        let (images, pairs) = (part.views.images(), &self.options.views.pairs());
        let share = Share { images, step_images: part.step_images, pairs };
        let tau = self.teacher_temperature(part.at);
        let (d_logits, report) =
            self.loss.forward_backward(predictions, &targets, tau, share, &mut gradient[magnitude])?;
        drop(targets);
        let d_features = self.head.backward(student, projected, d_logits, gradient);
        vit.backward(student, saved, &d_features, gradient);

        let loss = report.loss;
        self.step.teacher_entropy += images as f64 / part.step_images as f64 * report.teacher_entropy;
        self.step.assignments.extend(report.assignments);
        Ok(loss)
    }

    fn is_frozen(&self, at: Position) -> bool {
        at.epoch < self.options.frozen_epochs
    }

    fn end_step(&mut self, loss: f64, reduce: &mut dyn Reduce) -> Result<(), StepError> {
        self.loss.target.end_step(reduce)?;
        // Each process has its share of the mean; the assignments at hand are a sample of all.
        self.step.teacher_entropy = reduce.gather(&[self.step.teacher_entropy])?.iter().flatten().sum();
        self.step.loss = loss;
        self.health.observe(&self.step.assignments);
        Ok(())
    }

    fn vitals(&self, student: &ParamSet, moment: &Moment, record: Record) -> (Record, Finding) {
        let magnitude = &student[self.head.prototypes.magnitude()];
        let (loss, entropy) = (self.step.loss, self.step.teacher_entropy);
        let vitals = self.health.vitals(loss, entropy, magnitude, self.options.student_temperature);
        (vitals.add_to(record), moment.judge(&vitals))
    }

    fn schedules(&self, at: Position, record: Record) -> Record {
        record.number("teacher_temperature", self.teacher_temperature(at))
    }

    fn save<'a>(&'a self, state: &mut State<'a>) {
        self.loss.target.save(CENTER, state);
        state.value("assignments", self.health.assignments().collect::<Vec<u32>>());
    }

    fn restore(&mut self, saved: &SavedState<'_>) -> Result<(), StateError> {
        self.loss.target.restore(CENTER, saved)?;
        self.health = Health::restore(saved.all_numbers("assignments")?.into_iter().map(|k| k as u32));
        Ok(())
    }
}

/// The cross-entropy of the student's views against the teacher's.
#[derive(Debug)]
pub struct DinoLoss {
    target: Target,
    normalizer: Normalizer,
    student_temperature: f64,
}

/// The images that a loss is computed of, and what it is a mean over.
#[derive(Clone, Copy, Debug)]
pub struct Share<'a> {
    /// Images at hand.
    pub images: usize,
    /// Images of the whole step.
    pub step_images: usize,
    /// Which rows are compared.
    pub pairs: &'a Pairs,
}

impl DinoLoss {
    /// A loss over K prototypes in p dimensions, with its centre at zero.
    pub fn new(
        device: &Device,
        count: usize,
        p: usize,
        options: TargetOptions,
        student_temperature: f64,
    ) -> Result<Self, vmf::Error> {
        let normalizer = Normalizer::new(device, options.prototypes, count, p)?;
        Ok(Self { target: Target::new(device, count, options), normalizer, student_temperature })
    }

    /// The teacher's side.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The teacher's side, to be set or moved.
    pub fn target_mut(&mut self) -> &mut Target {
        &mut self.target
    }

    /// The loss; the gradient of the student's raw logits replaces them in the returned logits, and the part of g's
    /// gradient that flows through the log-normaliser is added to `d_magnitude`. The target notes what its centre moves
    /// towards at the end of the step.
    pub fn forward_backward(
        &mut self,
        mut student: Side<'_>,
        teacher: &Side<'_>,
        teacher_temperature: f64,
        share: Share<'_>,
        d_magnitude: &mut Tensor,
    ) -> Result<(Logits, LossReport), NotFinite> {
        let teacher_delta = self.normalizer.at(teacher.magnitude, teacher_temperature);
        let delta = self.normalizer.shift(&teacher_delta);
        let targets = self.target.targets(&teacher.logits.raw, delta, teacher_temperature)?;

        let scale = 1.0 / self.student_temperature;
        let student_delta = self.normalizer.at(student.magnitude, self.student_temperature);
        let shift = self.normalizer.shift(&student_delta);
        let targets_of = share.pairs.targets(share.images);
        let weight = 1.0 / (share.step_images * share.pairs.terms()) as f64;
        let losses =
            ops::cross_entropy(&mut student.logits.raw, scale, shift, &targets.probabilities, &targets_of, weight);
        let loss = losses.iter().sum::<f64>() * weight;
        if !loss.is_finite() {
            // The targets are finite and so is any cross-entropy of finite logits against them.
            return Err(NotFinite { term: "the student's logits".into() });
        }
        student.logits.hold_gradient_of_scaled(scale);
        if let Some((_, slope)) = &student_delta {
            ops::add_shift_gradient(&student.logits.raw, slope, d_magnitude);
        }
        self.target.observe(share.images, &teacher.logits.raw, &self.normalizer, delta, teacher_temperature);
        let report = LossReport { loss, teacher_entropy: targets.entropy, assignments: targets.assignments };
        Ok((student.logits, report))
    }
}
