//! Is the run learning, or has it collapsed? Numbers from tensors already at hand, and what they mean in words.
//!
//! The loss alone does not tell: it falls when the teacher gets sharper and rises when it gets smoother. What tells is
//! its divergence part, how the teacher's weight is spread over the prototypes, and whether features differ at all.

use std::collections::{HashMap, VecDeque};

use tensor::Tensor;

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
}

impl Health {
    /// Takes the first choices of a step into account.
    pub fn observe(&mut self, assignments: &[usize]) {
        self.assignments.extend(assignments.iter().map(|&k| k as u32));
        while self.assignments.len() > WINDOW {
            self.assignments.pop_front();
        }
    }

    /// The state of the run after a step with this loss and mean entropy of the teacher; `magnitude` is the student's g.
    pub fn vitals(&self, loss: f64, teacher_entropy: f64, magnitude: &Tensor, student_temperature: f64) -> Vitals {
        let mut counts: HashMap<u32, usize> = HashMap::new();
        self.assignments.iter().for_each(|&k| *counts.entry(k).or_default() += 1);
        let total = self.assignments.len().max(1) as f64;
        // Sorted, so that the sum does not depend on the order of a hash map.
        let mut shares: Vec<usize> = counts.values().copied().collect();
        shares.sort_unstable();
        let entropy: f64 = shares.iter().map(|&c| -(c as f64 / total) * (c as f64 / total).ln()).sum();
        let mut kappa: Vec<f64> = magnitude.to_f64().iter().map(|g| g.abs() / student_temperature).collect();
        kappa.sort_by(f64::total_cmp);
        Vitals {
            loss,
            teacher_entropy,
            divergence: loss - teacher_entropy,
            prototypes_in_use: counts.len(),
            usage_perplexity: entropy.exp(),
            kappa: [0, kappa.len() / 2, kappa.len() - 1].map(|i| kappa[i]),
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
        }
    }
}

/// What is wrong with features of this effective rank, in words; none where all is well.
pub fn verdict_on_rank(rank: f64) -> Option<String> {
    (rank < 1.05).then(|| {
        format!(
            "the features of different images are the same up to scale: their effective rank is {rank:.2}. A lower lr or \
             a longer warm-up usually helps"
        )
    })
}

/// exp of the entropy of the singular values' shares (RankMe), of at most the first 64 rows.
pub fn effective_rank(features: &Tensor) -> f64 {
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
    use tensor::Device;

    fn vitals(loss: f64, entropy: f64, assignments: &[usize]) -> Vitals {
        let device = Device::cpu(Default::default()).unwrap();
        let mut health = Health::default();
        health.observe(assignments);
        health.vitals(loss, entropy, &device.from_f64(&[3, 1], &[1.0, -4.0, 2.0]), 0.1)
    }

    fn many() -> Vec<usize> {
        (0..128).collect()
    }

    #[test]
    fn a_loss_of_ln_k_with_an_even_teacher_is_called_uniform() {
        let ln_k = 4096f64.ln();
        let v = vitals(ln_k, ln_k, &many());
        assert_eq!(v.verdict(4096), Verdict::Uniform);
        assert!(v.in_words(4096).unwrap().contains("ln 4096 = 8.3178"));
        assert_eq!(vitals(ln_k, 0.5 * ln_k, &many()).verdict(4096), Verdict::Healthy);
        assert_eq!(vitals(1.1 * ln_k, ln_k, &many()).verdict(4096), Verdict::Healthy);
        assert_eq!(v.kappa, [10.0, 20.0, 40.0]);
    }

    #[test]
    fn one_first_choice_for_all_views_is_called_collapse() {
        let v = vitals(0.1, 0.1, &[7; 128]);
        assert_eq!((v.verdict(4096), v.prototypes_in_use), (Verdict::OnePrototype, 1));
        assert_eq!(vitals(0.1, 0.1, &[7; 8]).verdict(4096), Verdict::Healthy, "eight views are not enough to say so");
    }

    #[test]
    fn the_rank_of_features_is_that_of_their_directions() {
        let device = Device::cpu(Default::default()).unwrap();
        let rank = |values: &[f64]| effective_rank(&device.from_f64(&[4, values.len() / 4], values));
        let same = rank(&[1.0, 2.0, 2.0, 4.0, 3.0, 6.0, 0.5, 1.0]);
        assert!((same - 1.0).abs() < 1e-6);
        assert!(verdict_on_rank(same).unwrap().contains("effective rank is 1.00"));
        let mut identity = vec![0.0; 16];
        (0..4).for_each(|i| identity[i * 5] = 2.0);
        assert!((rank(&identity) - 4.0).abs() < 1e-9);
        assert_eq!(verdict_on_rank(4.0), None);
    }
}
