//! The teacher's side of a loss for one kind of token: log-normaliser, centre and softmax.
//!
//! `l_t = <w, y> / tau_t + Delta(|w| / tau_t)`, q = softmax(l_t - c). Delta is the vMF log-normaliser relative to kappa = 0,
//! and absent unless the prototypes are vMF components. DINO has one of these, iBOT one for class and one for patch tokens.

use tensor::ops::{self, Logits};
use tensor::{Device, Tensor};
use train::NotFinite;
use train::reduce::{PeerError, Reduce};
use train::state::{SavedState, State, StateError};
use vmf::LogNormalizer;

use crate::recipe::{Centering, Prototypes};

/// One network's logits with the length of its prototypes.
#[derive(Debug)]
pub struct Side<'a> {
    /// Raw logits <w, y>.
    pub logits: Logits,
    /// g, from whose size the log-normaliser is made.
    pub magnitude: &'a Tensor,
}

/// The log-normaliser of the prototypes, where they have one.
#[derive(Debug)]
pub struct Normalizer {
    exact: Option<LogNormalizer<f64>>,
    /// Zeros, for prototypes whose logits have no shift.
    nothing: Tensor,
}

impl Normalizer {
    /// For K prototypes in p dimensions.
    pub fn new(device: &Device, prototypes: Prototypes, count: usize, p: usize) -> Result<Self, vmf::Error> {
        let exact = match prototypes {
            Prototypes::Vmf => Some(LogNormalizer::new(p)?),
            Prototypes::None | Prototypes::L2 => None,
        };
        Ok(Self { exact, nothing: device.zeros_exact(&[count]) })
    }

    /// Delta(|g| / tau) and its derivative by g; none where the prototypes are no vMF components.
    pub fn at(&self, magnitude: &Tensor, tau: f64) -> Option<(Tensor, Tensor)> {
        self.exact.as_ref().map(|n| ops::vmf_log_normalizer(magnitude, tau, n))
    }

    /// The shift of the logits: Delta, or zeros.
    pub fn shift<'a>(&'a self, delta: &'a Option<(Tensor, Tensor)>) -> &'a Tensor {
        delta.as_ref().map_or(&self.nothing, |(value, _)| value)
    }
}

/// What a [`Target`] is made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetOptions {
    /// What the norms of the prototypes mean.
    pub prototypes: Prototypes,
    /// Where the teacher is centred.
    pub centering: Centering,
    /// Momentum of the centre.
    pub center_momentum: f64,
    /// The lowest value of a probability centre; none by default.
    pub center_floor: Option<f64>,
}

impl TargetOptions {
    /// Whether the centre moves towards a linear function of the teacher's rows, which has the same mean over them as over
    /// means of equally many of them.
    pub fn observes_linearly(&self) -> bool {
        self.centering == Centering::Logit
    }
}

/// The teacher's distributions, and the centre that keeps them apart.
#[derive(Debug)]
pub struct Target {
    options: TargetOptions,
    center: Tensor,
    /// What the centre moves towards by each part of a step, with the images of the part.
    parts: Vec<(usize, Tensor)>,
}

/// The teacher's distributions of some rows.
#[derive(Debug)]
pub struct Targets {
    /// q, a row for each row of logits.
    pub probabilities: Tensor,
    /// Mean entropy of the rows.
    pub entropy: f64,
    /// The prototype that each row gives most weight.
    pub assignments: Vec<usize>,
}

impl Target {
    /// A target over K prototypes, with its centre at zero.
    pub fn new(device: &Device, count: usize, options: TargetOptions) -> Self {
        Self { options, center: device.zeros_exact(&[count]), parts: Vec::new() }
    }

    /// The centre c.
    pub fn center(&self) -> &Tensor {
        &self.center
    }

    /// The centre c, to be set.
    pub fn center_mut(&mut self) -> &mut Tensor {
        &mut self.center
    }

    /// Names the centre for a checkpoint.
    pub fn save<'a>(&'a self, name: &str, state: &mut State<'a>) {
        state.tensor(name, &self.center);
    }

    /// Restores the centre from a checkpoint.
    pub fn restore(&mut self, name: &str, saved: &SavedState<'_>) -> Result<(), StateError> {
        saved.tensor(name, &mut self.center)
    }

    /// q = softmax(l_t - c) of raw logits with shift `delta`. Without vMF prototypes a logit centre is kept in units of
    /// <w, y> and divided by tau_t with them, as DINO does; every other centre is in units of l_t.
    pub fn targets(&self, raw: &Tensor, delta: &Tensor, tau: f64) -> Result<Targets, NotFinite> {
        let unit = match (self.options.centering, self.options.prototypes) {
            (Centering::Logit, Prototypes::None | Prototypes::L2) => 1.0 / tau,
            (Centering::Logit, Prototypes::Vmf) | (Centering::Probability, _) => 1.0,
        };
        let probabilities = ops::softmax(raw, 1.0 / tau, &ops::add_scaled(delta, -unit, &self.center));
        let summaries = ops::row_summaries(&probabilities);
        let entropy = summaries.iter().map(|(entropy, _)| entropy).sum::<f64>() / summaries.len() as f64;
        if !entropy.is_finite() {
            return Err(self.not_finite(raw));
        }
        let assignments = summaries.into_iter().map(|(_, best)| best).collect();
        Ok(Targets { probabilities, entropy, assignments })
    }

    /// Notes what the centre moves towards by the uncentred teacher of `images` images: Eq. (9) for probability centering.
    pub fn observe(&mut self, images: usize, raw: &Tensor, normalizer: &Normalizer, delta: &Tensor, tau: f64) {
        let statistic = match (self.options.centering, self.options.prototypes) {
            (Centering::Probability, _) => ops::log_mean_softmax(raw, 1.0 / tau, delta),
            (Centering::Logit, Prototypes::Vmf) => ops::column_mean(raw, 1.0 / tau, delta),
            (Centering::Logit, Prototypes::None | Prototypes::L2) => ops::column_mean(raw, 1.0, &normalizer.nothing),
        };
        self.parts.push((images, statistic));
    }

    /// Forgets the parts of a step that was not completed.
    pub fn start_step(&mut self) {
        self.parts.clear();
    }

    /// Moves the centre by what was noted in this step, in all processes.
    ///
    /// # Panics
    /// When nothing was noted.
    pub fn end_step(&mut self, reduce: &mut dyn Reduce) -> Result<(), PeerError> {
        let (images, own) = self.join_parts();
        let joined = if reduce.ranks() > 1 {
            let sent: Vec<f64> = std::iter::once(images as f64).chain(own.to_f64()).collect();
            let all = reduce.gather(&sent)?;
            let everywhere: Vec<(f64, &[f64])> = all.iter().map(|rank| (rank[0], &rank[1..])).collect();
            Some(own.device().exact_from_f64(own.shape(), &self.join(&everywhere)))
        } else {
            None
        };
        let floor = self.options.center_floor.filter(|_| self.options.centering == Centering::Probability);
        let statistic = joined.as_ref().unwrap_or(&own);
        ops::move_towards(&mut self.center, statistic, self.options.center_momentum, floor);
        Ok(())
    }

    /// The statistic of all parts of this process, and their images. Where it is, so that nobody waits for it.
    fn join_parts(&mut self) -> (usize, Tensor) {
        let mut parts = std::mem::take(&mut self.parts).into_iter();
        let (mut images, mut statistic) = parts.next().expect("something was noted");
        for (more, other) in parts {
            let share = images as f64 / (images + more) as f64;
            match self.options.centering {
                Centering::Logit => ops::move_towards(&mut statistic, &other, share, None),
                Centering::Probability => ops::log_mean_with(&mut statistic, share, &other),
            }
            images += more;
        }
        (images, statistic)
    }

    /// The statistic of all images from those of the processes: a mean, or the logarithm of a mean.
    fn join(&self, parts: &[(f64, &[f64])]) -> Vec<f64> {
        let images: f64 = parts.iter().map(|(n, _)| n).sum();
        match self.options.centering {
            Centering::Logit => {
                (0..parts[0].1.len()).map(|k| parts.iter().map(|(n, s)| n / images * s[k]).sum()).collect()
            }
            Centering::Probability => log_of_mean(parts),
        }
    }

    fn not_finite(&self, raw: &Tensor) -> NotFinite {
        let finite = |t: &Tensor| t.to_f64().iter().all(|x| x.is_finite());
        let term = if !finite(raw) {
            "the teacher's logits"
        } else if !finite(&self.center) {
            "the centre"
        } else {
            "the teacher's distribution"
        };
        NotFinite { term: term.into() }
    }
}

/// The logarithm of a mean, from those of its parts with their weights.
pub(crate) fn log_of_mean(parts: &[(f64, &[f64])]) -> Vec<f64> {
    let all: f64 = parts.iter().map(|(weight, _)| weight).sum();
    let of_column = |k: usize| {
        let most = parts.iter().map(|(_, part)| part[k]).fold(f64::NEG_INFINITY, f64::max);
        most + parts.iter().map(|(weight, part)| weight / all * (part[k] - most).exp()).sum::<f64>().ln()
    };
    (0..parts.first().map_or(0, |(_, part)| part.len())).map(of_column).collect()
}
