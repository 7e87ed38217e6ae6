//! Which prototype each image gets: the one of its largest logit.

use std::ops::ControlFlow;

use model::weights::LoadedHead;
use tensor::{Device, ops};
use vmf::LogNormalizer;

use super::project::each_part;
use super::statistics::HeadStatistics;
use crate::error::EvalError;
use crate::features::Features;

/// Logits that are held at once, about: 64 MiB.
const LOGITS: usize = 1 << 24;

/// What the lengths of prototypes mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrototypeKind {
    /// A factor of the logit and nothing more: DINO.
    Plain,
    /// The concentration of a von Mises-Fisher component, so that its log-normaliser is part of the logit: DINO-vMF.
    Vmf,
}

/// What images choose.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignments {
    /// The prototype of each image.
    pub prototypes: Vec<u32>,
    /// The mean of the images' unit vectors y.
    pub mean: Vec<f64>,
    /// Mean entropy of the images' distributions over prototypes, in nats.
    pub entropy: f64,
    /// How many images chose each prototype.
    pub counts: Vec<u32>,
}

impl Assignments {
    /// Prototypes that any image chose.
    pub fn used(&self) -> usize {
        self.counts.iter().filter(|count| **count > 0).count()
    }

    /// exp of the entropy of the choices: as many prototypes, chosen equally often, would be as varied.
    pub fn perplexity(&self) -> f64 {
        let images = self.prototypes.len() as f64;
        let part = |&count: &u32| {
            let share = f64::from(count) / images;
            if count == 0 { 0.0 } else { -share * share.ln() }
        };
        self.counts.iter().map(part).sum::<f64>().exp()
    }
}

/// How images choose: by the largest of l_k = <w_k, y> / tau (+ Delta(|w_k| / tau) for vMF components).
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    kind: PrototypeKind,
    temperature: f64,
    centre: Option<&'a [f32]>,
    voters: Option<&'a Features>,
}

impl<'a> Choice<'a> {
    /// At the temperature tau, without a centre.
    pub fn new(kind: PrototypeKind, temperature: f64) -> Self {
        Self { kind, temperature, centre: None, voters: None }
    }

    /// The same with a centre c, in units of l, subtracted from the logits, as from those of a teacher in training.
    pub fn centred(self, centre: &'a [f32]) -> Self {
        Self { centre: Some(centre), ..self }
    }

    /// The same with the statistics of these images, up to 4,096 of them, where the head has batch norm: what an image chooses
    /// then has nothing to do with who is asked beside it. Without batch norm nothing changes.
    pub fn normalized_by(self, features: &'a Features) -> Self {
        Self { voters: Some(features), ..self }
    }
}

/// Sends features (class tokens after the norm) through a head, y = head(feature), and lets them choose. Runs where the head is;
/// `progress` is told how many images are done, and may stop.
///
/// A head with batch norm takes the statistics that it has in [`project`](super::project()), unless the choice is
/// [`normalized_by`](Choice::normalized_by) those of others.
///
/// # Panics
/// When the centre has not a value for each prototype.
pub fn assign(
    head: &LoadedHead,
    choice: Choice<'_>,
    features: &Features,
    device: &Device,
    progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Assignments, EvalError> {
    let Choice { kind, temperature, centre, voters } = choice;
    let (count, p) = (head.config.prototypes, head.config.bottleneck);
    if !(temperature.is_finite() && temperature > 0.0) {
        let expected = "a number above zero".to_owned();
        return Err(EvalError::Setting { setting: "temperature", value: temperature.to_string(), expected });
    }
    if features.is_empty() {
        return Err(EvalError::Empty { which: "given" });
    }
    let statistics = voters.map(|voters| HeadStatistics::of(head, voters, device)).transpose()?.flatten();
    let magnitude = &head.weights[head.prototypes.magnitude()];
    let shift = match kind {
        PrototypeKind::Plain => device.zeros_exact(&[count]),
        PrototypeKind::Vmf => ops::vmf_log_normalizer(magnitude, temperature, &LogNormalizer::new(p)?).0,
    };
    let shift = match centre {
        None => shift,
        Some(centre) => {
            assert_eq!(centre.len(), count, "a centre for each prototype");
            let values: Vec<f64> = centre.iter().map(|&c| f64::from(c)).collect();
            ops::add_scaled(&shift, -1.0, &device.exact_from_f64(&[count], &values))
        }
    };
    let (images, mut done) = (features.len(), 0);
    let mut assigned =
        Assignments { prototypes: vec![0; images], mean: vec![0.0; p], entropy: 0.0, counts: vec![0; count] };
    let at_once = (LOGITS / count.max(1)).clamp(16, 1024);
    each_part(head, features, device, statistics.as_ref(), at_once, |rows, y| {
        let raw = head.prototypes.logits(&head.weights, &device.from_f64(&[rows.len(), p], y)).raw;
        let summaries = ops::row_summaries(&ops::softmax(&raw, temperature.recip(), &shift));
        device.finish()?;
        for ((&row, y), (entropy, prototype)) in rows.iter().zip(y.chunks_exact(p)).zip(summaries) {
            assigned.mean.iter_mut().zip(y).for_each(|(mean, y)| *mean += y / images as f64);
            assigned.entropy += entropy / images as f64;
            assigned.counts[prototype] += 1;
            assigned.prototypes[row] = prototype as u32;
        }
        done += rows.len();
        if progress(done, images).is_break() { Err(EvalError::Stopped) } else { Ok(()) }
    })?;
    Ok(assigned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perplexity_is_the_number_of_equal_choices() {
        let of = |counts: &[u32]| Assignments {
            prototypes: vec![0; counts.iter().sum::<u32>() as usize],
            mean: Vec::new(),
            entropy: 0.0,
            counts: counts.to_vec(),
        };
        assert!((of(&[3, 0, 3, 3, 0]).perplexity() - 3.0).abs() < 1e-12);
        assert_eq!((of(&[9, 0, 0]).perplexity(), of(&[3, 0, 3, 3, 0]).used()), (1.0, 3));
    }
}
