//! Mixtures of von Mises-Fisher distributions fitted by expectation-maximisation (Banerjee et al. 2005, there `movMF`).
//!
//! Over points y_i on the sphere, with components (pi_k, mu_k, kappa_k), one iteration is
//!
//! ```text
//! E, soft   r_ik ~ pi_k C_p(kappa_k) exp(kappa_k <mu_k, y_i>), summing to 1 over k        Eq. (2)
//! E, hard   r_ik = 1 for the largest of these, 0 for the others
//! M         N_k = sum_i r_ik      S_k = sum_i r_ik y_i      pi_k = N_k / N      mu_k = S_k / |S_k|
//!           A_p(kappa_k) = |S_k| / N_k,  or for a shared kappa  A_p(kappa) = sum_k |S_k| / N
//! ```
//!
//! with `A_p` inverted exactly ([`crate::estimate_kappa`]), not by the usual approximation: every M-step is then the maximum
//! of its bound, and the objective (soft: the mean log-likelihood; hard: the mean over points of
//! `max_k log pi_k f_k(y_i)`, that of classification EM) never falls.
//!
//! **What keeps it finite.** The likelihood of a component on one point, or on copies of one, grows without end; no kappa
//! goes beyond [`FitOptions::largest_kappa`]. In kappa the bound is concave, so that the limit is the best allowed
//! value there and the objective still never falls. A component that nobody belongs to any more is given up: its
//! weight is zero from then on. To move it elsewhere could make the objective fall.
//!
//! This module is the algorithm and nothing else. Its work is two matrix products a pass, over points that can be
//! millions; who multiplies is behind the trait [`Points`], for this crate is below the one that has the products and the
//! threads. [`PointMatrix`] is the plain implementation of it.

mod maximize;
mod options;
mod points;
mod start;

use crate::{Error, log_normalizer};

pub use options::{Assignment, FitOptions};
pub use points::{Assigned, PointMatrix, Points, Sums};

/// A mixture with everything that belongs to it: weights, mean directions and concentrations.
#[derive(Clone, Debug, PartialEq)]
pub struct VmfMixture {
    dimension: usize,
    weights: Vec<f64>,
    means: Vec<f64>,
    kappas: Vec<f64>,
    /// `log pi_k + log C_p(kappa_k)`.
    offsets: Vec<f64>,
}

impl VmfMixture {
    /// The mixture of these weights, which are divided by their sum, directions (`p` numbers each, divided by their
    /// length) and concentrations.
    pub fn new(dimension: usize, weights: &[f64], directions: &[f64], kappas: &[f64]) -> Result<Self, Error> {
        let components = kappas.len();
        if dimension < 2 {
            return Err(Error::Dimension { p: dimension });
        }
        let lengths =
            [("weights", weights.len()), ("coordinates of directions, by dimension,", directions.len() / dimension)];
        for (what, found) in lengths {
            if found != components {
                return Err(Error::MixtureLength { components, what, found });
            }
        }
        if let Some(&kappa) = kappas.iter().find(|kappa| !(kappa.is_finite() && **kappa >= 0.0)) {
            return Err(Error::Concentration { kappa });
        }
        let total: f64 = weights.iter().sum();
        if !(total.is_finite() && total > 0.0 && weights.iter().all(|w| *w >= 0.0)) {
            return Err(Error::EmptyMixture);
        }
        let mut means = vec![0.0; directions.len()];
        for (row, (direction, mean)) in
            directions.chunks_exact(dimension).zip(means.chunks_exact_mut(dimension)).enumerate()
        {
            crate::distribution::unit(direction, row, mean)?;
        }
        Ok(Self::of(dimension, weights.iter().map(|w| w / total).collect(), means, kappas.to_vec()))
    }

    /// From parts that are known to be right.
    fn of(dimension: usize, weights: Vec<f64>, means: Vec<f64>, kappas: Vec<f64>) -> Self {
        let offset = |(weight, kappa): (&f64, &f64)| weight.ln() + log_normalizer(dimension, *kappa);
        let offsets = weights.iter().zip(&kappas).map(offset).collect();
        Self { dimension, weights, means, kappas, offsets }
    }

    /// `p`, the dimension of the space around the sphere.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// Number of components, those of weight zero too.
    pub fn components(&self) -> usize {
        self.kappas.len()
    }

    /// `pi_k`; zero for a component that was given up.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// The mean directions, unit vectors one after another.
    pub fn means(&self) -> &[f64] {
        &self.means
    }

    /// `kappa_k`.
    pub fn kappas(&self) -> &[f64] {
        &self.kappas
    }

    /// The same components with other weights, which are divided by their sum.
    pub fn with_weights(&self, weights: &[f64]) -> Result<Self, Error> {
        Self::new(self.dimension, weights, &self.means, &self.kappas)
    }

    /// Log density and most probable component of every point.
    pub fn score<P: Points>(&self, points: &P) -> Result<Vec<Assigned>, P::Error> {
        self.check_dimension(points)?;
        points.score(&self.means, &|row| self.soft(row))
    }

    /// The mean over all points of each component's responsibility: the weights that one EM step would give.
    pub fn mean_responsibilities<P: Points>(&self, points: &P) -> Result<Vec<f64>, P::Error> {
        self.check_dimension(points)?;
        let (_, sums) = points.pass(&self.means, &|row| self.soft(row))?;
        Ok(sums.members.iter().map(|n| n / points.count() as f64).collect())
    }

    fn check_dimension<P: Points>(&self, points: &P) -> Result<(), Error> {
        let (expected, found) = (self.dimension, points.dimension());
        if expected == found { Ok(()) } else { Err(Error::Length { expected, found }) }
    }

    /// Turns the cosines of a point to the means into responsibilities.
    fn soft(&self, row: &mut [f64]) -> Assigned {
        let (component, largest) = self.joint(row);
        let mut sum = 0.0;
        for logit in row.iter_mut() {
            // Relative to the largest, so that nothing overflows and the sum is at least 1.
            *logit = (*logit - largest).exp();
            sum += *logit;
        }
        for r in row {
            *r /= sum;
        }
        Assigned { log_density: largest + sum.ln(), component }
    }

    /// The same for the best component alone; of equals the first.
    fn hard(&self, row: &mut [f64]) -> Assigned {
        let (component, log_density) = self.joint(row);
        row.fill(0.0);
        row[component] = 1.0;
        Assigned { log_density, component }
    }

    /// `log pi_k f_k(y)` in place of the cosines, and the largest of them.
    fn joint(&self, row: &mut [f64]) -> (usize, f64) {
        let mut best = (0, f64::NEG_INFINITY);
        for (k, (logit, (kappa, offset))) in row.iter_mut().zip(self.kappas.iter().zip(&self.offsets)).enumerate() {
            *logit = kappa * *logit + offset;
            if *logit > best.1 {
                best = (k, *logit);
            }
        }
        best
    }
}

/// A fitted mixture and how it came about.
#[derive(Clone, Debug, PartialEq)]
pub struct MixtureFit {
    /// The mixture.
    pub mixture: VmfMixture,
    /// The objective per point, before each M-step and at the end: it never falls.
    pub objective: Vec<f64>,
    /// Whether the gain of an iteration fell to the tolerance, rather than the iterations running out.
    pub converged: bool,
    /// Which start it is from, counted from 0.
    pub start: usize,
}

/// One iteration, for those who watch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FitProgress {
    /// The start that is being followed, from 0.
    pub start: usize,
    /// M-steps done from there.
    pub iteration: usize,
    /// The objective per point.
    pub objective: f64,
}

/// The best of several fits, each from means drawn as k-means++ draws them. `watch` is told of every iteration, and its
/// error ends the fit.
///
/// ```
/// use random::{Key, Purpose};
/// use vmf::{FitOptions, PointMatrix, VonMisesFisher, fit_mixture};
/// let mut stream = Key::new(1, Purpose::Bench).stream();
/// let planted = [VonMisesFisher::new(&[1.0, 0.0, 0.0], 50.0)?, VonMisesFisher::new(&[0.0, 0.6, 0.8], 200.0)?];
/// let draws: Vec<f64> = (0..1000).flat_map(|i| planted[i % 2].sample(&mut stream)).collect();
/// let points = PointMatrix::new(3, &draws)?;
/// let fit = fit_mixture(&points, &FitOptions::new(2), &mut |_| Ok(()))?;
/// let mut kappas = fit.mixture.kappas().to_vec();
/// kappas.sort_by(f64::total_cmp);
/// assert!((kappas[0] / 50.0 - 1.0).abs() < 0.15 && (kappas[1] / 200.0 - 1.0).abs() < 0.15);
/// # Ok::<(), vmf::Error>(())
/// ```
pub fn fit_mixture<P: Points>(
    points: &P,
    options: &FitOptions,
    watch: &mut dyn FnMut(FitProgress) -> Result<(), P::Error>,
) -> Result<MixtureFit, P::Error> {
    options.check(points.dimension(), points.count())?;
    let mut best: Option<MixtureFit> = None;
    for start in 0..options.starts {
        let fit = iterate(points, start::mixture(points, options, start)?, start, options, watch)?;
        let objective = |fit: &MixtureFit| fit.objective.last().copied().unwrap_or(f64::NEG_INFINITY);
        if best.as_ref().is_none_or(|best| objective(&fit) > objective(best)) {
            best = Some(fit);
        }
    }
    // `check` has seen to it that there is a start.
    best.ok_or_else(|| Error::FitSetting { setting: "starts", value: "0".to_owned(), expected: "at least 1" }.into())
}

/// The fit that begins at a given mixture rather than at drawn means; of the options' number of components, starts and
/// seed nothing is read.
pub fn refine_mixture<P: Points>(
    points: &P,
    begin: VmfMixture,
    options: &FitOptions,
    watch: &mut dyn FnMut(FitProgress) -> Result<(), P::Error>,
) -> Result<MixtureFit, P::Error> {
    begin.check_dimension(points)?;
    options.check(points.dimension(), points.count().max(options.components))?;
    iterate(points, begin, 0, options, watch)
}

fn iterate<P: Points>(
    points: &P,
    mut mixture: VmfMixture,
    start: usize,
    options: &FitOptions,
    watch: &mut dyn FnMut(FitProgress) -> Result<(), P::Error>,
) -> Result<MixtureFit, P::Error> {
    let mut objective: Vec<f64> = Vec::new();
    loop {
        let (assigned, sums) = match options.assignment {
            Assignment::Soft => points.pass(&mixture.means, &|row| mixture.soft(row))?,
            Assignment::Hard => points.pass(&mixture.means, &|row| mixture.hard(row))?,
        };
        let now = assigned.iter().map(|a| a.log_density).sum::<f64>() / assigned.len() as f64;
        let gain = objective.last().map(|last| now - last);
        objective.push(now);
        let iteration = objective.len() - 1;
        watch(FitProgress { start, iteration, objective: now })?;
        let converged = gain.is_some_and(|gain| gain <= options.tolerance);
        if converged || iteration == options.iterations {
            return Ok(MixtureFit { mixture, objective, converged, start });
        }
        mixture = maximize::step(&mixture, &sums, points.count(), options)?;
    }
}
