//! The kNN that accompanies a run: a fixed sample of labelled images, judged the same way from the first epoch to the last.

use std::ops::ControlFlow;
use std::sync::Arc;

use data::Source;
use eval::{EvalError, Extraction, KnnOptions, Network, ReadOptions, knn};
use model::{ConfigError, Layout, Vit};
use ssl::recipe::Recipe;
use ssl::trainer::vit_config;
use tensor::{Device, ParamSet};

use crate::images::{self, Subset};
use crate::view::View;

/// Raw pixels are compared at no more than this side, and at no more than so many values in all: at full size they would
/// not fit into memory.
const RAW_SIDE: usize = 64;
const RAW_VALUES: usize = 1 << 28;

/// What to classify, by what, and how.
pub struct Probe {
    voters: Subset,
    /// None where every voter is classified by all others.
    queries: Option<Subset>,
    view: View,
    k: usize,
    temperature: f64,
    read: ReadOptions,
}

/// Asked between batches; false ends the evaluation.
pub type GoOn<'a> = &'a dyn Fn() -> bool;

impl Probe {
    /// A probe for labelled data, and the reason why it holds nothing out where that is so. None without labels.
    pub fn new(
        train: Arc<dyn Source>,
        held_out: Result<Arc<dyn Source>, String>,
        recipe: &Recipe,
        read: ReadOptions,
    ) -> Option<(Self, Option<String>)> {
        if !images::is_labelled(&*train) || train.len() < 2 {
            return None;
        }
        let held_out = held_out.and_then(|test| match images::is_labelled(&*test) {
            true => Ok(test),
            false => Err(format!("{}: the held-out images have no labels", test.describe())),
        });
        let (queries, reason) = match held_out {
            Ok(test) => (Some(Subset::sample(test, recipe.knn_queries())), None),
            Err(reason) => (None, Some(reason)),
        };
        let voters = Subset::sample(train, recipe.knn_voters());
        let read = ReadOptions { channels: recipe.channels(), ..read };
        let (k, temperature) = (recipe.knn_k(), recipe.knn_temperature());
        Some((Self { voters, queries, view: View::of(recipe), k, temperature, read }, reason))
    }

    /// What is classified by what, for people: `1,000 of 10,000 held-out images by 4,000 training images`.
    pub fn judged(&self) -> String {
        match &self.queries {
            Some(queries) => format!("{} by {}", queries.share("held-out image"), self.voters.share("training image")),
            None => format!("{}, each by all others", self.voters.share("training image")),
        }
    }

    /// Neighbours that vote.
    pub fn k(&self) -> usize {
        self.k.min(self.voters.len() - usize::from(self.queries.is_none()))
    }

    /// Per cent of the images that a network's features classify rightly.
    pub fn network(&self, network: Network<'_>, go_on: GoOn<'_>) -> Result<f64, EvalError> {
        let preparation = self.view.preparation();
        self.top1(network.device, |source| {
            eval::extract(network, source, &preparation, &self.read, &mut |_| control(go_on))
        })
    }

    /// The same for the network before its first step.
    pub fn untrained(&self, recipe: &Recipe, device: &Device, go_on: GoOn<'_>) -> Result<f64, EvalError> {
        let (vit, weights) = untrained(recipe, device)?;
        self.network(Network { vit: &vit, weights: &weights, device }, go_on)
    }

    /// The same for the pixels themselves.
    pub fn raw_pixels(&self, device: &Device, go_on: GoOn<'_>) -> Result<f64, EvalError> {
        let preparation = self.view.at_most(raw_side(self.voters.len(), self.read.channels)).preparation();
        self.top1(device, |source| eval::raw_pixels(source, &preparation, &self.read, &mut |_| control(go_on)))
    }

    fn top1(
        &self,
        device: &Device,
        features: impl Fn(&dyn Source) -> Result<Extraction, EvalError>,
    ) -> Result<f64, EvalError> {
        let voters = features(&self.voters)?.features;
        // Unreadable images may leave fewer voters than neighbours are asked for.
        let k = self.k().min(voters.len().saturating_sub(usize::from(self.queries.is_none())));
        let options = KnnOptions { ks: vec![k], temperature: self.temperature };
        let results = match &self.queries {
            Some(queries) => knn::classify(&voters, &features(queries)?.features, &options, device)?,
            None => knn::leave_one_out(&voters, &options, device)?,
        };
        Ok(results.first().map_or(f64::NAN, |result| result.top1))
    }
}

/// The longest side at which the raw pixels of so many images are compared.
fn raw_side(images: usize, channels: usize) -> usize {
    (RAW_VALUES / (images * channels).max(1)).isqrt().clamp(1, RAW_SIDE)
}

fn control(go_on: GoOn<'_>) -> ControlFlow<()> {
    if go_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// The backbone that a run of this recipe begins with. A learner adds the backbone's parameters before the head's and draws
/// each from its place alone, so the head need not be made.
fn untrained(recipe: &Recipe, device: &Device) -> Result<(Vit, ParamSet), ConfigError> {
    let mut layout = Layout::default();
    let vit = Vit::new(&mut layout, "", vit_config(recipe)?);
    let weights = layout.initial(device, recipe.seed());
    Ok((vit, weights))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ssl::learner::Learner;
    use ssl::recipe::RawRecipe;
    use ssl::trainer::learner_options;
    use tensor::ParamId;

    fn recipe(spec: &str) -> (Arc<dyn Source>, Recipe) {
        recipe_with(spec, "")
    }

    fn recipe_with(spec: &str, more: &str) -> (Arc<dyn Source>, Recipe) {
        let train = images::open(spec, data::Split::Train).unwrap();
        let text =
            "arch = \"vit_nano\"\npatch_size = 8\nhead_hidden = 16\nhead_bottleneck = 16\nout_dim = 8\nseed = 5\n";
        let recipe = RawRecipe::from_toml(&(text.to_owned() + more), "test")
            .unwrap()
            .resolve(&images::facts(&*train, 3).unwrap())
            .unwrap();
        (train, recipe)
    }

    #[test]
    fn the_untrained_network_is_the_one_that_a_run_begins_with() {
        let (_, recipe) = recipe("synthetic:train=24,size=16");
        let device = Device::cpu(Default::default()).unwrap();
        let learner = Learner::new(&device, learner_options(&recipe).unwrap()).unwrap();
        let (_, weights) = untrained(&recipe, &device).unwrap();
        for i in 0..weights.len() {
            assert_eq!(weights[ParamId(i)].to_f32(), learner.student[ParamId(i)].to_f32(), "parameter {i}");
        }
        assert!(weights.len() > 50);
    }

    #[test]
    fn data_without_held_out_images_is_judged_leave_one_out_and_says_so() {
        let (train, recipe) = recipe("synthetic:train=24,size=16");
        let device = Device::cpu(Default::default()).unwrap();
        let options = ReadOptions::default();
        let (probe, reason) = Probe::new(train.clone(), Err("no val".into()), &recipe, options).unwrap();
        assert_eq!(
            (probe.judged().as_str(), reason.as_deref()),
            ("24 training images, each by all others", Some("no val"))
        );
        assert_eq!(probe.k(), 20);
        let top1 = probe.raw_pixels(&device, &|| true).unwrap();
        assert!((0.0..=100.0).contains(&top1));
        assert!(matches!(probe.raw_pixels(&device, &|| false), Err(EvalError::Stopped)));

        let (probe, reason) = Probe::new(train.clone(), Ok(train), &recipe, options).unwrap();
        assert_eq!((probe.judged().as_str(), reason), ("24 held-out images by 24 training images", None));
    }

    #[test]
    fn raw_pixels_of_many_images_are_compared_at_a_smaller_side() {
        assert_eq!([1, 5000, 50_000].map(|images| raw_side(images, 3)), [64, 64, 42]);
        assert_eq!(raw_side(usize::MAX / 64, 64), 1);
    }

    #[test]
    fn a_recipe_says_how_many_images_vote_and_are_classified() {
        let (train, recipe) = recipe_with("synthetic:train=24,size=16", "knn_voters = 10\nknn_queries = 7");
        let (probe, _) = Probe::new(train.clone(), Ok(train), &recipe, ReadOptions::default()).unwrap();
        assert_eq!(probe.judged(), "7 of 24 held-out images by 10 of 24 training images");
        assert_eq!(probe.k(), 10);
    }
}
