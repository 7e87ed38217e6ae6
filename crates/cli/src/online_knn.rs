//! The online kNN of a run, set up from its recipe.

use std::sync::Arc;

use data::Source;
use eval::{InputSpec, Network, OnlineKnn, OnlineKnnOptions, ReadOptions, is_labelled};
use model::{ConfigError, Layout, Vit};
use ssl::beginning::Beginning;
use ssl::health::fall;
use ssl::learner::{BACKBONE, Learner};
use ssl::pretraining::Pretraining;
use ssl::recipe::Recipe;
use ssl::setup::vit_config;
use tensor::{Device, ParamSet};
use train::run::{RunError, RunReader};
use train::{Evaluation, Evaluator};

use crate::error::CliError;
use crate::images;
use crate::output;

/// What a network trained by this recipe sees of an image.
pub fn input_spec(recipe: &Recipe) -> InputSpec {
    let size = recipe.global_size();
    let short = recipe.facts().size().short();
    InputSpec::for_training((size.height, size.width), short).oriented(recipe.orientation())
}

/// The evaluation that accompanies a run; none without labels. `held_out` has the reason where no images are held out,
/// which is told to the user: leave-one-out accuracies are not comparable with held-out ones.
pub fn of_recipe(
    recipe: &Recipe,
    train: Arc<dyn Source>,
    held_out: Result<Arc<dyn Source>, String>,
    read: ReadOptions,
    host: Device,
) -> Result<Option<OnlineKnn>, CliError> {
    if !is_labelled(&*train) || train.len() < 2 {
        return Ok(None);
    }
    let held_out = held_out.and_then(|test| match is_labelled(&*test) {
        true => Ok(test),
        false => Err(format!("{}: the held-out images have no labels", test.describe())),
    });
    let (held_out, reason) = match held_out {
        Ok(test) => (Some(test), None),
        Err(reason) => (None, Some(reason)),
    };
    let options = OnlineKnnOptions {
        voters: recipe.knn_voters(),
        queries: recipe.knn_queries(),
        k: recipe.knn_k(),
        temperature: recipe.knn_temperature(),
        input: input_spec(recipe),
        read: ReadOptions { channels: recipe.channels(), orientation: recipe.orientation(), ..read },
    };
    images::warn_of_copies(&*train, held_out.as_deref());
    let knn = OnlineKnn::new(train, held_out, options, host)?;
    if let Some(reason) = reason {
        output::note(&format!("kNN: judged on {}. {reason}", knn.describe()));
    }
    Ok(Some(knn))
}

/// The evaluation of a run from epoch to epoch.
pub struct OnlineEvaluation {
    /// What evaluates; none without labels.
    pub knn: Option<OnlineKnn>,
    /// The last evaluation of this process: epoch and accuracy.
    pub last: Option<(u64, f64)>,
    /// The accuracy before the first step, of a run that began with given weights.
    pub start: Option<f64>,
    recipe: Recipe,
}

impl OnlineEvaluation {
    /// Nothing has been evaluated yet.
    pub fn new(knn: Option<OnlineKnn>, recipe: &Recipe) -> Self {
        Self { knn, last: None, start: None, recipe: recipe.clone() }
    }
}

/// The accuracy before the first step that the log of a run has.
pub fn logged_start(run: &RunReader) -> Result<Option<f64>, RunError> {
    let mut start = None;
    run.each_record(|record| start = start.or_else(|| record.get(START)?.as_f64()))?;
    Ok(start)
}

/// The key of that accuracy in the log.
pub const START: &str = "knn_start";

impl Evaluator<Pretraining> for OnlineEvaluation {
    fn evaluate(&mut self, trained: &Pretraining, epoch: u64) -> Evaluation {
        let Some(knn) = &self.knn else { return Evaluation::default() };
        // Not ended by a signal: the log of a run that was stopped must be that of an unbroken one.
        match knn.network_top1(teacher(trained.learner()), &|| false) {
            Ok(top1) => {
                self.last = Some((epoch, top1));
                let mut numbers = vec![("knn_top1".to_owned(), top1)];
                let fall = self.start.and_then(|start| Some((start, fall(start, top1, knn.judged(), &self.recipe)?)));
                let Some((start, words)) = fall else {
                    return Evaluation { numbers, words: format!("kNN top-1 {top1:.1} %") };
                };
                numbers.push(("knn_below_start".to_owned(), start - top1));
                Evaluation { numbers, words: format!("warning: {words}") }
            }
            Err(error) => Evaluation { numbers: Vec::new(), words: format!("no kNN: {error}") },
        }
    }

    fn evaluate_start(&mut self, trained: &Pretraining) -> Evaluation {
        // A run that was stopped before its first step has it in its log.
        let Some(knn) = self.knn.as_ref().filter(|_| self.start.is_none()) else { return Evaluation::default() };
        match knn.network_top1(teacher(trained.learner()), &|| false) {
            Ok(top1) => {
                self.start = Some(top1);
                let words = format!("kNN top-1 {top1:.1} %, which the run should not fall below");
                Evaluation { numbers: vec![(START.to_owned(), top1)], words }
            }
            Err(error) => Evaluation { numbers: Vec::new(), words: format!("no kNN: {error}") },
        }
    }
}

/// The network that a run is about.
pub fn teacher(learner: &Learner) -> Network<'_> {
    Network::new(learner.vit(), &learner.teacher, learner.device())
}

/// The backbone that a run of this recipe begins with: that of the given weights, or one that is drawn. A parameter begins as
/// its name says, so the head need not be there.
pub fn untrained(
    recipe: &Recipe,
    beginning: Option<&Beginning>,
    device: &Device,
) -> Result<(Vit, ParamSet), ConfigError> {
    let mut layout = Layout::default();
    let vit = Vit::new(&mut layout, BACKBONE, vit_config(recipe)?);
    let mut weights = vit.initial(&layout, recipe.start(), device, recipe.seed());
    if let Some(beginning) = beginning {
        let mut student = weights.duplicate();
        beginning.put_into(&layout, vit.config(), &mut student, &mut weights, Vec::new());
    }
    Ok((vit, weights))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ssl::recipe::RawRecipe;
    use ssl::setup::learner_options;
    use tensor::ParamId;

    fn recipe(more: &str) -> (Arc<dyn Source>, Recipe) {
        let train = images::open("synthetic:train=24,size=16", data::Split::Train).unwrap();
        let text =
            "arch = \"vit_nano\"\npatch_size = 8\nhead_hidden = 16\nhead_bottleneck = 16\nout_dim = 8\nseed = 5\n";
        let raw = RawRecipe::from_toml(&(text.to_owned() + more), "test").unwrap();
        let recipe = raw.resolve(&images::facts(&*train, 3, Default::default()).unwrap()).unwrap();
        (train, recipe)
    }

    #[test]
    fn the_untrained_network_is_the_one_that_a_run_begins_with() {
        let (_, recipe) = recipe("");
        let device = Device::cpu(Default::default()).unwrap();
        let method = ssl::method::of(&recipe);
        let options = learner_options(&recipe).unwrap();
        let learner = Learner::new(&device, &options, |l, v, d| method.build(l, v, d)).unwrap();
        let (_, weights) = untrained(&recipe, None, &device).unwrap();
        for i in 0..weights.len() {
            assert_eq!(weights[ParamId(i)].to_f32(), learner.student[ParamId(i)].to_f32(), "parameter {i}");
        }
        assert!(weights.len() > 50);
    }

    #[test]
    fn a_recipe_says_how_many_images_vote_and_are_classified() {
        let (train, recipe) = recipe("knn_voters = 10\nknn_queries = 7");
        let knn = |held_out| {
            let host = Device::cpu(Default::default()).unwrap();
            of_recipe(&recipe, train.clone(), held_out, ReadOptions::default(), host).unwrap().unwrap()
        };
        let held_out = knn(Ok(train.clone()));
        assert_eq!(held_out.describe(), "7 of 24 held-out images by 10 of 24 training images");
        assert_eq!(held_out.k(), 2, "a quarter of those that vote");
        assert_eq!(knn(Err("no val".into())).describe(), "10 of 24 training images, each by all others");
        let whole = InputSpec { whole: true, ..InputSpec::center((16, 16)) };
        assert_eq!(input_spec(&recipe), whole);
    }
}
