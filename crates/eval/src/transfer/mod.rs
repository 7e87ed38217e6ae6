//! Transfer to other data sets: logistic regression on frozen features, its penalty chosen by validation.
//!
//! 45 strengths of the penalty are tried, [`strengths`], and each is judged on images that it was not fitted to: on the data
//! set's own validation images or a fifth of the training images (`holdout`), or by five stratified folds (`cv5`). The
//! one with the best accuracy, the weakest of equal ones, is fitted to all of them and judged on the test images.

mod folds;
mod metrics;

use std::ops::ControlFlow;

use tensor::Device;

use crate::error::EvalError;
use crate::labelled::Labelled;
use crate::logistic::{Fit, LogisticOptions, PathProgress, Rows, Solver};
pub use metrics::{Accuracy, Metric};

/// Strengths that are tried.
const STRENGTHS: usize = 45;
/// Folds of cross-validation.
pub const FOLDS: usize = 5;

/// `torch.logspace(-6, 5, 45)`: in f32, counted from the nearer end.
pub fn strengths() -> Vec<f64> {
    let step = 11.0f32 / (STRENGTHS - 1) as f32;
    let exponent = |i: usize| match i < STRENGTHS / 2 {
        true => -6.0 + step * i as f32,
        false => 5.0 - step * (STRENGTHS - 1 - i) as f32,
    };
    (0..STRENGTHS).map(|i| f64::from(10f32.powf(exponent(i)))).collect()
}

/// What a strength is chosen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The validation images, or a fifth of the training images where there are none.
    HoldOut,
    /// Five stratified folds of training and validation images together.
    CrossValidation,
}

impl Selection {
    /// As it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Selection::HoldOut => "holdout",
            Selection::CrossValidation => "cv5",
        }
    }
}

/// Settings of the protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct TransferOptions {
    /// What a strength is chosen on.
    pub selection: Selection,
    /// By which accuracy.
    pub metric: Metric,
    /// The strengths, ascending.
    pub strengths: Vec<f64>,
    /// Of the folds, or of the fifth that is held out.
    pub seed: u64,
    /// How exactly problems are solved. Tighter than the protocol of scikit-learn, whose `tol` is the same, but which also stops
    /// after 100 steps.
    pub solver: LogisticOptions,
}

impl Default for TransferOptions {
    fn default() -> Self {
        Self {
            selection: Selection::CrossValidation,
            metric: Metric::Top1,
            strengths: strengths(),
            seed: 0,
            solver: LogisticOptions::default(),
        }
    }
}

/// A strength and what it is worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StrengthScore {
    /// The strength.
    pub strength: f64,
    /// Accuracy on the images that the fit has not seen; with folds, their mean.
    pub accuracy: Accuracy,
    /// The objective of [`crate::logistic`] at its end; with folds, their mean.
    pub objective: f64,
}

/// The result.
#[derive(Clone, Debug, PartialEq)]
pub struct TransferResult {
    /// Accuracy on the test images.
    pub test: Accuracy,
    /// The strength that was chosen.
    pub best_strength: f64,
    /// All that were tried.
    pub scores: Vec<StrengthScore>,
    /// Fits, and those that met their tolerances.
    pub fits: usize,
    /// See `fits`.
    pub converged: usize,
    /// Images that the last fit learnt from.
    pub fitted_images: usize,
}

/// Runs the protocol on the threads of `host`. `validation` is what the data set itself holds out for choosing, if it does.
/// `progress` is called after every pass over the features and may end the work.
///
/// ```
/// use std::ops::ControlFlow;
/// use eval::{Features, Labelled, transfer};
/// let value = |row: usize| [(row % 2) as f32 + 0.01 * row as f32, 1.0];
/// let labels: Vec<u32> = (0..20).map(|row| row % 2).collect();
/// let features = Features::labelled(2, (0..20).flat_map(value).collect(), &labels);
/// let (train, test) = Labelled::both(&features, &features)?;
/// let host = tensor::Device::cpu(Default::default())?;
/// let options = transfer::TransferOptions { strengths: vec![0.01, 1.0], ..Default::default() };
/// let result = transfer::evaluate(&host, &train, None, &test, &options, &mut |_| ControlFlow::Continue(()))?;
/// assert_eq!((result.test.top1, result.best_strength), (100.0, 0.01));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// When `host` is a GPU.
pub fn evaluate(
    host: &Device,
    train: &Labelled<'_>,
    validation: Option<&Labelled<'_>>,
    test: &Labelled<'_>,
    options: &TransferOptions,
    progress: &mut (dyn FnMut(PathProgress) -> ControlFlow<()> + Send),
) -> Result<TransferResult, EvalError> {
    if options.strengths.is_empty() || !options.strengths.is_sorted() {
        let (value, expected) = (format!("{:?}", options.strengths), "at least one, in ascending order".to_owned());
        return Err(EvalError::Setting { setting: "strengths", value, expected });
    }
    let dim = train.features().dim;
    for other in validation.into_iter().chain([test]).map(|set| set.features().dim) {
        if other != dim {
            return Err(EvalError::Width { train: dim, test: other });
        }
    }
    let classes = train.classes().max(test.classes()).max(validation.map_or(0, Labelled::classes));
    let mut values = train.features().values.clone();
    let mut labels = train.labels().to_vec();
    if let Some(validation) = validation {
        values.extend_from_slice(&validation.features().values);
        labels.extend_from_slice(validation.labels());
    }
    check_members(&labels, test.labels(), classes)?;
    let (parts, problems) = match (options.selection, validation) {
        (Selection::CrossValidation, _) => {
            let parts = folds::stratified(&labels, classes, FOLDS, options.seed)?;
            // Fewer images than folds leave some empty.
            let used = parts.iter().max().map_or(0, |last| last + 1);
            (parts, (0..used).map(Some).collect())
        }
        (Selection::HoldOut, Some(_)) => {
            check_members(train.labels(), &labels, classes)?;
            ((0..labels.len()).map(|row| usize::from(row >= train.len())).collect(), vec![Some(1)])
        }
        (Selection::HoldOut, None) => (folds::fifth(&labels, classes, options.seed)?, vec![Some(1)]),
    };
    let rows = Rows { dim, values: &values, labels: &labels, classes, parts: &parts };
    let solver = Solver::new(host, &rows, options.solver)?;
    let mut chosen = Choice::new(options, problems.len());
    let total = problems.len() * options.strengths.len() + 1;
    let mut visit = |fit: Fit| {
        // Each problem is named by the part that it does not see.
        if let Some(Some(part)) = problems.get(fit.problem) {
            let (predicted, labels) = solver.predict_part(*part, &fit);
            chosen.add(&fit, Accuracy::of(&predicted, labels, classes));
        }
    };
    let mut of_all = |at: PathProgress| progress(PathProgress { done: at.done, total });
    solver.path(&problems, &options.strengths, None, &mut visit, &mut of_all)?;
    let Choice { scores, mut starts, mut fits, mut converged, .. } = chosen;
    let best = first_best(&scores, options.metric);
    let start: Vec<f64> = std::mem::take(&mut starts[best]).into_iter().map(f64::from).collect();
    let mut last = None;
    let done = total - 1;
    let strength = options.strengths[best];
    let mut of_last = |at: PathProgress| progress(PathProgress { done: done + at.done, total });
    solver.path(&[None], &[strength], Some(&start), &mut |fit| last = Some(fit), &mut of_last)?;
    let Some(last) = last else { return Err(EvalError::Stopped) };
    (fits, converged) = (fits + 1, converged + usize::from(last.converged));
    let predicted = solver.classifier(&last).predict(host, &test.features().values)?;
    let test = Accuracy::of(&predicted, test.labels(), classes);
    Ok(TransferResult { test, best_strength: strength, scores, fits, converged, fitted_images: labels.len() })
}

/// Every class that is asked for has to be learnt.
fn check_members(learnt: &[u32], asked: &[u32], classes: usize) -> Result<(), EvalError> {
    let mut is_learnt = vec![false; classes];
    learnt.iter().for_each(|&label| is_learnt[label as usize] = true);
    match asked.iter().find(|&&label| !is_learnt[label as usize]) {
        Some(&class) => Err(EvalError::NoMember { class, of: "the training images".to_owned() }),
        None => Ok(()),
    }
}

/// The first of the largest.
fn first_best(scores: &[StrengthScore], metric: Metric) -> usize {
    let mut best = 0;
    for (at, score) in scores.iter().enumerate() {
        if score.accuracy.get(metric) > scores[best].accuracy.get(metric) {
            best = at;
        }
    }
    best
}

/// What is known of the strengths so far.
struct Choice {
    scores: Vec<StrengthScore>,
    /// Means over problems of the solutions: where the last fit begins.
    starts: Vec<Vec<f32>>,
    problems: f64,
    fits: usize,
    converged: usize,
}

impl Choice {
    fn new(options: &TransferOptions, problems: usize) -> Self {
        let accuracy = Accuracy { top1: 0.0, mean_per_class: 0.0 };
        let scores =
            options.strengths.iter().map(|&strength| StrengthScore { strength, accuracy, objective: 0.0 }).collect();
        let starts = vec![Vec::new(); options.strengths.len()];
        Self { scores, starts, problems: problems as f64, fits: 0, converged: 0 }
    }

    fn add(&mut self, fit: &Fit, accuracy: Accuracy) {
        self.scores[fit.strength].objective += fit.objective / self.problems;
        let mean = &mut self.scores[fit.strength].accuracy;
        mean.top1 += accuracy.top1 / self.problems;
        mean.mean_per_class += accuracy.mean_per_class / self.problems;
        let start = &mut self.starts[fit.strength];
        start.resize(fit.point().len(), 0.0);
        start.iter_mut().zip(fit.point()).for_each(|(sum, x)| *sum += (x / self.problems) as f32);
        self.fits += 1;
        self.converged += usize::from(fit.converged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Features;
    use random::{Key, Purpose};

    fn set(rows: usize, seed: u64) -> Features {
        let mut stream = Key::new(seed, Purpose::Bench).stream();
        let labels: Vec<u32> = (0..rows).map(|i| i as u32 % 4).collect();
        let value =
            |at: usize| 2.0 + stream.normal() as f32 + if at % 12 == labels[at / 12] as usize { 2.0 } else { 0.0 };
        Features::labelled(12, (0..rows * 12).map(value).collect(), &labels)
    }

    fn run(
        train: &Features,
        validation: Option<&Features>,
        test: &Features,
        selection: Selection,
    ) -> Result<TransferResult, EvalError> {
        let host = Device::cpu(Default::default()).unwrap();
        let (train, test) = Labelled::both(train, test)?;
        let validation = validation.map(|set| Labelled::new(set, "validation")).transpose()?;
        let options = TransferOptions { selection, ..Default::default() };
        evaluate(&host, &train, validation.as_ref(), &test, &options, &mut |_| ControlFlow::Continue(()))
    }

    #[test]
    fn strengths_are_those_of_torch() {
        let strengths = strengths();
        assert_eq!(strengths.len(), 45);
        // torch.logspace(-6, 5, 45)[[0, 10, 22, 44]]
        for (at, want) in [(0, 1e-6), (10, 3.162_277_5e-4), (22, 0.316_227_76), (44, 1e5)] {
            assert!((strengths[at] / want - 1.0).abs() < 1e-6, "{at}: {}", strengths[at]);
        }
    }

    #[test]
    fn both_selections_find_a_strength_between_the_ends() {
        let (train, test) = (set(160, 1), set(400, 2));
        for selection in [Selection::CrossValidation, Selection::HoldOut] {
            let result = run(&train, None, &test, selection).unwrap();
            let fits = if selection == Selection::HoldOut { 46 } else { 226 };
            assert_eq!(
                (result.fits, result.converged, result.scores.len(), result.fitted_images),
                (fits, fits, 45, 160)
            );
            assert!(result.test.top1 > 75.0, "{:?}", result.test);
            assert!((result.test.top1 - result.test.mean_per_class).abs() < 1e-9, "classes are of one size");
            let best = result.scores.iter().map(|score| score.accuracy.top1).fold(0.0, f64::max);
            let first = result.scores.iter().find(|score| score.accuracy.top1 == best).unwrap();
            assert_eq!(first.strength, result.best_strength, "the first of the best");
        }
    }

    #[test]
    fn validation_images_choose_and_then_are_learnt_from() {
        let (train, validation, test) = (set(80, 3), set(80, 4), set(200, 5));
        let held_out = run(&train, Some(&validation), &test, Selection::HoldOut).unwrap();
        assert_eq!((held_out.fits, held_out.fitted_images), (46, 160));
        let folds = run(&train, Some(&validation), &test, Selection::CrossValidation).unwrap();
        assert_eq!((folds.fits, folds.fitted_images), (226, 160));
    }

    #[test]
    fn sets_that_cannot_be_judged_are_refused() {
        let (train, test) = (set(40, 1), set(40, 2));
        let refused = |train: &Features, selection| run(train, None, &test, selection).unwrap_err();
        let mut lonely = Features::labelled(12, [&train.values[..], &[0.0; 12]].concat(), &[0; 41]);
        lonely.labels[..40].clone_from_slice(&train.labels);
        lonely.labels[40] = Some(7);
        let error = refused(&lonely, Selection::CrossValidation);
        assert!(matches!(error, EvalError::FoldWithoutClass { class: 7, members: 1 }), "{error}");
        let three: Vec<Option<u32>> = train.labels.iter().map(|label| label.map(|label| label % 3)).collect();
        let error = refused(&Features { labels: three, ..train.clone() }, Selection::HoldOut);
        assert!(matches!(error, EvalError::NoMember { class: 3, .. }), "{error}");
        let broken = Features { values: [&train.values[..479], &[f32::INFINITY]].concat(), ..train.clone() };
        assert!(matches!(refused(&broken, Selection::HoldOut), EvalError::NotFinite { .. }));
        let unlabelled = Features { labels: vec![None; 40], ..train.clone() };
        assert!(matches!(refused(&unlabelled, Selection::HoldOut), EvalError::NoLabels { .. }));
        let host = Device::cpu(Default::default()).unwrap();
        let (train, test) = Labelled::both(&train, &test).unwrap();
        for strengths in [vec![], vec![1.0, 0.5], vec![0.0, 1.0]] {
            let options = TransferOptions { strengths, ..Default::default() };
            let error = evaluate(&host, &train, None, &test, &options, &mut |_| ControlFlow::Continue(()));
            assert!(matches!(error, Err(EvalError::Setting { .. })));
        }
        let stop = evaluate(&host, &train, None, &test, &Default::default(), &mut |_| ControlFlow::Break(()));
        assert!(matches!(stop, Err(EvalError::Stopped)));
    }
}
