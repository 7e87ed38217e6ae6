//! Few-shot classification on frozen features, MSN's protocol: logistic regression on one, two or five images of each class, or
//! on one per cent of all.
//!
//! Every feature vector, of training and test images alike, has its own mean taken off and is scaled to unit length. Then
//! min over W of 1/n sum CE + lambda/2 |W|^2 without an intercept, lambda = 0.075 / n; the strength of
//! [`crate::logistic`] is therefore 0.075. Small draws depend much on which images they hold, so several are judged and their mean
//! and deviation reported.

pub mod lists;

use std::ops::ControlFlow;

use random::{Key, Purpose};
use tensor::Device;

use crate::error::EvalError;
use crate::labelled::Labelled;
use crate::logistic::{LogisticOptions, Rows, Solver};

/// n times lambda, as in the papers of MSN and DINO-vMF.
pub const DEFAULT_STRENGTH: f64 = 0.075;
/// Draws of which the mean is reported.
pub const DEFAULT_SPLITS: usize = 3;

/// Which training images are learnt from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shots {
    /// So many of each class.
    PerClass(usize),
    /// This share of each class in per cent, at least one image.
    Percent(f64),
}

impl std::fmt::Display for Shots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Shots::PerClass(images) => write!(f, "{images} per class"),
            Shots::Percent(percent) => write!(f, "{percent} %"),
        }
    }
}

/// Rows of the training set that one classifier learns from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Rows, ascending.
    pub rows: Vec<usize>,
    /// What it is called in an error: `split 2 of 5 per class`, or the name of its list.
    pub name: String,
}

/// Draws images of each class. Within a split a smaller draw is part of a larger one, as in the lists of MSN. The draw is a
/// function of the seed, the number of the split, the class and the number of its images.
pub fn draw(train: &Labelled<'_>, shots: Shots, split: usize, seed: u64) -> Result<Draw, EvalError> {
    let mut rows_of: Vec<Vec<usize>> = vec![Vec::new(); train.classes()];
    train.labels().iter().enumerate().for_each(|(row, &label)| rows_of[label as usize].push(row));
    let mut rows = Vec::new();
    for (class, members) in rows_of.iter_mut().enumerate().filter(|(_, members)| !members.is_empty()) {
        let images = match shots {
            Shots::PerClass(images) => images,
            Shots::Percent(percent) => ((members.len() as f64 * percent / 100.0).round() as usize).max(1),
        };
        if images > members.len() || images == 0 {
            let expected = format!("at least {} of class {class}, which has {}", images.max(1), members.len());
            return Err(EvalError::Setting { setting: "images per class", value: images.to_string(), expected });
        }
        Key::new(seed, Purpose::Subset).epoch(split as u64).sample(class as u64).stream().shuffle(members);
        rows.extend_from_slice(&members[..images]);
    }
    rows.sort_unstable();
    Ok(Draw { rows, name: format!("split {} of {shots}", split + 1) })
}

/// Top-1 accuracies over draws of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct FewShotResult {
    /// Images of each draw.
    pub images: Vec<usize>,
    /// Per cent of the test images that are classified rightly, by draw.
    pub top1: Vec<f64>,
    /// Whether every fit met its tolerances.
    pub converged: bool,
}

impl FewShotResult {
    /// The mean over draws.
    pub fn mean(&self) -> f64 {
        self.top1.iter().sum::<f64>() / self.top1.len() as f64
    }

    /// The standard deviation over draws, of a sample (divided by one less than their number); zero of one draw.
    pub fn deviation(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.top1.iter().map(|x| (x - mean).powi(2)).sum();
        (squares / (self.top1.len().max(2) - 1) as f64).sqrt()
    }
}

/// Takes each row's mean off and scales it to unit length. A row of equal values becomes zeros.
pub fn center_and_scale(values: &mut [f32], dim: usize) {
    for row in values.chunks_mut(dim.max(1)) {
        let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / dim as f64;
        let norm = row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>().sqrt();
        // What rounding leaves of equal values is no direction.
        let scale = if norm > 1e-7 * mean.abs() { 1.0 / norm } else { 0.0 };
        row.iter_mut().for_each(|x| *x = ((f64::from(*x) - mean) * scale) as f32);
    }
}

/// Test features, made ready once for many draws.
#[derive(Debug)]
pub struct FewShot<'a> {
    train: &'a Labelled<'a>,
    test: Vec<f32>,
    test_labels: &'a [u32],
    strength: f64,
    host: &'a Device,
}

impl<'a> FewShot<'a> {
    /// Prepares both sets, as [`Labelled::both`] gives them.
    pub fn new(train: &'a Labelled<'a>, test: &'a Labelled<'a>, strength: f64, host: &'a Device) -> Self {
        let mut values = test.features().values.clone();
        center_and_scale(&mut values, test.features().dim);
        Self { train, test: values, test_labels: test.labels(), strength, host }
    }

    /// Learns from a draw, and returns the per cent of test images that are classified rightly and whether the fit
    /// met its tolerances. `progress` is called after every pass over the features and may end the work.
    pub fn judge(
        &self,
        draw: &Draw,
        progress: &mut (dyn FnMut() -> ControlFlow<()> + Send),
    ) -> Result<(f64, bool), EvalError> {
        let (dim, classes) = (self.train.features().dim, self.train.classes());
        let mut values = Vec::with_capacity(draw.rows.len() * dim);
        draw.rows.iter().for_each(|&row| values.extend_from_slice(self.train.features().row(row)));
        center_and_scale(&mut values, dim);
        let labels: Vec<u32> = draw.rows.iter().map(|&row| self.train.label(row)).collect();
        let mut is_learnt = vec![false; classes];
        labels.iter().for_each(|&label| is_learnt[label as usize] = true);
        if let Some(&class) = self.test_labels.iter().find(|&&label| !is_learnt[label as usize]) {
            return Err(EvalError::NoMember { class, of: draw.name.clone() });
        }
        let rows = Rows { dim, values: &values, labels: &labels, classes, parts: &vec![0; labels.len()] };
        let options = LogisticOptions { intercept: false, ..Default::default() };
        let solver = Solver::new(self.host, &rows, options)?;
        let mut found = None;
        solver.path(&[None], &[self.strength], None, &mut |fit| found = Some(fit), &mut |_| progress())?;
        let Some(fit) = found else { return Err(EvalError::Stopped) };
        let predicted = solver.classifier(&fit).predict(self.host, &self.test)?;
        let right = predicted.iter().zip(self.test_labels).filter(|(a, b)| a == b).count();
        Ok((100.0 * right as f64 / self.test_labels.len() as f64, fit.converged))
    }

    /// Judges several draws of one size.
    pub fn judge_all(
        &self,
        draws: &[Draw],
        progress: &mut (dyn FnMut() -> ControlFlow<()> + Send),
    ) -> Result<FewShotResult, EvalError> {
        let mut result = FewShotResult { images: Vec::new(), top1: Vec::new(), converged: true };
        for draw in draws {
            let (top1, converged) = self.judge(draw, progress)?;
            result.images.push(draw.rows.len());
            result.top1.push(top1);
            result.converged &= converged;
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Features;

    fn set(rows: usize, classes: u32) -> Features {
        let mut stream = Key::new(9, Purpose::Bench).stream();
        let labels: Vec<u32> = (0..rows).map(|i| i as u32 % classes).collect();
        let value =
            |at: usize| 3.0 + stream.normal() as f32 + if at % 8 == labels[at / 8] as usize { 4.0 } else { 0.0 };
        Features::labelled(8, (0..rows * 8).map(value).collect(), &labels)
    }

    #[test]
    fn draws_are_balanced_nested_and_differ_between_splits_and_seeds() {
        let features = set(200, 4);
        let train = Labelled::new(&features, "training").unwrap();
        let rows = |shots, split, seed| draw(&train, Shots::PerClass(shots), split, seed).unwrap().rows;
        let five = rows(5, 0, 0);
        assert_eq!(five.len(), 20);
        for class in 0..4 {
            assert_eq!(five.iter().filter(|&&row| train.label(row) == class).count(), 5);
        }
        assert!(rows(2, 0, 0).iter().all(|row| five.contains(row)), "a smaller draw is part of a larger one");
        assert_ne!(five, rows(5, 1, 0));
        assert_ne!(five, rows(5, 0, 1));
        assert_eq!(draw(&train, Shots::Percent(10.0), 0, 0).unwrap().rows.len(), 20);
        assert_eq!(draw(&train, Shots::Percent(0.1), 0, 0).unwrap().rows.len(), 4, "at least one of each class");
        let error = draw(&train, Shots::PerClass(51), 0, 0).unwrap_err().to_string();
        assert!(error.contains("at least 51 of class 0, which has 50"), "{error}");
        assert!(draw(&train, Shots::PerClass(0), 0, 0).is_err());
    }

    #[test]
    fn rows_are_centred_and_scaled_one_by_one() {
        let mut values = vec![1.0, 2.0, 3.0, 5.0, 5.0, 5.0];
        center_and_scale(&mut values, 3);
        let half = 0.5f32.sqrt();
        assert_eq!(values, [-half, 0.0, half, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn more_shots_are_better_and_statistics_are_those_of_a_sample() {
        let (train, test) = (set(400, 5), set(100, 5));
        let (train, test) = Labelled::both(&train, &test).unwrap();
        let host = Device::cpu(Default::default()).unwrap();
        let fewshot = FewShot::new(&train, &test, DEFAULT_STRENGTH, &host);
        let judged = |shots| {
            let draws: Vec<Draw> =
                (0..3).map(|split| draw(&train, Shots::PerClass(shots), split, 0).unwrap()).collect();
            fewshot.judge_all(&draws, &mut || ControlFlow::Continue(())).unwrap()
        };
        let (one, ten) = (judged(1), judged(10));
        assert!(ten.mean() > one.mean() && ten.mean() > 90.0, "{one:?} {ten:?}");
        assert!(one.converged && one.images == [5, 5, 5]);
        let made = FewShotResult { images: vec![1; 3], top1: vec![1.0, 2.0, 4.5], converged: true };
        assert_eq!((made.mean(), made.deviation()), (2.5, 3.25f64.sqrt()));
        assert_eq!(FewShotResult { top1: vec![7.0], ..made }.deviation(), 0.0);
        let stop = fewshot.judge(&draw(&train, Shots::PerClass(1), 0, 0).unwrap(), &mut || ControlFlow::Break(()));
        assert!(matches!(stop, Err(EvalError::Stopped)));
        let incomplete = Draw { rows: vec![0, 1], name: "x.txt".to_owned() };
        let error = fewshot.judge(&incomplete, &mut || ControlFlow::Continue(())).unwrap_err();
        assert!(matches!(&error, EvalError::NoMember { class: 2, of } if of == "x.txt"), "{error}");
    }
}
