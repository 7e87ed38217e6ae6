//! What a step tells of a run's health: numbers from tensors already at hand.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;
use tensor::Tensor;
use train::run::Record;

/// Teacher assignments that usage is counted over.
const WINDOW: usize = 4096;

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

impl Vitals {
    /// Adds them to a record of the log.
    pub fn add_to(&self, record: Record) -> Record {
        record
            .number("loss", self.loss)
            .number("divergence", self.divergence)
            .number("teacher_entropy", self.teacher_entropy)
            .whole("prototypes_in_use", self.prototypes_in_use as i64)
            .number("usage_perplexity", self.usage_perplexity)
            .number("kappa_min", self.kappa[0])
            .number("kappa_median", self.kappa[1])
            .number("kappa_max", self.kappa[2])
    }

    /// From a record of the log of a run whose teacher sees this many views a step; none where the record has not all of
    /// the numbers, as that of another method. What a run says at its end must not depend on whether it was resumed, and
    /// the log does not.
    pub fn of_record(record: &Value, views: u64) -> Option<Self> {
        let number = |key: &str| record.get(key)?.as_f64();
        let seen = record.get("step")?.as_u64()?.saturating_mul(views);
        Some(Self {
            // Of class tokens alone, where they are a part of the loss.
            loss: number("class_loss").or_else(|| number("loss"))?,
            teacher_entropy: number("teacher_entropy")?,
            divergence: number("divergence")?,
            prototypes_in_use: number("prototypes_in_use")? as usize,
            usage_perplexity: number("usage_perplexity")?,
            kappa: [number("kappa_min")?, number("kappa_median")?, number("kappa_max")?],
            observed: seen.min(WINDOW as u64) as usize,
        })
    }
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

    #[test]
    fn usage_is_counted_over_first_choices_and_kappa_over_prototypes() {
        let v = vitals(2.0, 1.5, &[7, 7, 3, 3]);
        assert_eq!((v.prototypes_in_use, v.observed, v.kappa), (2, 4, [10.0, 20.0, 40.0]));
        assert!((v.usage_perplexity - 2.0).abs() < 1e-12 && v.divergence == 0.5);
        let long: Vec<usize> = (0..2 * WINDOW).collect();
        assert_eq!(vitals(2.0, 1.5, &long).observed, WINDOW);
    }

    #[test]
    fn numbers_of_the_log_are_the_numbers_again() {
        let v = vitals(2.0, 1.5, &[7, 7, 3, 3]);
        let record = v.add_to(Record::new(2));
        let record = serde_json::from_str(&record.to_json()).unwrap();
        assert_eq!(Vitals::of_record(&record, 2), Some(v));
        assert_eq!(Vitals::of_record(&serde_json::json!({ "step": 2, "loss": 1.0 }), 2), None);
    }
}
