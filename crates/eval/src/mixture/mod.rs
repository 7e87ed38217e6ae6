//! A mixture of von Mises-Fisher distributions fitted to features (movMF), and how well it describes others: the baseline
//! that the paper's theory stands on.
//!
//! Only the directions of features count. The algorithm is [`vmf::fit_mixture`]; here are its products (`points`) and what
//! a mixture is judged by: the log-likelihood of images that it was not fitted to, and how far its components agree with
//! classes (`agreement`). A network's own prototypes are a mixture too (`prototypes`), on the sphere of its head.

mod agreement;
mod points;
mod prototypes;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use tensor::Device;
use vmf::{FitOptions, FitProgress, MixtureFit, VmfMixture};

use crate::error::EvalError;
use crate::features::Features;

pub use agreement::Agreement;
pub use prototypes::prototype_mixture;

use points::FeaturePoints;

/// How a mixture describes a set of features.
#[derive(Clone, Debug, PartialEq)]
pub struct MixtureScore {
    /// Mean log density of a feature's direction, in nats, with respect to the area of the sphere.
    pub log_likelihood: f64,
    /// Components that are the most probable one of some image.
    pub used: usize,
    /// How far components agree with classes; none where an image has no label.
    pub agreement: Option<Agreement>,
    /// The most probable component of each image.
    pub components: Vec<usize>,
}

/// Fits a mixture to the directions of features, on the threads of `host`, in f64. `watch` is told of every iteration and
/// may end the fit.
///
/// Beside the features it takes memory for some blocks, 32 MiB each, and a few matrices of the means' size.
///
/// ```
/// use std::ops::ControlFlow;
/// use eval::{Features, mixture};
/// let host = tensor::Device::cpu(Default::default())?;
/// let values = vec![1.0, 0.0, 0.9, 0.2, 2.0, -0.1, 0.0, 1.0, 0.1, 1.0, -0.2, 3.0];
/// let features = Features::labelled(2, values, &[0, 0, 0, 1, 1, 1]);
/// let fit = mixture::fit(&features, &vmf::FitOptions::new(2), &host, &mut |_| ControlFlow::Continue(()))?;
/// let score = mixture::score(&fit.mixture, &features, &host)?;
/// assert_eq!(score.agreement.unwrap().purity, 1.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// When `host` is a GPU, or the values of the features are not equally many rows.
pub fn fit(
    train: &Features,
    options: &FitOptions,
    host: &Device,
    watch: &mut dyn FnMut(FitProgress) -> ControlFlow<()>,
) -> Result<MixtureFit, EvalError> {
    let points = FeaturePoints::new(train, "training", host)?;
    vmf::fit_mixture(&points, options, &mut |progress| match watch(progress) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(EvalError::Stopped),
    })
}

/// Judges a mixture by features that it was fitted to, or by others.
///
/// # Panics
/// As [`fit()`].
pub fn score(mixture: &VmfMixture, features: &Features, host: &Device) -> Result<MixtureScore, EvalError> {
    let assigned = mixture.score(&FeaturePoints::new(features, "test", host)?)?;
    let components: Vec<usize> = assigned.iter().map(|a| a.component).collect();
    let labels: Vec<u32> = features.labels.iter().flatten().copied().collect();
    Ok(MixtureScore {
        log_likelihood: assigned.iter().map(|a| a.log_density).sum::<f64>() / assigned.len() as f64,
        used: components.iter().collect::<BTreeSet<_>>().len(),
        agreement: (labels.len() == components.len()).then(|| Agreement::of(&components, &labels)),
        components,
    })
}

/// The same components with the weights that one EM step on these features gives them.
///
/// # Panics
/// As [`fit()`].
pub fn reweighted(mixture: &VmfMixture, features: &Features, host: &Device) -> Result<VmfMixture, EvalError> {
    let weights = mixture.mean_responsibilities(&FeaturePoints::new(features, "training", host)?)?;
    Ok(mixture.with_weights(&weights)?)
}

#[cfg(test)]
mod tests;
