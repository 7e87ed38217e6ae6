//! What a head's mixture says of images.
//!
//! With prototypes w_k, y the unit vector of an image, kappa_k = |w_k| / tau, mu_k = w_k / |w_k| and equal weights
//! pi_k = 1 / K, Eqs. (2) and (3) of the paper:
//!
//! ```text
//! log p(y) = log sum_k pi_k C_p(kappa_k) exp(kappa_k <mu_k, y>)
//! r_k      = pi_k C_p(kappa_k) exp(kappa_k <mu_k, y>) / p(y)
//! H        = -sum_k r_k log r_k
//! ```
//!
//! C_p is exact, as it is in [`crate::mixture`] and in an exported graph. The sums are those of [`vmf::Mixture`], by which an
//! exported graph is checked as well; [`vmf::VmfMixture`], which EM fits, has its own, and a test holds the two together.

use std::ops::ControlFlow;

use model::weights::LoadedHead;
use rayon::prelude::*;
use tensor::{Device, Tensor};
use vmf::Mixture;

use crate::error::EvalError;
use crate::features::Features;
use crate::prototypes::{HeadStatistics, PrototypeKind, each_part};

/// Logits that are held at once, about: 32 MiB in f64.
const LOGITS: usize = 1 << 22;

/// What a head says of one image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Certainty {
    /// The component that is most responsible for it; of equals the first.
    pub component: u32,
    /// The concentration of that component; none where the lengths of prototypes are no concentrations.
    pub kappa: Option<f64>,
    /// Entropy of the image's distribution over prototypes, in nats.
    pub entropy: f64,
    /// log p(y), in nats, with respect to the area of the sphere; none where prototypes are no densities.
    pub log_density: Option<f64>,
}

/// A head that describes images.
#[derive(Debug)]
pub struct Describer<'a> {
    head: &'a LoadedHead,
    kind: PrototypeKind,
    temperature: f64,
    mixture: Mixture<f64>,
    statistics: Option<HeadStatistics>,
    device: Device,
}

impl<'a> Describer<'a> {
    /// Of a head that lies on `device`, at the temperature tau. Of plain prototypes, r_k is the softmax of <w_k, y> / tau.
    pub fn new(
        head: &'a LoadedHead,
        kind: PrototypeKind,
        temperature: f64,
        device: &Device,
    ) -> Result<Self, EvalError> {
        if !(temperature.is_finite() && temperature > 0.0) {
            let expected = "a number above zero".to_owned();
            return Err(EvalError::Setting { setting: "temperature", value: temperature.to_string(), expected });
        }
        let magnitudes = head.weights[head.prototypes.magnitude()].to_f64();
        device.finish()?;
        let kappas: Vec<f64> = magnitudes.iter().map(|g| g.abs() / temperature).collect();
        if let Some(&kappa) = kappas.iter().find(|kappa| !kappa.is_finite()) {
            return Err(vmf::Error::Concentration { kappa }.into());
        }
        let log_weights = vec![-(kappas.len() as f64).ln(); kappas.len()];
        let log_normalizers: Vec<f64> = match kind {
            PrototypeKind::Plain => vec![0.0; kappas.len()],
            PrototypeKind::Vmf => kappas.iter().map(|&k| vmf::log_normalizer(head.config.bottleneck, k)).collect(),
        };
        let mixture = Mixture::new(kappas, &log_normalizers, &log_weights)?;
        Ok(Self { head, kind, temperature, mixture, statistics: None, device: device.clone() })
    }

    /// The same with the statistics of these images, up to 4,096 of them, for all that are described, where the head has batch
    /// norm: images of several sets can then be compared. Without batch norm nothing changes.
    pub fn normalized_by(self, features: &Features) -> Result<Self, EvalError> {
        let statistics = HeadStatistics::of(self.head, features, &self.device)?;
        Ok(Self { statistics, ..self })
    }

    /// Describes images by their features (class tokens after the norm), in their order. Logits are computed where the head
    /// is, all else on the threads of `host` in f64. `progress` is told how many are done, and may stop.
    ///
    /// A head with batch norm takes the statistics that it has in [`project`](crate::prototypes::project()), unless it is
    /// [`normalized_by`](Self::normalized_by) those of others.
    pub fn describe(
        &self,
        features: &Features,
        host: &Device,
        progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Vec<Certainty>, EvalError> {
        let (count, p) = (self.head.config.prototypes, self.head.config.bottleneck);
        let images = features.len();
        if images == 0 {
            return Err(EvalError::Empty { which: "given" });
        }
        let none = Certainty { component: 0, kappa: None, entropy: 0.0, log_density: None };
        let (mut described, mut done) = (vec![none; images], 0);
        let at_once = (LOGITS / count.max(1)).clamp(16, 1024);
        each_part(self.head, features, &self.device, self.statistics.as_ref(), at_once, |rows, y| {
            let y = self.device.from_f64(&[rows.len(), p], y);
            for (&row, certainty) in rows.iter().zip(self.of_points(&y, host)?) {
                let broken = || EvalError::NotDescribed { name: format!("image {}", features.indices[row]) };
                described[row] = certainty.ok_or_else(broken)?;
            }
            done += rows.len();
            if progress(done, images).is_break() { Err(EvalError::Stopped) } else { Ok(()) }
        })?;
        Ok(described)
    }

    /// The same of unit vectors; none where what the head says is not finite.
    fn of_points(&self, y: &Tensor, host: &Device) -> Result<Vec<Option<Certainty>>, EvalError> {
        let mut logits = self.head.prototypes.logits(&self.head.weights, y).raw.to_f64();
        self.device.finish()?;
        let rows = logits.par_chunks_mut(self.head.config.prototypes.max(1));
        Ok(host.run(|| rows.map(|row| self.of_logits(row)).collect::<Result<_, vmf::Error>>())?)
    }

    /// Of <w_k, y> for every prototype: what the mixture's posterior is.
    fn of_logits(&self, row: &mut [f64]) -> Result<Option<Certainty>, vmf::Error> {
        row.iter_mut().for_each(|logit| *logit /= self.temperature);
        let log_density = self.mixture.posterior(row)?;
        // A logit that is no number makes the sum of all none.
        if !log_density.is_finite() {
            return Ok(None);
        }
        let mut best = (0, f64::NEG_INFINITY);
        let mut entropy = 0.0;
        for (k, &log_r) in row.iter().enumerate() {
            if log_r > best.1 {
                best = (k, log_r);
            }
            let r = log_r.exp();
            // Nothing, where it is so small that it is zero.
            entropy -= if r == 0.0 { 0.0 } else { r * log_r };
        }
        let is_vmf = self.kind == PrototypeKind::Vmf;
        Ok(Some(Certainty {
            component: best.0 as u32,
            kappa: is_vmf.then(|| self.mixture.kappas()[best.0]),
            entropy,
            log_density: is_vmf.then_some(log_density),
        }))
    }
}
