//! DINO with the paper's two switches: what the prototypes' norms mean, and where the teacher is centred.
//!
//! The loss is the mean cross-entropy of every student view against every other view of the teacher ([`TokenLoss`]).

use model::{Head, HeadConfig, Layout, ParamSpec, PrototypeLayer, Tokens, VitConfig, VitInput};
use tensor::{Device, ParamId, ParamSet, Tensor};
use train::curve::Curve;
use train::optimizer::Treatment;
use train::reduce::{Peers, Reduce};
use train::run::Record;
use train::state::{SavedState, State, StateError};
use train::{Position, StepError};

use super::{Method, MethodSpec, Networks, StepPart, backward_backbone, of_all_processes};
use crate::health::{Finding, Health, Moment, Vitals};
use crate::learner::LearnError;
use crate::lengths::LengthOptions;
use crate::loss::{LossReport, Terms, TokenLoss};
use crate::penalty::Penalty;
use crate::recipe::{Prototypes, Recipe};
use crate::setup::{head_config, loader_config};
use crate::target::{Side, TargetOptions};
use crate::view_plan::{ViewPlan, Viewer};

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
    /// Weight of KoLeo on the prototypes; none where it is zero.
    pub koleo_weight: f64,
    /// How the prototypes' lengths begin and learn.
    pub lengths: LengthOptions,
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
            head: head_config(recipe),
            target,
            student_temperature: recipe.student_temp(),
            teacher_temperature,
            decay_magnitude: recipe.decay_prototype_scale(),
            frozen_epochs: recipe.freeze_last_layer() as u64,
            koleo_weight: recipe.koleo_weight(),
            lengths: LengthOptions::of(recipe),
        }
    }
}

impl DinoOptions {
    /// How the optimiser treats a parameter of these prototypes; none where it is another's.
    pub(super) fn treatment_of(&self, layer: &PrototypeLayer, id: ParamId, spec: &ParamSpec) -> Option<Treatment> {
        let usual = Treatment { frozen_at_first: true, ..Treatment::usual(spec) };
        if id == layer.magnitude() {
            let trained = self.target.prototypes != Prototypes::L2;
            let usual = Treatment { trained, decays: usual.decays && self.decay_magnitude, ..usual };
            return Some(self.lengths.treatment(usual));
        }
        (id == layer.direction()).then_some(usual)
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
    loss: TokenLoss,
    penalty: Penalty,
    health: Health,
    /// The step that is under way, and after it the last one.
    step: LossReport,
}

impl Dino {
    /// Adds the head's parameters to a layout.
    pub fn new(layout: &mut Layout, device: &Device, options: DinoOptions) -> Result<Self, vmf::Error> {
        let head = Head::new(layout, HEAD, &options.head);
        options.lengths.begin(layout, &head.prototypes);
        let (count, p) = (options.head.prototypes, options.head.bottleneck);
        let loss = TokenLoss::new(device, count, p, options.target, options.student_temperature)?;
        let penalty = Penalty::new(options.koleo_weight, &options.lengths);
        Ok(Self { options, head, loss, penalty, health: Health::default(), step: LossReport::default() })
    }

    /// The head.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The loss with its centre.
    pub fn loss(&self) -> &TokenLoss {
        &self.loss
    }

    /// [`Method::vitals`] where class tokens are a part of the loss.
    pub(super) fn vitals_with(
        &self,
        student: &ParamSet,
        moment: &Moment,
        record: Record,
        total: f64,
    ) -> (Record, Finding) {
        let magnitude = &student[self.head.prototypes.magnitude()];
        let (loss, entropy) = (self.step.loss, self.step.teacher_entropy);
        let vitals = self.health.vitals(loss, entropy, magnitude, self.options.student_temperature);
        let found = moment.judge(&vitals);
        (self.penalty.add_to(Vitals { loss: total, ..vitals }.add_to(record), ""), found)
    }

    /// The gradient of the student's class tokens, from theirs and the teacher's; the share of these images in the loss times
    /// `weight`, and in what is asked of the prototypes.
    pub(super) fn class_loss(
        &mut self,
        networks: &Networks<'_>,
        part: &StepPart<'_>,
        (student_tokens, teacher_tokens): (Tensor, Tensor),
        weight: f64,
        peers: &mut dyn Peers,
        gradient: &mut ParamSet,
    ) -> Result<(Tensor, f64, f64), StepError> {
        let Networks { student, teacher, .. } = *networks;
        let magnitude = self.head.prototypes.magnitude();
        let (_, logits) = self.head.forward(teacher, teacher_tokens, peers)?;
        let tau = self.teacher_temperature(part.at);
        let targets = self.loss.teacher(Side { logits, magnitude: &teacher[magnitude] }, tau);
        let (projected, logits) = self.head.forward(student, student_tokens, peers)?;
        let predictions = Side { logits, magnitude: &student[magnitude] };

        let images = part.views.images();
        let terms = Terms::of_pairs(&self.options.views.pairs(), images, part.step_images).times(weight);
        let d_magnitude = &mut gradient[magnitude];
        let (d_logits, report) = self.loss.between_views(predictions, &targets, images, &terms, d_magnitude)?;
        drop(targets);
        let d_features = self.head.backward(student, projected, d_logits, gradient, peers)?;
        let penalty = self.penalty.add_gradient(&self.head.prototypes, student, part.share(), gradient);
        self.step.teacher_entropy += part.share() * report.teacher_entropy;
        self.step.assignments.extend(report.assignments);
        Ok((d_features, report.loss, penalty))
    }

    /// The part of the last step's loss that is of the prototypes alone.
    pub(super) fn penalty(&self) -> f64 {
        self.penalty.loss()
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
        self.options.treatment_of(&self.head.prototypes, id, spec).unwrap_or(Treatment::usual(spec))
    }

    fn start_step(&mut self) {
        self.loss.target_mut().start_step();
        self.step = LossReport::default();
        self.penalty.start_step();
    }

    fn add_gradient(
        &mut self,
        networks: &Networks<'_>,
        part: &StepPart<'_>,
        reduce: &mut dyn Reduce,
        gradient: &mut ParamSet,
    ) -> Result<f64, StepError> {
        let Networks { device, vit, student, teacher } = *networks;
        let targets = vit.features(teacher, device, &part.views.seen_by(Viewer::Teacher))?;
        let views = part.views.seen_by(Viewer::Student);
        let input = VitInput { drop_path: part.drop_path, ..VitInput::images(&views) };
        let (features, saved) = vit.forward(student, device, &input, Tokens::Class)?;
        let (d_features, loss, penalty) =
            self.class_loss(networks, part, (features, targets), 1.0, reduce, gradient)?;
        let heads = vit.parameters().end..gradient.len();
        backward_backbone(networks, part, (saved, &d_features), heads, reduce, gradient)?;
        Ok(loss + penalty)
    }

    fn is_frozen(&self, at: Position) -> bool {
        at.epoch < self.options.frozen_epochs
    }

    fn end_step(&mut self, loss: f64, reduce: &mut dyn Reduce) -> Result<(), StepError> {
        self.loss.target_mut().end_step(reduce)?;
        // Each process has its share of the mean.
        self.step.teacher_entropy = reduce.gather(&[self.step.teacher_entropy])?.iter().flatten().sum();
        // Of class tokens alone: what says whether the teacher is uniform.
        self.step.loss = loss - self.penalty.loss();
        self.step.assignments = of_all_processes(std::mem::take(&mut self.step.assignments), reduce)?;
        self.health.observe(&self.step.assignments);
        Ok(())
    }

    fn centers_mut(&mut self) -> Vec<(&'static str, &mut Tensor)> {
        vec![(CENTER, self.loss.target_mut().center_mut())]
    }

    fn vitals(&self, student: &ParamSet, moment: &Moment, record: Record) -> (Record, Finding) {
        let (record, found) = self.vitals_with(student, moment, record, self.step.loss + self.penalty.loss());
        // What says whether the teacher is uniform, where it is a part of the loss.
        (if self.penalty.is_part() { record.number("class_loss", self.step.loss) } else { record }, found)
    }

    fn schedules(&self, at: Position, record: Record) -> Record {
        record.number("teacher_temperature", self.teacher_temperature(at))
    }

    fn save<'a>(&'a self, state: &mut State<'a>) {
        self.loss.target().save(CENTER, state);
        state.value("assignments", self.health.assignments().collect::<Vec<u32>>());
    }

    fn restore(&mut self, saved: &SavedState<'_>) -> Result<(), StateError> {
        self.loss.target_mut().restore(CENTER, saved)?;
        self.health = Health::restore(saved.all_numbers("assignments")?.into_iter().map(|k| k as u32));
        Ok(())
    }
}
