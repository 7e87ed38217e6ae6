//! Problems solved along a path of strengths, side by side.
//!
//! Each problem goes from the strongest penalty, whose solution is near zero, to the weakest at its own pace. It starts at
//! the line through its last two solutions, which are smooth in the logarithm of the strength, and keeps what L-BFGS has
//! learnt about the curvature.

use std::ops::ControlFlow;

use super::design::Design;
use super::lbfgs::{Minimizer, Told, norm};
use super::objective::{Evaluation, Trial};
use super::scalar::Scalar;
use super::{Fit, LogisticOptions, PathProgress};

/// Share of the mean curvature of classes that the curvature of one class is taken for at least, so that a class which is told
/// apart with certainty gets no endless first step.
const LEAST_CURVATURE: f64 = 1e-4;

/// Points in a row at which the estimated gap has to be small enough. The estimate is that of a quadratic model, and each
/// step makes the model better in the direction that it knew least about.
const SURE: usize = 3;

/// Strength below which the gap has to be smaller in proportion, down to a tenth: what such a penalty leaves flat, the model
/// knows least about.
const WEAK: f64 = 1e-5;

/// One problem on its way.
struct Walker<'a> {
    problem: usize,
    without: Option<usize>,
    rows: f64,
    /// Index into the strengths in order of the path.
    at: usize,
    minimizer: Minimizer,
    iterations: usize,
    evaluations: usize,
    /// Points in a row with a small gap.
    sure: usize,
    /// Logarithm of the strength before this one, and the solution there.
    last: Option<(f64, Vec<f64>)>,
    path: &'a [usize],
}

/// Fits every problem (the part that it does not see) with every strength. `visit` gets the fits as they come, `progress` is
/// called after every pass. Returns whether the path was walked to its end.
pub(super) fn walk<T: Scalar>(
    design: &Design<T>,
    problems: &[Option<usize>],
    strengths: &[f64],
    start: Option<&[f64]>,
    options: &LogisticOptions,
    noise: f64,
    visit: &mut dyn FnMut(Fit),
    progress: &mut dyn FnMut(PathProgress) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut path: Vec<usize> = (0..strengths.len()).collect();
    path.sort_by(|&a, &b| strengths[b].total_cmp(&strengths[a]));
    let begin = |(problem, &without): (usize, &Option<usize>)| {
        let start = start.map_or_else(|| beginning(design, without), <[f64]>::to_vec);
        let rows = design.rows_of(without) as f64;
        let minimizer = Minimizer::new(start, noise);
        Walker {
            problem,
            without,
            rows,
            at: 0,
            minimizer,
            iterations: 0,
            evaluations: 0,
            sure: 0,
            last: None,
            path: &path,
        }
    };
    let mut walkers: Vec<Walker<'_>> = problems.iter().enumerate().map(begin).collect();
    if strengths.is_empty() {
        walkers.clear();
    }
    let (mut done, total) = (0, problems.len() * strengths.len());
    while !walkers.is_empty() {
        let trials: Vec<Trial<'_>> = walkers.iter().map(|walker| walker.trial(strengths)).collect();
        let evaluations = design.evaluate(&trials);
        let mut going = Vec::with_capacity(walkers.len());
        for (mut walker, evaluation) in walkers.into_iter().zip(evaluations) {
            let fit = walker.tell(design, strengths, evaluation, options);
            let is_fit = fit.is_some();
            if let Some(fit) = fit {
                done += 1;
                visit(fit);
            }
            if !is_fit || walker.next(design, strengths) {
                going.push(walker);
            }
        }
        walkers = going;
        progress(PathProgress { done, total })?;
    }
    ControlFlow::Continue(())
}

/// No weights, and the logarithms of the classes' shares: the solution for an endless penalty.
fn beginning<T: Scalar>(design: &Design<T>, without: Option<usize>) -> Vec<f64> {
    let mut point = vec![0.0; design.parameters()];
    let mut counts = vec![0usize; design.classes];
    for (_, rows) in design.parts.iter().enumerate().filter(|(part, _)| Some(*part) != without) {
        design.labels[rows.clone()].iter().for_each(|&label| counts[label as usize] += 1);
    }
    // A class without a row would be at minus infinity.
    let logs: Vec<f64> = counts.iter().map(|&count| (count as f64).max(0.5).ln()).collect();
    let mean = logs.iter().sum::<f64>() / logs.len().max(1) as f64;
    point[design.classes * design.dim..].iter_mut().zip(logs).for_each(|(b, log)| *b = log - mean);
    point
}

impl Walker<'_> {
    fn penalty(&self, strengths: &[f64]) -> f64 {
        strengths[self.path[self.at]] / self.rows
    }

    fn trial(&self, strengths: &[f64]) -> Trial<'_> {
        Trial { without: self.without, point: self.minimizer.trial(), penalty: self.penalty(strengths) }
    }

    /// Takes an evaluation; the fit, if this was the last that it needed.
    fn tell<T: Scalar>(
        &mut self,
        design: &Design<T>,
        strengths: &[f64],
        evaluation: Evaluation,
        options: &LogisticOptions,
    ) -> Option<Fit> {
        let penalty = self.penalty(strengths);
        self.evaluations += 1;
        let told = self.minimizer.tell(evaluation, |at| inverse(design, at, penalty));
        self.iterations += usize::from(told == Told::Moved);
        let at_best = self.minimizer.at_best()?;
        let gradient = gradient_bound(design, at_best);
        let gap = self.minimizer.gap() / at_best.value.abs().max(f64::MIN_POSITIVE);
        let allowed_gap = options.gap * (strengths[self.path[self.at]] / WEAK).clamp(0.1, 1.0);
        if told == Told::Moved {
            self.sure = if gap <= allowed_gap { self.sure + 1 } else { 0 };
        }
        let is_converged = told == Told::Moved && self.sure >= SURE && gradient <= options.tolerance;
        if told == Told::Searching || told == Told::Moved && !is_converged && self.iterations <= options.max_iterations
        {
            return None;
        }
        Some(Fit {
            problem: self.problem,
            strength: self.path[self.at],
            // The sum over rows, not the mean.
            objective: self.rows * at_best.value,
            gradient,
            gap,
            iterations: self.iterations.saturating_sub(1),
            evaluations: self.evaluations,
            // A search that finds nothing better has come as far as the precision lets it.
            converged: is_converged || told == Told::Stalled && gradient <= options.tolerance,
            point: self.minimizer.best().to_vec(),
        })
    }

    /// Turns to the next strength; false behind the last.
    fn next<T: Scalar>(&mut self, design: &Design<T>, strengths: &[f64]) -> bool {
        let Some(&next) = self.path.get(self.at + 1) else { return false };
        let (here, there) = (strengths[self.path[self.at]], strengths[next]);
        let solution = self.minimizer.best().to_vec();
        let mut start = solution.clone();
        if let Some((before, last)) = &self.last {
            let share = (there.ln() - here.ln()) / (here.ln() - before);
            if share.is_finite() {
                start.iter_mut().zip(last).for_each(|(x, last)| *x += share * (*x - last));
            }
        }
        self.last = Some((here.ln(), solution));
        self.minimizer.restart(start, (there - here) / self.rows, design.classes * design.dim);
        self.at += 1;
        (self.iterations, self.evaluations, self.sure) = (0, 0, 0);
        true
    }
}

/// The inverse of about the Hessian's diagonal: curvature of the class times second moment of the coordinate, and the penalty.
fn inverse<T: Scalar>(design: &Design<T>, at: &Evaluation, penalty: f64) -> Vec<f64> {
    let mean = at.curvature.iter().sum::<f64>() / at.curvature.len().max(1) as f64;
    let curvature = |class: usize| at.curvature[class].max(LEAST_CURVATURE * mean).max(f64::MIN_POSITIVE);
    let of_class = |class: usize| {
        let curvature = curvature(class);
        design.moments.iter().map(move |moment| 1.0 / (curvature * moment + penalty).max(1e-300))
    };
    let intercepts = if design.intercept { design.classes } else { 0 };
    (0..design.classes).flat_map(of_class).chain((0..intercepts).map(|class| 1.0 / curvature(class))).collect()
}

/// An upper bound of the gradient's length, and so of its largest element, by the parameters of features as they were given:
/// V^T turns it without changing its length, and the mean comes back as mean times the gradient by the intercept.
fn gradient_bound<T: Scalar>(design: &Design<T>, at: &Evaluation) -> f64 {
    let (by_weight, by_intercept) = at.gradient.split_at(design.classes * design.dim);
    norm(by_weight) + (1.0 + norm(&design.mean)) * norm(by_intercept)
}
