//! The online evaluation of a training run: kNN on a fixed sample of labelled images, the same from the first epoch to
//! the last, so that the accuracies form a curve.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use data::Source;
use tensor::Device;

use crate::error::EvalError;
use crate::features::{Extraction, extract, raw_pixels};
use crate::input::InputSpec;
use crate::knn::{self, KnnOptions};
use crate::network::Network;
use crate::reading::ReadOptions;
use crate::subset::{Subset, is_labelled};

/// Bounds on the raw-pixel baseline: side of an image, and values of all images together (1 GiB). At full size the pixels
/// of a data set do not fit into memory.
const RAW_SIDE: usize = 64;
const RAW_VALUES: usize = 1 << 28;

/// Settings of the online kNN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OnlineKnnOptions {
    /// Training images that vote: a sample of at most this many.
    pub voters: usize,
    /// Held-out images that are classified: a sample of at most this many.
    pub queries: usize,
    /// Nearest neighbours that vote on an image; fewer where there are fewer voters.
    pub k: usize,
    /// Divisor of the cosine in a vote's weight.
    pub temperature: f64,
    /// What the network sees of an image.
    pub input: InputSpec,
    /// How images are read.
    pub read: ReadOptions,
}

/// A kNN evaluation whose images and settings are fixed for a whole run.
pub struct OnlineKnn {
    voters: Subset,
    /// None for leave-one-out.
    queries: Option<Subset>,
    options: OnlineKnnOptions,
    host: Device,
    /// Images of both that could not be read the last time.
    unreadable: AtomicUsize,
}

impl OnlineKnn {
    /// Draws the samples. Without held-out images every voter is classified by all others (leave-one-out).
    ///
    /// `host`, a CPU device, compares the features; the networks to be judged may be on another device.
    pub fn new(
        train: Arc<dyn Source>,
        held_out: Option<Arc<dyn Source>>,
        options: OnlineKnnOptions,
        host: Device,
    ) -> Result<Self, EvalError> {
        for (which, source) in [("training", Some(&train)), ("test", held_out.as_ref())] {
            if let Some(source) = source.filter(|source| !is_labelled(&***source)) {
                let images = source.len();
                return Err(EvalError::NoLabels { which, unlabelled: images, images });
            }
        }
        let voters = Subset::sample(train, options.voters);
        let queries = held_out.map(|test| Subset::sample(test, options.queries));
        let this = Self { voters, queries, options, host, unreadable: AtomicUsize::new(0) };
        match this.most_neighbors(this.voters.len()) {
            0 => Err(EvalError::TooFewVoters { images: this.voters.len() }),
            most => this.knn_options(most).check(most).map(|_| this),
        }
    }

    /// The evaluation's images for people: `1,000 of 10,000 held-out images by 4,000 training images`. Those that could not be read
    /// are told of once they are known.
    pub fn describe(&self) -> String {
        let images = match &self.queries {
            Some(queries) => format!("{} by {}", queries.share("held-out image"), self.voters.share("training image")),
            None => format!("{}, each by all others", self.voters.share("training image")),
        };
        match self.unreadable.load(Ordering::Relaxed) {
            0 => images,
            unreadable => format!("{images}, less {unreadable} that cannot be read"),
        }
    }

    /// How many images are classified, if all can be read.
    pub fn judged(&self) -> usize {
        self.queries.as_ref().unwrap_or(&self.voters).len()
    }

    /// Nearest neighbours that vote on an image, if all voters can be read.
    pub fn k(&self) -> usize {
        self.options.k.min(self.most_neighbors(self.voters.len()))
    }

    /// Top-1 accuracy of a network's features in per cent, in the precision of the network's device. `should_stop` is
    /// asked between batches; true ends the evaluation with [`EvalError::Stopped`].
    pub fn network_top1(&self, network: Network<'_>, should_stop: &dyn Fn() -> bool) -> Result<f64, EvalError> {
        let preparation = self.options.input.preparation();
        self.top1(|source| extract(network, source, &preparation, &self.options.read, &mut |_| control(should_stop)))
    }

    /// The baseline: top-1 accuracy in per cent with the normalised pixels themselves as features, at no more than 64
    /// pixels on the longer side.
    pub fn raw_pixels_top1(&self, should_stop: &dyn Fn() -> bool) -> Result<f64, EvalError> {
        let OnlineKnnOptions { input, read, .. } = &self.options;
        let preparation = input.at_most(raw_side(self.voters.len(), read.channels)).preparation();
        self.top1(|source| raw_pixels(source, &preparation, read, &mut |_| control(should_stop)))
    }

    fn top1(&self, features: impl Fn(&dyn Source) -> Result<Extraction, EvalError>) -> Result<f64, EvalError> {
        let voters = features(&self.voters)?.features;
        let mut unreadable = self.voters.len() - voters.len();
        // Unreadable images may leave fewer voters than k.
        let options = self.knn_options(self.most_neighbors(voters.len()));
        let results = match &self.queries {
            Some(queries) => {
                let judged = features(queries)?.features;
                unreadable += queries.len() - judged.len();
                knn::classify(&voters, &judged, &options, &self.host)?
            }
            None => knn::leave_one_out(&voters, &options, &self.host)?,
        };
        self.unreadable.store(unreadable, Ordering::Relaxed);
        Ok(results.first().map_or(f64::NAN, |result| result.top1))
    }

    /// How many neighbours an image can have among so many voters.
    fn most_neighbors(&self, voters: usize) -> usize {
        voters.saturating_sub(usize::from(self.queries.is_none()))
    }

    fn knn_options(&self, most_neighbors: usize) -> KnnOptions {
        KnnOptions { ks: vec![self.options.k.min(most_neighbors)], temperature: self.options.temperature }
    }
}

/// The longest side at which the raw pixels of so many images are compared.
fn raw_side(images: usize, channels: usize) -> usize {
    (RAW_VALUES / images.saturating_mul(channels).max(1)).isqrt().clamp(1, RAW_SIDE)
}

fn control(should_stop: &dyn Fn() -> bool) -> ControlFlow<()> {
    if should_stop() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Arch, Layout, Vit, VitConfig};

    const OPTIONS: OnlineKnnOptions = OnlineKnnOptions {
        voters: 5000,
        queries: 1000,
        k: 20,
        temperature: 0.07,
        input: InputSpec { whole: true, ..InputSpec::center((16, 16)) },
        read: ReadOptions { batch_size: 8, workers: 2, channels: 3, orientation: data::Orientation::Upright },
    };

    fn source(train: usize) -> Arc<dyn Source> {
        data::open(&format!("synthetic:train={train},size=16"), data::Split::Train, 0).unwrap()
    }

    fn host() -> Device {
        Device::cpu(Default::default()).unwrap()
    }

    #[test]
    fn data_without_held_out_images_is_judged_leave_one_out() {
        let train = source(24);
        let knn = OnlineKnn::new(train.clone(), None, OPTIONS, host()).unwrap();
        assert_eq!((knn.describe().as_str(), knn.k()), ("24 training images, each by all others", 20));
        let top1 = knn.raw_pixels_top1(&|| false).unwrap();
        assert!((0.0..=100.0).contains(&top1));
        assert!(matches!(knn.raw_pixels_top1(&|| true), Err(EvalError::Stopped)));

        let knn = OnlineKnn::new(train.clone(), Some(train), OPTIONS, host()).unwrap();
        assert_eq!(knn.describe(), "24 held-out images by 24 training images");
    }

    #[test]
    fn a_network_is_judged_by_its_own_features() {
        let device = host();
        let mut layout = Layout::default();
        let vit = Vit::new(&mut layout, "", VitConfig::new(Arch::Nano, 8, (16, 16), 3).unwrap());
        let weights = layout.initial(&device, 0);
        let train = source(24);
        let options = OnlineKnnOptions { k: 1, ..OPTIONS };
        let knn = OnlineKnn::new(train.clone(), Some(train), options, device.clone()).unwrap();
        let network = Network::new(&vit, &weights, &device);
        // Every query is among the voters, and is its own nearest neighbour.
        assert_eq!(knn.network_top1(network, &|| false).unwrap(), 100.0);
        assert!(matches!(knn.network_top1(network, &|| true), Err(EvalError::Stopped)));
    }

    #[test]
    fn voters_and_queries_are_sampled_and_k_is_limited_by_the_voters() {
        let options = OnlineKnnOptions { voters: 10, queries: 7, ..OPTIONS };
        let train = source(24);
        let knn = OnlineKnn::new(train.clone(), Some(train.clone()), options, host()).unwrap();
        assert_eq!(knn.describe(), "7 of 24 held-out images by 10 of 24 training images");
        assert_eq!((knn.k(), knn.judged()), (10, 7));
        let others = OnlineKnn::new(train, None, options, host()).unwrap();
        assert_eq!((others.k(), others.judged()), (9, 10));
    }

    #[test]
    fn what_cannot_be_judged_is_refused_at_once() {
        let refusal = |train: usize, options| OnlineKnn::new(source(train), None, options, host()).err().unwrap();
        assert!(matches!(refusal(1, OPTIONS), EvalError::TooFewVoters { images: 1 }));
        assert!(matches!(refusal(9, OnlineKnnOptions { k: 0, ..OPTIONS }), EvalError::Setting { setting: "k", .. }));
        let frozen = OnlineKnnOptions { temperature: 0.0, ..OPTIONS };
        assert!(matches!(refusal(9, frozen), EvalError::Setting { setting: "temperature", .. }));
    }

    #[test]
    fn raw_pixels_of_many_images_are_compared_at_a_smaller_side() {
        assert_eq!([1, 5000, 50_000].map(|images| raw_side(images, 3)), [64, 64, 42]);
        assert_eq!(raw_side(usize::MAX / 64, 128), 1);
    }
}
