//! Is the run learning, or has it collapsed? Numbers from tensors already at hand, and what they mean in words.
//!
//! The loss alone does not tell: it falls when the teacher gets sharper and rises when it gets smoother. What tells is
//! its divergence part, how the teacher's weight is spread over the prototypes, and whether features differ at all.

use std::collections::{HashMap, VecDeque};

use tensor::Tensor;

use crate::learner::StepReport;

/// Teacher assignments that usage is counted over.
const WINDOW: usize = 4096;
/// Assignments below which usage says nothing.
const ENOUGH: usize = 64;
/// Rows of features that the rank is taken of; more would cost time at every log line.
pub(crate) const RANK_ROWS: usize = 64;

/// What has been seen of a run lately. Part of a checkpoint, so that a resumed run says what an unbroken one would.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    assignments: VecDeque<u32>,
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Vitals {
    /// Cross-entropy.
    pub loss: f64,
    /// Entropy of the teacher's targets, at most ln K.
    pub teacher_entropy: f64,
    /// Divergence of the student from the teacher: the loss without the teacher's entropy.
    pub divergence: f64,
    /// Prototypes that were some recent view's first choice.
    pub prototypes_in_use: usize,
    /// exp of the entropy of the first choices: how many prototypes share them evenly.
    pub usage_perplexity: f64,
    /// Smallest, median and largest concentration |g| / tau_s of the student's prototypes.
    pub kappa: [f64; 3],
    /// Effective rank of the teacher's features of the last batch; none where it was not asked for.
    pub feature_rank: Option<f64>,
    /// Norm of the gradient.
    pub gradient_norm: f64,
    /// First choices counted.
    pub observed: usize,
}

/// What the numbers mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to say.
    Healthy,
    /// The teacher gives every prototype the same weight.
    Uniform,
    /// Every view chooses the same prototype.
    OnePrototype,
    /// Features of different images are the same up to scale.
    SameFeatures,
}

impl Health {
    /// Takes a step into account.
    pub fn observe(&mut self, report: &StepReport) {
        self.assignments.extend(report.loss.assignments.iter().map(|&k| k as u32));
        while self.assignments.len() > WINDOW {
            self.assignments.pop_front();
        }
    }

    /// The state of the run after a step. `features` are the teacher's, of the last batch, where the rank is wanted.
    pub fn vitals(
        &self,
        report: &StepReport,
        magnitude: &Tensor,
        student_temperature: f64,
        features: Option<&Tensor>,
    ) -> Vitals {
        let mut counts: HashMap<u32, usize> = HashMap::new();
        self.assignments.iter().for_each(|&k| *counts.entry(k).or_default() += 1);
        let total = self.assignments.len().max(1) as f64;
        // Sorted, so that the sum does not depend on the order of a hash map.
        let mut shares: Vec<usize> = counts.values().copied().collect();
        shares.sort_unstable();
        let entropy: f64 = shares.iter().map(|&c| -(c as f64 / total) * (c as f64 / total).ln()).sum();
        let mut kappa: Vec<f64> = magnitude.to_f64().iter().map(|g| g.abs() / student_temperature).collect();
        kappa.sort_by(f64::total_cmp);
        let (loss, teacher_entropy) = (report.loss.loss, report.loss.teacher_entropy);
        Vitals {
            loss,
            teacher_entropy,
            divergence: loss - teacher_entropy,
            prototypes_in_use: counts.len(),
            usage_perplexity: entropy.exp(),
            kappa: [0, kappa.len() / 2, kappa.len() - 1].map(|i| kappa[i]),
            feature_rank: features.map(effective_rank),
            gradient_norm: report.gradient.norm,
            observed: self.assignments.len(),
        }
    }

    /// The assignments, to be saved.
    pub fn assignments(&self) -> impl Iterator<Item = u32> + '_ {
        self.assignments.iter().copied()
    }

    /// From saved assignments.
    pub fn restore(assignments: impl IntoIterator<Item = u32>) -> Self {
        Self { assignments: assignments.into_iter().collect() }
    }
}

impl Vitals {
    /// What the numbers mean, for K prototypes.
    pub fn verdict(&self, prototypes: usize) -> Verdict {
        let ln_k = (prototypes as f64).ln();
        // A loss far above ln K is that of a student which does tell images apart, if not as the teacher does.
        if self.teacher_entropy > 0.995 * ln_k && (self.loss / ln_k - 1.0).abs() < 0.01 {
            Verdict::Uniform
        } else if self.observed >= ENOUGH && self.usage_perplexity < 1.05 {
            Verdict::OnePrototype
        } else if self.feature_rank.is_some_and(|r| r < 1.05) {
            Verdict::SameFeatures
        } else {
            Verdict::Healthy
        }
    }

    /// The verdict as a sentence that says what was seen and what may help; none where all is well.
    pub fn in_words(&self, prototypes: usize) -> Option<String> {
        let ln_k = (prototypes as f64).ln();
        match self.verdict(prototypes) {
            Verdict::Healthy => None,
            Verdict::Uniform => Some(format!(
                "the teacher is uniform: its entropy is {:.4} and the loss {:.4}, with ln {prototypes} = {ln_k:.4}. The network \
                 tells no image from another; a lower teacher_temp usually helps",
                self.teacher_entropy, self.loss
            )),
            Verdict::OnePrototype => Some(format!(
                "the teacher gives one prototype to every view: {} in use over the last {} views. A lower center_momentum, \
                 a higher teacher_temp or a lower lr usually helps",
                self.prototypes_in_use, self.observed
            )),
            Verdict::SameFeatures => Some(format!(
                "the features of different images are the same up to scale: their effective rank is {:.2}. A lower lr or \
                 a longer warm-up usually helps",
                self.feature_rank.unwrap_or(1.0)
            )),
        }
    }
}

/// exp of the entropy of the singular values' shares (RankMe), of at most the first 64 rows.
fn effective_rank(features: &Tensor) -> f64 {
    let (columns, rows) = (features.columns(), features.rows().min(RANK_ROWS));
    let x = features.to_f64();
    let row = |i: usize| &x[i * columns..(i + 1) * columns];
    let mut gram: Vec<Vec<f64>> =
        (0..rows).map(|i| (0..rows).map(|j| row(i).iter().zip(row(j)).map(|(a, b)| a * b).sum()).collect()).collect();
    let singular: Vec<f64> = eigenvalues(&mut gram).into_iter().map(|l| l.max(0.0).sqrt()).collect();
    let sum: f64 = singular.iter().sum();
    let entropy: f64 = singular.iter().map(|s| s / sum).filter(|&p| p > 0.0).map(|p| -p * p.ln()).sum();
    entropy.exp()
}

/// Eigenvalues of a symmetric matrix by Jacobi rotations: small, and exact enough for a rank.
fn eigenvalues(a: &mut [Vec<f64>]) -> Vec<f64> {
    let n = a.len();
    for _sweep in 0..30 {
        let off: f64 = (0..n).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| a[i][j] * a[i][j]).sum();
        let diagonal: f64 = (0..n).map(|i| a[i][i] * a[i][i]).sum();
        if off <= 1e-20 * diagonal {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                if a[p][q] == 0.0 {
                    continue;
                }
                let theta = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
                let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                let t = if theta == 0.0 { 1.0 } else { t };
                let (c, s) = (1.0 / (t * t + 1.0).sqrt(), t / (t * t + 1.0).sqrt());
                for row in a.iter_mut() {
                    let (x, y) = (row[p], row[q]);
                    (row[p], row[q]) = (c * x - s * y, s * x + c * y);
                }
                let (upper, lower) = a.split_at_mut(q);
                for (x, y) in upper[p].iter_mut().zip(&mut lower[0]) {
                    (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
                }
            }
        }
    }
    (0..n).map(|i| a[i][i]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::LossReport;
    use crate::optimizer::GradientReport;

    fn report(loss: f64, entropy: f64, assignments: Vec<usize>) -> StepReport {
        let loss = LossReport { loss, teacher_entropy: entropy, assignments };
        StepReport { loss, gradient: GradientReport::default() }
    }

    fn vitals(report: &StepReport, features: Option<&[f64]>) -> Vitals {
        let device = tensor::Device::cpu(Default::default()).unwrap();
        let mut health = Health::default();
        health.observe(report);
        let features = features.map(|f| device.from_f64(&[4, f.len() / 4], f));
        health.vitals(report, &device.from_f64(&[3, 1], &[1.0, -4.0, 2.0]), 0.1, features.as_ref())
    }

    #[test]
    fn a_loss_of_ln_k_with_an_even_teacher_is_called_uniform() {
        let ln_k = 4096f64.ln();
        let v = vitals(&report(ln_k, ln_k, (0..128).collect()), None);
        assert_eq!(v.verdict(4096), Verdict::Uniform);
        assert!(v.in_words(4096).unwrap().contains("ln 4096 = 8.3178"));
        assert_eq!(vitals(&report(ln_k, 0.5 * ln_k, (0..128).collect()), None).verdict(4096), Verdict::Healthy);
        assert_eq!(vitals(&report(1.1 * ln_k, ln_k, (0..128).collect()), None).verdict(4096), Verdict::Healthy);
    }

    #[test]
    fn one_first_choice_for_all_views_is_called_collapse() {
        let v = vitals(&report(0.1, 0.1, vec![7; 128]), None);
        assert_eq!((v.verdict(4096), v.prototypes_in_use), (Verdict::OnePrototype, 1));
        let few = vitals(&report(0.1, 0.1, vec![7; 8]), None);
        assert_eq!(few.verdict(4096), Verdict::Healthy, "eight views are not enough to say so");
    }

    #[test]
    fn the_rank_of_features_is_that_of_their_directions() {
        let same = vitals(&report(3.0, 1.0, (0..128).collect()), Some(&[1.0, 2.0, 2.0, 4.0, 3.0, 6.0, 0.5, 1.0]));
        assert!((same.feature_rank.unwrap() - 1.0).abs() < 1e-6);
        assert_eq!(same.verdict(4096), Verdict::SameFeatures);
        let mut identity = vec![0.0; 16];
        (0..4).for_each(|i| identity[i * 5] = 2.0);
        let even = vitals(&report(3.0, 1.0, (0..128).collect()), Some(&identity));
        assert!((even.feature_rank.unwrap() - 4.0).abs() < 1e-9);
        assert_eq!(even.kappa, [10.0, 20.0, 40.0]);
    }
}
