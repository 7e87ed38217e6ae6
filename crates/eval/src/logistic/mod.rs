//! Multinomial logistic regression: min over W, b of sum_i -ln softmax(W x_i + b)_{y_i} + s/2 |W|^2, with s the strength of
//! the penalty. In scikit-learn's words C = 1 / s, and its objective is this one divided by s.
//!
//! The protocols ask for many related problems: 45 strengths times five folds. Where the time goes is passes over the
//! features, so there are few of them and each does much: problems share a pass (`objective`), coordinates are
//! chosen so that few are needed (`design`), and each problem starts from its neighbour on the path (`path`).
//!
//! Products are f32 for many features and f64 for few; sums over blocks of rows, the parameters and everything that the
//! minimiser does are f64. Few features are told apart without error by weakly penalised weights, and what is left of their
//! objective is smaller than what f32 rounds away.

mod design;
mod eigen;
mod lbfgs;
mod line_search;
mod objective;
mod path;
mod scalar;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use rayon::ThreadPool;
use tensor::{DType, Device};

use crate::error::EvalError;
use design::Design;
pub use design::Rows;

/// How exactly a problem is solved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogisticOptions {
    /// Whether there is a b, which is not penalised.
    pub intercept: bool,
    /// The largest element that the gradient of the objective, divided by the number of rows, may have at the end:
    /// scikit-learn's `tol`.
    pub tolerance: f64,
    /// The share of the objective by which it may be above its minimum at the end, as the minimiser estimates it; a
    /// tenth of it where products are f64, and down to a tenth of that for strengths below 1e-5. On real features the share was up to a hundred times what is estimated.
    pub gap: f64,
    /// Steps for one strength, at most: scikit-learn's `max_iter`. Few images of many values need some thousands for a weak penalty.
    pub max_iterations: usize,
}

impl Default for LogisticOptions {
    fn default() -> Self {
        Self { intercept: true, tolerance: 1e-4, gap: 1e-9, max_iterations: 10_000 }
    }
}

impl LogisticOptions {
    fn check(&self) -> Result<(), EvalError> {
        for (setting, value) in [("tolerance", self.tolerance), ("gap", self.gap)] {
            if !(value.is_finite() && value > 0.0) {
                let expected = "a number above 0".to_owned();
                return Err(EvalError::Setting { setting, value: value.to_string(), expected });
            }
        }
        if self.max_iterations == 0 {
            let expected = "at least 1".to_owned();
            return Err(EvalError::Setting { setting: "max-iterations", value: "0".to_owned(), expected });
        }
        Ok(())
    }
}

/// Values of all features up to which products are f64, where they cost little.
const FEW_VALUES: usize = 1 << 22;

/// How far a path has been walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathProgress {
    /// Fits that are done.
    pub done: usize,
    /// Fits there will be.
    pub total: usize,
}

/// The solution of one problem with one strength.
#[derive(Clone, Debug)]
pub struct Fit {
    /// Index of the problem.
    pub problem: usize,
    /// Index of the strength.
    pub strength: usize,
    /// The value of the objective.
    pub objective: f64,
    /// An upper bound of the gradient's length, divided by the number of rows.
    pub gradient: f64,
    /// The share of the objective by which it is above its minimum, as the minimiser estimates it.
    pub gap: f64,
    /// Steps taken.
    pub iterations: usize,
    /// Times that the objective was evaluated.
    pub evaluations: usize,
    /// Whether the tolerances are met, or rounding lets it come no nearer.
    pub converged: bool,
    /// Parameters in the solver's own coordinates.
    point: Vec<f64>,
}

impl Fit {
    /// The parameters in the solver's own coordinates: what another path of the same solver may start from.
    pub fn point(&self) -> &[f64] {
        &self.point
    }
}

/// A fitted classifier.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearClassifier {
    /// Values of a feature vector.
    pub dim: usize,
    /// W, one row a class.
    pub weights: Vec<f64>,
    /// b, of mean zero; zeros where there is none.
    pub intercept: Vec<f64>,
}

impl LinearClassifier {
    /// The class of the largest logit of each feature vector, the lowest of equal ones; on the threads of `host`.
    ///
    /// # Panics
    /// When `values` is not made of vectors of the classifier's length.
    pub fn predict(&self, host: &Device, values: &[f32]) -> Result<Vec<u32>, EvalError> {
        assert_eq!(values.len() % self.dim.max(1), 0, "vectors of {} values", self.dim);
        let classes = self.intercept.len();
        let narrow = |values: &[f64]| values.iter().map(|&x| x as f32).collect::<Vec<f32>>();
        let (weights, intercept) = (narrow(&self.weights), narrow(&self.intercept));
        Ok(threads(host)?.install(|| objective::largest_logits(values, self.dim, classes, &weights, &intercept)))
    }
}

/// Rows in the solver's coordinates, in the precision of the device.
enum Prepared {
    Single(Design<f32>),
    Double(Design<f64>),
}

/// Runs the same on either precision.
macro_rules! prepared {
    ($self:expr, $design:ident => $body:expr) => {
        match &$self.prepared {
            Prepared::Single($design) => $body,
            Prepared::Double($design) => $body,
        }
    };
}

/// Rows that are ready to be fitted to.
pub struct Solver {
    prepared: Prepared,
    pool: ThreadPool,
    options: LogisticOptions,
}

impl std::fmt::Debug for Solver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Solver").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A pool with as many threads as the device.
fn threads(host: &Device) -> Result<ThreadPool, EvalError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(host.threads()).build();
    pool.map_err(|error| EvalError::Thread { reason: error.to_string() })
}

impl Solver {
    /// Prepares rows. Everything will run on the threads of `host`, and in f64 if that is its precision.
    ///
    /// # Panics
    /// When `host` is a GPU, or there are not as many labels and parts as vectors.
    pub fn new(host: &Device, rows: &Rows<'_>, options: LogisticOptions) -> Result<Self, EvalError> {
        assert!(!host.is_gpu(), "logistic regression runs on the host");
        options.check()?;
        check_rows(rows)?;
        let pool = threads(host)?;
        let is_double = host.dtype() == DType::F64 || rows.values.len() <= FEW_VALUES;
        let prepared = pool.install(|| match is_double {
            true => Prepared::Double(Design::new(rows, options.intercept)),
            false => Prepared::Single(Design::new(rows, options.intercept)),
        });
        Ok(Self { prepared, pool, options })
    }

    /// Fits every problem with every strength, strongest first, and hands each fit to `visit`. A problem is the part that is
    /// left out of its rows, or none. `start` is where all begin: a fit's point, or none for the usual one.
    ///
    /// # Panics
    /// When a problem names a part that there is not, or `start` has not the right length.
    pub fn path(
        &self,
        problems: &[Option<usize>],
        strengths: &[f64],
        start: Option<&[f64]>,
        visit: &mut (dyn FnMut(Fit) + Send),
        progress: &mut (dyn FnMut(PathProgress) -> ControlFlow<()> + Send),
    ) -> Result<(), EvalError> {
        if let Some(strength) = strengths.iter().find(|s| !(s.is_finite() && **s > 0.0)) {
            let expected = "a number above 0".to_owned();
            return Err(EvalError::Setting { setting: "strength", value: strength.to_string(), expected });
        }
        prepared!(self, design => {
            assert!(problems.iter().flatten().all(|&part| part < design.parts.len()), "a part that is there");
            assert!(start.is_none_or(|start| start.len() == design.parameters()), "a point of this solver");
            for &problem in problems {
                if design.rows_of(problem) == 0 {
                    return Err(EvalError::Empty { which: "training" });
                }
            }
        });
        let options = &self.options;
        let tight = LogisticOptions { gap: 0.1 * options.gap, ..*options };
        let walked = self.pool.install(|| match &self.prepared {
            // What f32 leaves of the value's digits after the sum over rows.
            Prepared::Single(design) => path::walk(design, problems, strengths, start, options, 3e-8, visit, progress),
            Prepared::Double(design) => path::walk(design, problems, strengths, start, &tight, 1e-15, visit, progress),
        });
        if walked.is_break() { Err(EvalError::Stopped) } else { Ok(()) }
    }

    /// Fits all rows with one strength.
    pub fn fit(&self, strength: f64, start: Option<&[f64]>) -> Result<Fit, EvalError> {
        let mut found = None;
        self.path(&[None], &[strength], start, &mut |fit| found = Some(fit), &mut |_| ControlFlow::Continue(()))?;
        // One problem and one strength make one fit.
        found.ok_or(EvalError::Stopped)
    }

    /// The classes that a fit gives to the rows of a part, and those rows' labels, both in the order of the part.
    pub fn predict_part(&self, part: usize, fit: &Fit) -> (Vec<u32>, &[u32]) {
        prepared!(self, design => {
            let predicted = self.pool.install(|| design.predict(part, &fit.point));
            (predicted, &design.labels[design.parts[part].clone()])
        })
    }

    /// The classifier of a fit, for features as they were given.
    pub fn classifier(&self, fit: &Fit) -> LinearClassifier {
        prepared!(self, design => {
            let (weights, intercept) = self.pool.install(|| design.original(&fit.point));
            LinearClassifier { dim: design.dim, weights, intercept }
        })
    }
}

/// Refuses rows that no classifier can be fitted to.
fn check_rows(rows: &Rows<'_>) -> Result<(), EvalError> {
    if rows.labels.is_empty() {
        return Err(EvalError::Empty { which: "training" });
    }
    if rows.dim == 0 || rows.classes < 2 {
        let (setting, value) = if rows.dim == 0 { ("values of a feature", 0) } else { ("classes", rows.classes) };
        let expected = if rows.dim == 0 { "at least 1" } else { "at least 2" }.to_owned();
        return Err(EvalError::Setting { setting, value: value.to_string(), expected });
    }
    if let Some(row) = rows.values.chunks(rows.dim).position(|row| row.iter().any(|x| !x.is_finite())) {
        return Err(EvalError::NotFinite { name: format!("training image {row}") });
    }
    if let Some(&label) = rows.labels.iter().find(|&&label| label as usize >= rows.classes) {
        return Err(EvalError::Label { which: "training", label: i64::from(label), classes: rows.classes });
    }
    Ok(())
}
