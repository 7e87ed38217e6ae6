//! Value and gradient of the objective, for several problems in one pass over the data.
//!
//! f(W, b) = 1/n sum_i -ln softmax(W z_i + b)_{y_i} + alpha/2 |W|^2, alpha = strength / n: the sum over n divided by n, as
//! scikit-learn has it since 1.1, with C = 1 / strength. The intercept b is not penalised.
//!
//! A problem is fitted to all parts but one at most. Of a block of rows, the logits of all problems that it belongs to are
//! one matrix product, and so are their gradients: with five folds of ten classes a product has forty columns where one
//! problem alone has ten, too few for the processor to do more than read features.

use simd::simd;

use super::design::{Design, ROWS, split};
use super::scalar::{Matrix, Scalar, add_to, product, sum_in_order};

/// A problem and where it is to be evaluated.
#[derive(Clone, Copy)]
pub(super) struct Trial<'a> {
    /// The part that it does not see.
    pub(super) without: Option<usize>,
    /// Weights by class, then intercepts.
    pub(super) point: &'a [f64],
    /// alpha.
    pub(super) penalty: f64,
}

/// The objective at a point.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Evaluation {
    pub(super) value: f64,
    pub(super) gradient: Vec<f64>,
    /// mean_i p_ic (1 - p_ic) by class: the diagonal of the Hessian is about this times the features' second moments.
    pub(super) curvature: Vec<f64>,
}

impl<T: Scalar> Design<T> {
    /// Rows that a problem without this part is fitted to.
    pub(super) fn rows_of(&self, without: Option<usize>) -> usize {
        self.labels.len() - without.and_then(|part| self.parts.get(part)).map_or(0, ExactSizeIterator::len)
    }

    /// Evaluates all trials.
    pub(super) fn evaluate(&self, trials: &[Trial<'_>]) -> Vec<Evaluation> {
        let (dim, classes) = (self.dim, self.classes);
        // By part, the trials that see it, and their weights below each other in the type of the features.
        let packed: Vec<(Vec<usize>, Vec<T>)> = (0..self.parts.len())
            .map(|part| {
                let seeing: Vec<usize> = (0..trials.len()).filter(|&t| trials[t].without != Some(part)).collect();
                let weights = seeing.iter().flat_map(|&t| &trials[t].point[..classes * dim]);
                (seeing.clone(), weights.map(|&w| T::of(w)).collect())
            })
            .collect();
        // Of each trial: gradient by weight, by intercept, curvature by class, value.
        let size = classes * dim + 2 * classes + 1;
        let sums = sum_in_order(&self.pieces, trials.len() * size, |piece, sums| {
            let (seeing, weights) = &packed[piece.part];
            let columns = seeing.len() * classes;
            let mut logits = vec![T::ZERO; ROWS * columns];
            let mut gradient = vec![T::ZERO; dim * columns];
            let mut scratch = Scratch::new();
            for rows in split(piece.rows.clone(), ROWS) {
                let z = self.block(rows.clone());
                let logits = &mut logits[..rows.len() * columns];
                product(logits, z, Matrix::new(weights, columns, dim).transposed());
                for (&trial, logits) in seeing.iter().zip(logits.chunks_mut(rows.len() * classes)) {
                    let intercept = &trials[trial].point[classes * dim..];
                    let tail = &mut sums[trial * size + classes * dim..(trial + 1) * size];
                    let (by_intercept, tail) = tail.split_at_mut(classes);
                    let (curvature, value) = tail.split_at_mut(classes);
                    scratch.intercept.clear();
                    scratch.intercept.extend(intercept.iter().map(|&b| T::of(b)));
                    value[0] += residuals(logits, &self.labels[rows.clone()], &mut scratch, by_intercept, curvature);
                }
                product(&mut gradient, z.transposed(), Matrix::new(logits, columns, rows.len()).transposed());
                for (&trial, gradient) in seeing.iter().zip(gradient.chunks(dim * classes)) {
                    add_to(&mut sums[trial * size..][..classes * dim], gradient);
                }
            }
        });
        let finished = |(trial, sums): (&Trial<'_>, &[f64])| {
            let scale = 1.0 / self.rows_of(trial.without) as f64;
            let weights = &trial.point[..classes * dim];
            let mut gradient: Vec<f64> = sums[..self.parameters()].iter().map(|sum| scale * sum).collect();
            gradient.iter_mut().zip(weights).for_each(|(g, w)| *g += trial.penalty * w);
            let squares: f64 = weights.iter().map(|w| w * w).sum();
            let curvature = sums[size - 1 - classes..size - 1].iter().map(|sum| scale * sum).collect();
            Evaluation { value: scale * sums[size - 1] + 0.5 * trial.penalty * squares, gradient, curvature }
        };
        trials.iter().zip(sums.chunks(size)).map(finished).collect()
    }

    /// The class of the largest logit of every row of a part; the lowest of equal ones.
    pub(super) fn predict(&self, part: usize, point: &[f64]) -> Vec<u32> {
        let (dim, classes) = (self.dim, self.classes);
        let weights: Vec<T> = point[..classes * dim].iter().map(|&w| T::of(w)).collect();
        let intercept: Vec<T> = point[classes * dim..].iter().map(|&b| T::of(b)).collect();
        let rows = self.parts[part].clone();
        largest_logits(&self.values[rows.start * dim..rows.end * dim], dim, classes, &weights, &intercept)
    }
}

/// The class of the largest logit of each row; the lowest of equal ones.
pub(super) fn largest_logits<T: Scalar>(
    values: &[T],
    dim: usize,
    classes: usize,
    weights: &[T],
    intercept: &[T],
) -> Vec<u32> {
    use rayon::prelude::*;
    let of_block = |values: &[T]| {
        let rows = values.len() / dim;
        let mut logits = vec![T::ZERO; rows * classes];
        let weights = Matrix::new(weights, classes, dim);
        product(&mut logits, Matrix::new(values, rows, dim), weights.transposed());
        let (mut best, mut largest) = (vec![0; rows], vec![T::LOWEST; rows]);
        for (class, logits) in logits.chunks(rows).enumerate() {
            let shift = intercept.get(class).copied().unwrap_or(T::ZERO);
            for ((best, largest), &logit) in best.iter_mut().zip(&mut largest).zip(logits) {
                if logit.add(shift) > *largest {
                    (*best, *largest) = (class as u32, logit.add(shift));
                }
            }
        }
        best
    };
    values.par_chunks(ROWS * dim).flat_map_iter(of_block).collect()
}

/// Rows of numbers that a block needs besides its logits.
struct Scratch<T> {
    intercept: Vec<T>,
    of_label: Vec<T>,
    largest: Vec<T>,
    others: Vec<T>,
    inverse: Vec<T>,
}

impl<T> Scratch<T> {
    fn new() -> Self {
        let (intercept, of_label, largest) = (Vec::new(), Vec::new(), Vec::new());
        Self { intercept, of_label, largest, others: Vec::new(), inverse: Vec::new() }
    }
}

/// Turns logits, class by class, into the gradients p - y of the cross-entropies, whose sum is returned. Adds sums of
/// p - y and p (1 - p) by class.
///
/// With e the exponentials of the logits less the largest, and r = sum of e over the classes other than the label: the
/// cross-entropy is ln(1 + r / e_y) and its gradient by the label's logit -r / (r + e_y). Nothing cancels in these, so that
/// a row that is classified with near certainty has as many right digits as others; weakly penalised problems are made of such rows.
fn residuals<T: Scalar>(
    logits: &mut [T],
    labels: &[u32],
    scratch: &mut Scratch<T>,
    by_intercept: &mut [f64],
    curvature: &mut [f64],
) -> f64 {
    let rows = labels.len();
    let Scratch { intercept, of_label, largest, others, inverse } = scratch;
    for (column, &shift) in logits.chunks_mut(rows).zip(intercept.iter()) {
        column.iter_mut().for_each(|x| *x = x.add(shift));
    }
    of_label.clear();
    for (row, &label) in labels.iter().enumerate() {
        let logit = &mut logits[label as usize * rows + row];
        of_label.push(*logit);
        *logit = T::LOWEST;
    }
    largest.clear();
    largest.extend_from_slice(of_label);
    others.clear();
    others.resize(rows, T::ZERO);
    exponentials(logits, largest, others);
    let mut value = 0.0;
    inverse.clear();
    for ((&of_label, &largest), &others) in of_label.iter().zip(largest.iter()).zip(others.iter()) {
        let below = of_label.sub(largest);
        let of_label = below.exp_of_negative().wide();
        let sum = of_label + others.wide();
        value += match of_label > 1e-30 {
            true => (others.wide() / of_label).ln_1p(),
            // The label's exponential is lost beside the others'.
            false => sum.ln() - below.wide(),
        };
        inverse.push(T::of(1.0 / sum));
    }
    for ((column, by_intercept), curvature) in logits.chunks_mut(rows).zip(by_intercept.iter_mut()).zip(&mut *curvature)
    {
        let (sum, squares) = probabilities(column, inverse);
        *by_intercept += sum;
        *curvature += sum - squares;
    }
    for (row, &label) in labels.iter().enumerate() {
        let label = label as usize;
        let missing = others[row].mul(inverse[row]);
        logits[label * rows + row] = T::ZERO.sub(missing);
        by_intercept[label] -= missing.wide();
        curvature[label] += missing.wide() * (1.0 - missing.wide());
    }
    value
}

/// Raises `largest` to the largest logit, replaces logits by exponentials of what they are below it, and adds these up.
fn exponentials<T: Scalar>(logits: &mut [T], largest: &mut [T], sums: &mut [T]) {
    simd! {
        fn raise<T: Scalar>(largest: &mut [T], logits: &[T]) {
            for (largest, &logit) in largest.iter_mut().zip(logits) {
                *largest = if logit > *largest { logit } else { *largest };
            }
        }
    }
    simd! {
        fn exponentiate<T: Scalar>(logits: &mut [T], largest: &[T], sums: &mut [T]) {
            for ((logit, &largest), sum) in logits.iter_mut().zip(largest).zip(sums) {
                *logit = logit.sub(largest).exp_of_negative();
                *sum = sum.add(*logit);
            }
        }
    }
    let rows = largest.len();
    logits.chunks(rows).for_each(|column| raise(largest, column));
    logits.chunks_mut(rows).for_each(|column| exponentiate(column, largest, sums));
}

/// Multiplies exponentials by the inverse of their sum; returns the sums of the probabilities and of their squares.
fn probabilities<T: Scalar>(column: &mut [T], inverse: &[T]) -> (f64, f64) {
    simd! {
        fn scale<T: Scalar>(column: &mut [T], inverse: &[T]) -> (f64, f64) {
            const LANES: usize = 16;
            let (mut sums, mut squares) = ([T::ZERO; LANES], [T::ZERO; LANES]);
            for (column, inverse) in column.chunks_mut(LANES).zip(inverse.chunks(LANES)) {
                for (lane, (x, &inverse)) in column.iter_mut().zip(inverse).enumerate() {
                    *x = x.mul(inverse);
                    sums[lane] = sums[lane].add(*x);
                    squares[lane] = squares[lane].add(x.mul(*x));
                }
            }
            let total = |lanes: &[T]| lanes.iter().map(|x| x.wide()).sum();
            (total(&sums), total(&squares))
        }
    }
    scale(column, inverse)
}

#[cfg(test)]
mod tests {
    use super::super::design::Rows;
    use super::*;
    use random::{Key, Purpose};

    struct Case {
        dim: usize,
        classes: usize,
        values: Vec<f32>,
        labels: Vec<u32>,
        parts: Vec<usize>,
    }

    fn case(count: usize, dim: usize, classes: usize) -> Case {
        let mut stream = Key::new(1, Purpose::Bench).stream();
        let values = (0..count * dim).map(|_| 0.5 + stream.normal() as f32).collect();
        let labels = (0..count).map(|_| stream.below(classes as u64) as u32).collect();
        Case { dim, classes, values, labels, parts: (0..count).map(|i| i % 3).collect() }
    }

    impl Case {
        fn design<T: Scalar>(&self, intercept: bool) -> Design<T> {
            let Case { dim, classes, .. } = *self;
            let (values, labels, parts) = (&self.values[..], &self.labels[..], &self.parts[..]);
            Design::new(&Rows { dim, values, labels, classes, parts }, intercept)
        }

        /// The objective by its definition, on the features as they were given: the oracle.
        fn plain(&self, weights: &[f64], intercept: &[f64], without: Option<usize>, penalty: f64) -> f64 {
            let rows: Vec<usize> = (0..self.labels.len()).filter(|&i| Some(self.parts[i]) != without).collect();
            let loss = |&i: &usize| {
                let x = &self.values[i * self.dim..(i + 1) * self.dim];
                let logit = |c: usize| {
                    let w = &weights[c * self.dim..(c + 1) * self.dim];
                    intercept[c] + w.iter().zip(x).map(|(w, &x)| w * f64::from(x)).sum::<f64>()
                };
                let sum: f64 = (0..self.classes).map(|c| logit(c).exp()).sum();
                sum.ln() - logit(self.labels[i] as usize)
            };
            let squares: f64 = weights.iter().map(|w| w * w).sum();
            rows.iter().map(loss).sum::<f64>() / rows.len() as f64 + 0.5 * penalty * squares
        }
    }

    fn point(parameters: usize, seed: u64) -> Vec<f64> {
        let mut stream = Key::new(seed, Purpose::Bench).stream();
        (0..parameters).map(|_| 0.3 * stream.normal()).collect()
    }

    #[test]
    fn the_value_is_that_of_the_definition_on_features_as_they_were() {
        let case = case(700, 7, 4);
        for (intercept, without) in [(true, None), (true, Some(1)), (false, Some(0))] {
            let design = case.design::<f64>(intercept);
            let single = case.design::<f32>(intercept);
            let point = point(design.parameters(), 3);
            let trial = Trial { without, point: &point, penalty: 0.01 };
            let value = design.evaluate(&[trial])[0].value;
            let (weights, shifts) = design.original(&point);
            let plain = case.plain(&weights, &shifts, without, 0.01);
            assert!((value / plain - 1.0).abs() < 1e-12, "{value} {plain}");
            assert!((single.evaluate(&[trial])[0].value / plain - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn the_gradient_is_that_of_differences() {
        let case = case(500, 5, 3);
        for (intercept, without) in [(true, Some(2)), (false, None)] {
            let design = case.design::<f64>(intercept);
            let point = point(design.parameters(), 4);
            let at = |point: &[f64]| design.evaluate(&[Trial { without, point, penalty: 0.02 }]).remove(0);
            let Evaluation { gradient, .. } = at(&point);
            for i in 0..point.len() {
                let moved = |by: f64| {
                    let mut moved = point.clone();
                    moved[i] += by;
                    at(&moved).value
                };
                let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                assert!((gradient[i] - slope).abs() < 1e-9, "{i}: {} {slope}", gradient[i]);
            }
        }
    }

    #[test]
    fn curvature_is_the_mean_variance_of_a_class() {
        let case = case(300, 4, 3);
        let design = case.design::<f64>(true);
        let zeros = vec![0.0; design.parameters()];
        let evaluation = design.evaluate(&[Trial { without: None, point: &zeros, penalty: 0.0 }]).remove(0);
        assert!(evaluation.curvature.iter().all(|c| (c - 2.0 / 9.0).abs() < 1e-12), "{evaluation:?}");
        assert!((evaluation.value - 3f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn problems_side_by_side_and_threads_change_nothing() {
        let case = case(900, 6, 3);
        let design = case.design::<f32>(true);
        let points: Vec<Vec<f64>> = (0..3).map(|seed| point(design.parameters(), seed)).collect();
        let trial = |part: usize| Trial { without: Some(part), point: &points[part], penalty: 0.1 };
        let run = |threads: usize, trials: &[Trial<'_>]| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| design.evaluate(trials))
        };
        let together = run(1, &[trial(0), trial(1), trial(2)]);
        assert_eq!(together, run(3, &[trial(0), trial(1), trial(2)]));
        for (part, together) in together.iter().enumerate() {
            let alone = run(2, &[trial(part)]).remove(0);
            assert!((together.value / alone.value - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn certain_rows_keep_their_digits() {
        // Logits far apart: the cross-entropy is e^-40 for one label and 40 for the other; e^-200 underflows in f32.
        for gap in [40.0f32, 200.0] {
            let mut logits = vec![gap, gap, 0.0, 0.0];
            let (mut by_intercept, mut curvature) = ([0.0; 2], [0.0; 2]);
            let mut scratch = Scratch { intercept: vec![0.0; 2], ..Scratch::new() };
            let value = residuals(&mut logits[..], &[0, 1], &mut scratch, &mut by_intercept, &mut curvature);
            assert!((value - f64::from(gap)).abs() < 1e-5, "{value}");
            let missing = f64::from(-gap).exp();
            assert!((f64::from(-logits[0]) - missing).abs() <= 1e-6 * missing + 1e-37, "{logits:?}");
            assert!((logits[3] + 1.0).abs() < 1e-6 && (logits[1] - 1.0).abs() < 1e-6, "{logits:?}");
        }
    }
}
