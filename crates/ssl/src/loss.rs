//! The cross-entropy between student and teacher over prototypes, for one kind of token.
//!
//! Student: `l_s = <w, y> / tau_s + Delta(|w| / tau_s)`, p = softmax(l_s), Eqs. (6) and (7).
//! Teacher: see [`Target`]. DINO has one of these, iBOT one for class and one for patch tokens.

use tensor::ops::{self, Logits};
use tensor::{Device, Tensor};
use train::NotFinite;

use crate::target::{Normalizer, Side, Target, TargetOptions, Targets};
use crate::view_plan::Pairs;

/// The loss with the centre of its teacher.
#[derive(Debug)]
pub struct TokenLoss {
    target: Target,
    normalizer: Normalizer,
    student_temperature: f64,
}

/// The teacher's logits at a temperature, with what the log-normaliser adds to them there.
#[derive(Debug)]
pub struct TeacherLogits<'a> {
    side: Side<'a>,
    delta: Option<(Tensor, Tensor)>,
    temperature: f64,
}

/// Which teacher rows each student row is compared with, and what each student row weighs in the loss.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    targets_of: Vec<Vec<usize>>,
    weights: Vec<f64>,
}

impl Terms {
    /// The pairs of views of some images of a step, of which the loss is a mean over `step_images`.
    pub fn of_pairs(pairs: &Pairs, images: usize, step_images: usize) -> Self {
        let targets_of = pairs.targets(images);
        let weight = 1.0 / (step_images * pairs.terms()) as f64;
        Self { weights: vec![weight; targets_of.len()], targets_of }
    }

    /// The same with every row weighing `factor` times as much.
    pub fn times(mut self, factor: f64) -> Self {
        self.weights.iter_mut().for_each(|weight| *weight *= factor);
        self
    }

    /// Each student row against the teacher row of the same number.
    pub fn one_to_one(weights: Vec<f64>) -> Self {
        Self { targets_of: (0..weights.len()).map(|row| vec![row]).collect(), weights }
    }
}

/// What the loss of some rows was, and what it says of the run's health.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LossReport {
    /// Weighted sum of the cross-entropies of its rows: their share of the step's mean.
    pub loss: f64,
    /// Mean entropy of the teacher's targets; the loss less this is the divergence.
    pub teacher_entropy: f64,
    /// The prototype that each teacher row gives most weight.
    pub assignments: Vec<usize>,
}

impl TokenLoss {
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

    /// The teacher's logits at a temperature.
    pub fn teacher<'a>(&self, side: Side<'a>, temperature: f64) -> TeacherLogits<'a> {
        TeacherLogits { delta: self.normalizer.at(side.magnitude, temperature), side, temperature }
    }

    /// The teacher's distributions.
    pub fn targets(&self, teacher: &TeacherLogits<'_>) -> Result<Targets, NotFinite> {
        let delta = self.normalizer.shift(&teacher.delta);
        self.target.targets(&teacher.side.logits.raw, delta, teacher.temperature)
    }

    /// Notes what the centre moves towards at the end of the step, by teacher rows that weigh as much as this many others.
    pub fn observe(&mut self, teacher: &TeacherLogits<'_>, weight: usize) {
        let delta = self.normalizer.shift(&teacher.delta);
        let raw = &teacher.side.logits.raw;
        self.target.observe(weight, raw, &self.normalizer, delta, teacher.temperature);
    }

    /// The loss; the gradient of the student's raw logits replaces them in the returned logits, and the part of g's
    /// gradient that flows through the log-normaliser is added to `d_magnitude`.
    pub fn cross_entropy(
        &self,
        mut student: Side<'_>,
        targets: &Targets,
        terms: &Terms,
        d_magnitude: &mut Tensor,
    ) -> Result<(Logits, f64), NotFinite> {
        let scale = 1.0 / self.student_temperature;
        let delta = self.normalizer.at(student.magnitude, self.student_temperature);
        let shift = self.normalizer.shift(&delta);
        let Terms { targets_of, weights } = terms;
        let losses =
            ops::cross_entropy(&mut student.logits.raw, scale, shift, &targets.probabilities, targets_of, weights);
        let loss = losses.iter().zip(weights).map(|(loss, weight)| weight * loss).sum::<f64>();
        if !loss.is_finite() {
            // The targets are finite and so is any cross-entropy of finite logits against them.
            return Err(NotFinite { term: "the student's logits".into() });
        }
        student.logits.hold_gradient_of_scaled(scale);
        if let Some((_, slope)) = &delta {
            ops::add_shift_gradient(&student.logits.raw, slope, d_magnitude);
        }
        Ok((student.logits, loss))
    }

    /// The loss of class tokens: every view of the student against every other one of the teacher. The target notes what
    /// its centre moves towards.
    pub fn between_views(
        &mut self,
        student: Side<'_>,
        teacher: &TeacherLogits<'_>,
        images: usize,
        terms: &Terms,
        d_magnitude: &mut Tensor,
    ) -> Result<(Logits, LossReport), NotFinite> {
        let targets = self.targets(teacher)?;
        let (logits, loss) = self.cross_entropy(student, &targets, terms, d_magnitude)?;
        self.observe(teacher, images);
        let report = LossReport { loss, teacher_entropy: targets.entropy, assignments: targets.assignments };
        Ok((logits, report))
    }
}
