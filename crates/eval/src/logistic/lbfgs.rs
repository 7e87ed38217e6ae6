//! L-BFGS with a diagonal preconditioner (Nocedal and Wright, algorithm 7.5), of the kind that asks and is told.
//!
//! Our own, because none of the crates for it fits: `argmin`'s and the port of liblbfgs take the objective as a function
//! that is called back for one problem at a time, so that folds could not share a pass over the data, and neither has a
//! place for a preconditioner or lets the memory of one problem be carried over to the next one on the path. What is
//! left is the two loops below.

use std::collections::VecDeque;

use super::line_search::{LineSearch, Verdict};
use super::objective::Evaluation;

/// Numbers that the memory of one problem may hold.
const MEMORY: usize = 1 << 22;
/// A pair whose curvature is below this share of its lengths says nothing.
const LEAST_CURVATURE: f64 = 1e-12;

/// A step s, the change y of the gradient over it, and s^T y.
#[derive(Clone, Debug)]
struct Pair {
    step: Vec<f64>,
    change: Vec<f64>,
    product: f64,
}

/// What telling a value led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The step along the direction is not found yet.
    Searching,
    /// A step was taken, or the first point was told.
    Moved,
    /// No direction leads down further: the minimum to rounding.
    Stalled,
}

/// A minimisation under way.
#[derive(Clone, Debug)]
pub(super) struct Minimizer {
    /// The best point so far, and the objective there once it was told.
    best: Vec<f64>,
    at_best: Option<Evaluation>,
    pairs: VecDeque<Pair>,
    direction: Vec<f64>,
    slope: f64,
    search: LineSearch,
    trial: Vec<f64>,
    /// Differences of values below this share of the value mean nothing.
    noise: f64,
}

impl Minimizer {
    /// Starts at a point.
    pub(super) fn new(start: Vec<f64>, noise: f64) -> Self {
        let search = LineSearch::new(0.0, 0.0, 0.0);
        let (direction, trial) = (vec![0.0; start.len()], start.clone());
        Self { best: start, at_best: None, pairs: VecDeque::new(), direction, slope: 0.0, search, trial, noise }
    }

    /// Goes on from another point with another penalty, `more` than before on the parameters before `penalised`. The Hessian
    /// changes by just that on these, so the memory stays good.
    pub(super) fn restart(&mut self, start: Vec<f64>, more: f64, penalised: usize) {
        for pair in &mut self.pairs {
            for (y, s) in pair.change.iter_mut().zip(&pair.step).take(penalised) {
                *y += more * s;
            }
            pair.product = dot(&pair.step, &pair.change);
        }
        // A penalty that falls may take more curvature than rounding has left of a pair.
        self.pairs.retain(is_curved);
        self.trial.clone_from(&start);
        (self.best, self.at_best) = (start, None);
    }

    /// Where the objective is asked for.
    pub(super) fn trial(&self) -> &[f64] {
        &self.trial
    }

    /// The best point so far.
    pub(super) fn best(&self) -> &[f64] {
        &self.best
    }

    /// The objective there, once it is known.
    pub(super) fn at_best(&self) -> Option<&Evaluation> {
        self.at_best.as_ref()
    }

    /// How far the objective is above its minimum, by the quadratic model that the direction comes from.
    pub(super) fn gap(&self) -> f64 {
        -0.5 * self.slope
    }

    /// Takes the objective at [`Minimizer::trial`]. `inverse` is about the inverse of the Hessian's diagonal there.
    pub(super) fn tell(&mut self, evaluation: Evaluation, inverse: impl Fn(&Evaluation) -> Vec<f64>) -> Told {
        if let Some(before) = &self.at_best {
            match self.search.tell(evaluation.value, dot(&evaluation.gradient, &self.direction)) {
                Verdict::Try => {
                    self.aim();
                    return Told::Searching;
                }
                Verdict::Fail if self.pairs.is_empty() => return Told::Stalled,
                Verdict::Fail => {
                    // The memory may be what misleads.
                    let before = before.clone();
                    self.pairs.clear();
                    self.turn(&before, &inverse);
                    return if self.slope < 0.0 { Told::Searching } else { Told::Stalled };
                }
                Verdict::Accept => {
                    let difference = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<f64>>();
                    let step = difference(&self.trial, &self.best);
                    let change = difference(&evaluation.gradient, &before.gradient);
                    let pair = Pair { product: dot(&step, &change), step, change };
                    if is_curved(&pair) {
                        self.pairs.push_back(pair);
                    }
                    // Fewer for large problems, so that memory is bounded.
                    if self.pairs.len() > (MEMORY / self.best.len().max(1)).clamp(8, 24) {
                        self.pairs.pop_front();
                    }
                    self.best.clone_from(&self.trial);
                }
            }
        }
        self.turn(&evaluation, &inverse);
        self.at_best = Some(evaluation);
        if self.slope < 0.0 { Told::Moved } else { Told::Stalled }
    }

    /// Finds the direction from the best point and begins to search along it.
    fn turn(&mut self, at: &Evaluation, inverse: &impl Fn(&Evaluation) -> Vec<f64>) {
        let inverse = inverse(at);
        self.direction.clone_from(&at.gradient);
        let mut shares = Vec::with_capacity(self.pairs.len());
        for Pair { step, change, product } in self.pairs.iter().rev() {
            let share = dot(step, &self.direction) / product;
            add_scaled(&mut self.direction, -share, change);
            shares.push(share);
        }
        let scale = self.pairs.back().map_or(1.0, |Pair { change, product, .. }| {
            product / change.iter().zip(&inverse).map(|(y, h)| y * y * h).sum::<f64>()
        });
        self.direction.iter_mut().zip(&inverse).for_each(|(d, h)| *d *= scale * h);
        for (Pair { step, change, product }, share) in self.pairs.iter().zip(shares.into_iter().rev()) {
            let back = dot(change, &self.direction) / product;
            add_scaled(&mut self.direction, share - back, step);
        }
        self.direction.iter_mut().for_each(|d| *d = -*d);
        self.slope = dot(&at.gradient, &self.direction);
        self.search = LineSearch::new(at.value, self.slope, self.noise * at.value.abs());
        self.aim();
    }

    fn aim(&mut self) {
        let step = self.search.step();
        for ((trial, best), direction) in self.trial.iter_mut().zip(&self.best).zip(&self.direction) {
            *trial = best + step * direction;
        }
    }
}

fn is_curved(pair: &Pair) -> bool {
    pair.product > LEAST_CURVATURE * norm(&pair.step) * norm(&pair.change)
}

/// a^T b in a fixed order.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    simd::simd! {
        fn lanes(a: &[f64], b: &[f64]) -> f64 {
            let mut sums = [0.0; 16];
            for (a, b) in a.chunks(16).zip(b.chunks(16)) {
                for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
                    *sum += a * b;
                }
            }
            sums.iter().sum()
        }
    }
    lanes(a, b)
}

/// |a|.
pub(super) fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

fn add_scaled(a: &mut [f64], factor: f64, b: &[f64]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += factor * b);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rosenbrock's valley in ten dimensions.
    fn valley(x: &[f64]) -> Evaluation {
        let (mut value, mut gradient) = (0.0, vec![0.0; x.len()]);
        for i in 0..x.len() - 1 {
            let (a, b) = (x[i + 1] - x[i] * x[i], 1.0 - x[i]);
            value += 100.0 * a * a + b * b;
            gradient[i] += -400.0 * a * x[i] - 2.0 * b;
            gradient[i + 1] += 200.0 * a;
        }
        Evaluation { value, gradient, curvature: Vec::new() }
    }

    fn minimize(f: impl Fn(&[f64]) -> Evaluation, start: Vec<f64>, inverse: &[f64]) -> (Vec<f64>, usize) {
        let mut minimizer = Minimizer::new(start, 0.0);
        for asked in 1..2000 {
            let evaluation = f(minimizer.trial());
            let told = minimizer.tell(evaluation, |_| inverse.to_vec());
            let at = minimizer.at_best().unwrap();
            if told == Told::Stalled || told == Told::Moved && norm(&at.gradient) < 1e-9 {
                return (minimizer.best().to_vec(), asked);
            }
        }
        panic!("no end");
    }

    #[test]
    fn a_curved_valley_is_followed_to_its_end() {
        let (best, asked) = minimize(valley, vec![-1.2; 10], &[1.0; 10]);
        assert!(best.iter().all(|x| (x - 1.0).abs() < 1e-8), "{best:?}");
        assert!(asked < 300, "{asked}");
    }

    #[test]
    fn a_right_preconditioner_finds_the_minimum_of_a_parabola_at_once() {
        let scales: Vec<f64> = (0..12).map(|i| 10f64.powi(i - 6)).collect();
        let f = |x: &[f64]| {
            let gradient: Vec<f64> = x.iter().zip(&scales).map(|(x, s)| s * (x - 3.0)).collect();
            let value = x.iter().zip(&scales).map(|(x, s)| 0.5 * s * (x - 3.0) * (x - 3.0)).sum();
            Evaluation { value, gradient, curvature: Vec::new() }
        };
        let inverse: Vec<f64> = scales.iter().map(|s| 1.0 / s).collect();
        assert_eq!(minimize(f, vec![0.0; 12], &inverse).1, 2);
        assert!(minimize(f, vec![0.0; 12], &[1.0; 12]).1 > 20);
    }

    #[test]
    fn a_carried_memory_still_points_down_after_the_penalty_has_changed() {
        let with = |penalty: f64| {
            move |x: &[f64]| {
                let mut at = valley(x);
                at.value += 0.5 * penalty * dot(x, x);
                at.gradient.iter_mut().zip(x).for_each(|(g, x)| *g += penalty * x);
                at
            }
        };
        let mut minimizer = Minimizer::new(vec![0.5; 10], 1e-15);
        let run = |minimizer: &mut Minimizer, penalty: f64| {
            for asked in 1..2000 {
                let told = minimizer.tell(with(penalty)(minimizer.trial()), |_| vec![1.0; 10]);
                if told == Told::Stalled || norm(&minimizer.at_best().unwrap().gradient) < 1e-9 {
                    return asked;
                }
            }
            panic!("no end");
        };
        let first = run(&mut minimizer, 1.0);
        let start = minimizer.best().to_vec();
        minimizer.restart(start, 0.2, 10);
        let second = run(&mut minimizer, 1.2);
        assert!(norm(&minimizer.at_best().unwrap().gradient) < 1e-8);
        assert!(second < first, "{second} {first}");
    }
}
