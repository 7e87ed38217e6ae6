//! The DINO loss with the paper's two switches: what the prototypes' norms mean, and where the teacher is centred.
//!
//! Student: `l_s = <w, y> / tau_s + Delta(|w| / tau_s)`, p = softmax(l_s), Eqs. (6) and (7).
//! Teacher: `l_t = <w, y> / tau_t + Delta(|w| / tau_t)`, q = softmax(l_t - c).
//! Delta is the vMF log-normaliser relative to kappa = 0, and absent unless the prototypes are vMF components.

use tensor::ops::{self, Logits};
use tensor::{Device, Tensor};
use vmf::LogNormalizer;

use crate::recipe::{Centering, Prototypes};

/// The loss and its centre.
#[derive(Debug)]
pub struct DinoLoss {
    options: LossOptions,
    normalizer: Option<LogNormalizer<f64>>,
    center: Tensor,
    /// Zeros, for the modes whose logits have no shift.
    nothing: Tensor,
    /// What the centre moves towards by each part of a step that is not complete, with the images of the part.
    parts: Vec<(usize, Tensor)>,
}

/// What a [`DinoLoss`] is made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossOptions {
    /// What the norms of the prototypes mean.
    pub prototypes: Prototypes,
    /// Where the teacher is centred.
    pub centering: Centering,
    /// tau_s.
    pub student_temperature: f64,
    /// Momentum of the centre.
    pub center_momentum: f64,
    /// The lowest value of a probability centre; none by default.
    pub center_floor: Option<f64>,
}

/// One side's logits with the length of its prototypes.
#[derive(Debug)]
pub struct Side<'a> {
    /// Raw logits <w, y>, rows view by view.
    pub logits: Logits,
    /// g, from whose size the log-normaliser is made.
    pub magnitude: &'a Tensor,
}

/// How rows pair up: `views` student views and two teacher views of a batch, view by view.
#[derive(Clone, Copy, Debug)]
pub struct Pairing {
    /// Images.
    pub batch: usize,
    /// Images of the whole step: more than `batch` where a step is taken in parts.
    pub of: usize,
    /// Student views of each image, the global ones first.
    pub views: usize,
}

/// Teacher views: the global crops.
pub const TEACHER_VIEWS: usize = 2;

impl Pairing {
    /// Cross-entropy terms of an image: every teacher view against every other student view.
    pub fn terms(self) -> usize {
        TEACHER_VIEWS * (self.views - 1)
    }

    /// The teacher rows that student row `row` is compared with.
    fn targets(self, row: usize) -> Vec<usize> {
        let (view, image) = (row / self.batch, row % self.batch);
        (0..TEACHER_VIEWS).filter(|&t| t != view).map(|t| t * self.batch + image).collect()
    }
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

/// Something is not a finite number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{term} is not finite")]
pub struct NotFinite {
    /// Which quantity, in words.
    pub term: String,
}

impl DinoLoss {
    /// A loss over K prototypes in p dimensions, with its centre at zero.
    pub fn new(device: &Device, count: usize, p: usize, options: LossOptions) -> Result<Self, vmf::Error> {
        let normalizer = match options.prototypes {
            Prototypes::Vmf => Some(LogNormalizer::new(p)?),
            Prototypes::None | Prototypes::L2 => None,
        };
        Ok(Self {
            options,
            normalizer,
            center: device.zeros_exact(&[count]),
            nothing: device.zeros_exact(&[count]),
            parts: Vec::new(),
        })
    }

    /// c.
    pub fn center(&self) -> &Tensor {
        &self.center
    }

    /// c, to be set from a checkpoint.
    pub fn center_mut(&mut self) -> &mut Tensor {
        &mut self.center
    }

    /// The loss; the gradient of the student's raw logits replaces them in the returned logits, and the part of g's
    /// gradient that flows through the log-normaliser is added to `d_magnitude`. Moves the centre, after using it; where a
    /// step is taken in parts, after the last of them.
    pub fn forward_backward(
        &mut self,
        mut student: Side<'_>,
        teacher: &Side<'_>,
        teacher_temperature: f64,
        pairing: Pairing,
        d_magnitude: &mut Tensor,
    ) -> Result<(Logits, LossReport), NotFinite> {
        let teacher_normalizer = self.log_normalizer(teacher.magnitude, teacher_temperature);
        let delta = teacher_normalizer.as_ref().map_or(&self.nothing, |(value, _)| value);
        let targets = self.teacher_targets(&teacher.logits.raw, delta, teacher_temperature);
        let summaries = ops::row_summaries(&targets);
        let teacher_entropy = summaries.iter().map(|(entropy, _)| entropy).sum::<f64>() / summaries.len() as f64;
        if !teacher_entropy.is_finite() {
            return Err(self.not_finite("the teacher's distribution", &teacher.logits.raw));
        }

        let scale = 1.0 / self.options.student_temperature;
        let normalizer = self.log_normalizer(student.magnitude, self.options.student_temperature);
        let (shift, slope) = match &normalizer {
            Some((value, slope)) => (value, Some(slope)),
            None => (&self.nothing, None),
        };
        let targets_of: Vec<Vec<usize>> = (0..student.logits.raw.rows()).map(|row| pairing.targets(row)).collect();
        let weight = 1.0 / (pairing.of * pairing.terms()) as f64;
        let losses = ops::cross_entropy(&mut student.logits.raw, scale, shift, &targets, &targets_of, weight);
        let loss = losses.iter().sum::<f64>() * weight;
        if !loss.is_finite() {
            // The targets are finite and so is any cross-entropy of finite logits against them.
            return Err(NotFinite { term: "the student's logits".into() });
        }
        student.logits.hold_gradient_of_scaled(scale);
        if let Some(slope) = slope {
            ops::add_shift_gradient(&student.logits.raw, slope, d_magnitude);
        }

        let statistic = self.center_statistic(&teacher.logits.raw, delta, teacher_temperature);
        self.parts.push((pairing.batch, statistic));
        if self.parts.iter().map(|(images, _)| images).sum::<usize>() == pairing.of {
            self.move_center();
        }
        let assignments = summaries.into_iter().map(|(_, best)| best).collect();
        Ok((student.logits, LossReport { loss, teacher_entropy, assignments }))
    }

    /// Forgets the parts of a step that was not completed.
    pub fn start_step(&mut self) {
        self.parts.clear();
    }

    fn move_center(&mut self) {
        let parts = std::mem::take(&mut self.parts);
        let Some((_, first)) = parts.first() else { return };
        let joined = (parts.len() > 1).then(|| {
            let (device, shape) = (first.device().clone(), first.shape().to_vec());
            let parts: Vec<(f64, Vec<f64>)> = parts.iter().map(|(images, t)| (*images as f64, t.to_f64())).collect();
            device.exact_from_f64(&shape, &self.join(&parts))
        });
        let floor = self.options.center_floor.filter(|_| self.options.centering == Centering::Probability);
        let statistic = joined.as_ref().unwrap_or(first);
        ops::move_towards(&mut self.center, statistic, self.options.center_momentum, floor);
    }

    /// The statistic of all images from those of the parts: a mean, or the logarithm of a mean.
    fn join(&self, parts: &[(f64, Vec<f64>)]) -> Vec<f64> {
        let images: f64 = parts.iter().map(|(n, _)| n).sum();
        (0..parts[0].1.len())
            .map(|k| match self.options.centering {
                Centering::Logit => parts.iter().map(|(n, s)| n / images * s[k]).sum(),
                Centering::Probability => {
                    let most = parts.iter().map(|(_, s)| s[k]).fold(f64::NEG_INFINITY, f64::max);
                    most + parts.iter().map(|(n, s)| n / images * (s[k] - most).exp()).sum::<f64>().ln()
                }
            })
            .collect()
    }

    /// q = softmax(l_t - c). Without vMF prototypes a logit centre is kept in units of <w, y> and divided by tau_t with
    /// them, as DINO does; every other centre is in units of l_t.
    fn teacher_targets(&self, raw: &Tensor, delta: &Tensor, tau: f64) -> Tensor {
        let unit = match (self.options.centering, self.options.prototypes) {
            (Centering::Logit, Prototypes::None | Prototypes::L2) => 1.0 / tau,
            (Centering::Logit, Prototypes::Vmf) | (Centering::Probability, _) => 1.0,
        };
        ops::softmax(raw, 1.0 / tau, &ops::add_scaled(delta, -unit, &self.center))
    }

    /// What the centre moves towards, of the uncentred teacher: Eq. (9) for probability centering.
    fn center_statistic(&self, raw: &Tensor, delta: &Tensor, tau: f64) -> Tensor {
        match (self.options.centering, self.options.prototypes) {
            (Centering::Probability, _) => ops::log_mean_softmax(raw, 1.0 / tau, delta),
            (Centering::Logit, Prototypes::Vmf) => ops::column_mean(raw, 1.0 / tau, delta),
            (Centering::Logit, Prototypes::None | Prototypes::L2) => ops::column_mean(raw, 1.0, &self.nothing),
        }
    }

    /// Delta(|g| / tau) and its derivative by g, for vMF prototypes.
    fn log_normalizer(&self, magnitude: &Tensor, tau: f64) -> Option<(Tensor, Tensor)> {
        self.normalizer.as_ref().map(|n| ops::vmf_log_normalizer(magnitude, tau, n))
    }

    fn not_finite(&self, term: &str, raw: &Tensor) -> NotFinite {
        let finite = |t: &Tensor| t.to_f64().iter().all(|x| x.is_finite());
        let term = if !finite(raw) {
            "the teacher's logits"
        } else if !finite(&self.center) {
            "the centre"
        } else {
            term
        };
        NotFinite { term: term.into() }
    }
}
