//! Pre-training as the loop of [`train`] sees it: a learner, its schedules, and what it says of its health.

use std::sync::Arc;

use data::Source;
use data::loader::Shard;
use model::DropPath;
use tensor::Device;
use train::feed::Fed;
use train::home::Witness;
use train::optimizer::{GradientReport, StepValues};
use train::reduce::{Alone, Reduce, Share, SumMemory};
use train::run::{Record, RunFolder};
use train::state::{SavedState, State, StateError};
use train::{Condition, LoopOptions, Monitor, Position, StepError, StepRecord, TrainError, Trainable, Trainer};

use crate::beginning::Beginning;
use crate::branches::Branches;
use crate::health::{Course, Moment, RANK_ROWS, effective_rank};
use crate::learner::{LearnError, Learner, LearnerOptions, StepInput};
use crate::memory::{self, MemoryNeed};
use crate::method::MethodSpec;
use crate::recipe::Recipe;
use crate::schedule::Schedules;
use crate::setup::{learner_options, loop_options};
use crate::view_plan::{ViewPlan, ViewShape};

/// The key under which a checkpoint's state describes the network.
pub const NETWORK: &str = "network";

/// What the caller of a pre-training adds to it.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// The images whose features an evaluation between the steps computes at once.
    pub evaluated: Option<ViewShape>,
    /// The weights that the run begins with; none where they are drawn.
    pub beginning: Option<Arc<Beginning>>,
    /// What the run's checkpoints say of the network, so that one of them alone can be used: a text for each key.
    pub description: Vec<(&'static str, String)>,
}

/// What is pre-trained.
pub struct Pretraining {
    learner: Learner,
    schedules: Schedules,
    branches: Branches,
    /// Of the last step.
    gradient: GradientReport,
    course: Course,
    description: Vec<(&'static str, String)>,
}

/// A pre-training that could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum PretrainError {
    /// The networks, the method or the device.
    #[error(transparent)]
    Learn(#[from] LearnError),
    /// The run.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// A batch that the processes cannot share.
    #[error(
        "a batch of {batch} cannot be shared equally by {processes} processes: --batch-size {fitting} can, or any other \
         multiple of {processes}"
    )]
    Share {
        /// Its images.
        batch: usize,
        /// How many processes there are.
        processes: usize,
        /// A batch close to it that they can share.
        fitting: usize,
    },
}

/// What a pre-training is set up from, in each of the processes that train together.
pub struct Start<'a> {
    /// Where this process computes.
    pub device: &'a Device,
    /// What all of them do.
    pub recipe: &'a Recipe,
    /// [`method::of`](crate::method::of) the recipe, or one of the caller's own.
    pub method: &'a dyn MethodSpec,
    /// All images. Each process reads its share of every batch.
    pub source: Arc<dyn Source>,
    /// What the caller adds.
    pub extras: Extras,
    /// The processes.
    pub reduce: Box<dyn Reduce>,
}

/// Opens or creates the run of a recipe in `folder`, which this process trains alone.
pub fn open(
    device: &Device,
    recipe: &Recipe,
    method: &dyn MethodSpec,
    folder: RunFolder,
    source: Arc<dyn Source>,
    extras: Extras,
    monitor: &mut dyn Monitor,
) -> Result<Trainer<Pretraining>, PretrainError> {
    Start { device, recipe, method, source, extras, reduce: Box::new(Alone) }.open(folder, monitor)
}

impl Start<'_> {
    /// Opens or creates the run, in the one process that writes it.
    pub fn open(self, folder: RunFolder, monitor: &mut dyn Monitor) -> Result<Trainer<Pretraining>, PretrainError> {
        let (pretraining, options, source) = self.set_up(folder.is_new(), monitor)?;
        Ok(Trainer::open(pretraining, options, folder, source, monitor)?)
    }

    /// Takes part in the run, in every other process.
    pub fn join(self, run: Witness, monitor: &mut dyn Monitor) -> Result<Trainer<Pretraining, Witness>, PretrainError> {
        let (pretraining, options, source) = self.set_up(false, monitor)?;
        Ok(Trainer::join(pretraining, options, run, source)?)
    }

    fn set_up(
        self,
        is_new: bool,
        monitor: &mut dyn Monitor,
    ) -> Result<(Pretraining, LoopOptions, Arc<dyn Source>), PretrainError> {
        let Self { device, recipe, method, source, extras, reduce } = self;
        let Extras { evaluated, beginning, description } = extras;
        let share =
            if recipe.shard_optimizer() { Share { number: reduce.rank(), of: reduce.ranks() } } else { Share::WHOLE };
        let options = LearnerOptions { share, ..learner_options(recipe).map_err(LearnError::from)? };
        let mut run = loop_options(recipe);
        run.loader.shard = Shard { number: reduce.rank(), of: reduce.ranks() };
        run.loader.batch_size = share_of_batch(recipe.batch_size(), reduce.ranks())?;
        let (batch, drop_path) = (run.loader.batch_size, recipe.drop_path());
        let loaded = ViewPlan::multi_crop(&run.loader.views, run.loader.channels).shapes(batch);
        assert_eq!(method.views().shapes(batch), loaded, "a method's plan is of the views that the loader makes");
        let need = MemoryNeed { options: &options, method, batch, drop_path, evaluated };
        let sums = match reduce.ranks() {
            1 => SumMemory::default(),
            _ => reduce.memory(&memory::parameter_lengths(device, &options, method)?, options.wire),
        };
        if let Some(plan) = memory::plan_and_reserve_with_sums(device, &need, sums)? {
            monitor.say(&plan.in_words());
        }
        let mut pretraining = Pretraining { description, ..Pretraining::new(device, recipe, method, &options)? };
        if let Some(beginning) = &beginning {
            let taken = pretraining.learner.begin_with(beginning);
            if is_new {
                monitor.say(&format!("began with {taken}"));
            }
        }
        pretraining.learner = pretraining.learner.with_reduce(reduce);
        pretraining.learner.prepare_sums().map_err(LearnError::from)?;
        Ok((pretraining, run, source))
    }
}

/// The images of a batch that each of some processes takes.
pub fn share_of_batch(batch: usize, processes: usize) -> Result<usize, PretrainError> {
    match batch / processes {
        share if share > 0 && share * processes == batch => Ok(share),
        share => Err(PretrainError::Share { batch, processes, fitting: share.max(1) * processes }),
    }
}

impl Pretraining {
    /// The beginning of a recipe's run.
    pub(crate) fn new(
        device: &Device,
        recipe: &Recipe,
        method: &dyn MethodSpec,
        options: &LearnerOptions,
    ) -> Result<Self, LearnError> {
        let learner = Learner::new(device, options, |layout, vit, device| method.build(layout, vit, device))?;
        Ok(Self {
            learner,
            schedules: Schedules::new(recipe),
            branches: Branches::of(recipe),
            gradient: GradientReport::default(),
            course: Course::of(recipe),
            description: Vec::new(),
        })
    }

    /// The networks.
    pub fn learner(&self) -> &Learner {
        &self.learner
    }

    fn values(&self, at: Position) -> StepValues {
        self.schedules.at(at, self.learner.method.is_frozen(at))
    }

    fn draw_drop_path(&self, fed: &Fed, at: Position) -> Option<DropPath> {
        self.branches.draw(self.learner.views(), &fed.batch.keys, at.epoch)
    }
}

impl Trainable for Pretraining {
    fn device(&self) -> &Device {
        self.learner.device()
    }

    fn reduce(&mut self) -> &mut dyn Reduce {
        self.learner.reduce()
    }

    fn step(&mut self, fed: &Fed, at: Position) -> Result<f64, StepError> {
        let drop_path = self.draw_drop_path(fed, at);
        let groups = fed.groups();
        let input = StepInput { groups: &groups, keys: &fed.batch.keys, drop_path: drop_path.as_ref() };
        let report = self.learner.step(&input, at, &self.values(at))?;
        self.gradient = report.gradient;
        Ok(report.loss)
    }

    fn describe(&mut self, fed: &Fed, at: Position, record: Record) -> Result<StepRecord, StepError> {
        let features = self.learner.teacher_features(&[fed.first_of(0, RANK_ROWS)])?;
        let rank = effective_rank(&features);
        let values = self.values(at);
        let moment = Moment { course: self.course, step: at.step + 1, rank };
        let (record, found) = self.learner.method.vitals(&self.learner.student, &moment, record);
        let record = record
            .number("gradient_norm", self.gradient.norm)
            .whole("tensors_clipped", self.gradient.clipped as i64)
            .number("feature_rank", rank)
            .number("lr", values.lr)
            .number("weight_decay", values.weight_decay)
            .number("momentum", values.momentum);
        let record = self.learner.method.schedules(at, record);
        // While the prototypes are frozen their use says nothing yet.
        if values.frozen {
            return Ok(StepRecord { record, verdict: None, condition: Condition::Unclear });
        }
        let found = if found.words.is_some() { found } else { self.course.judge_rank(rank).unwrap_or(found) };
        let condition = self.course.condition(moment.step, found.verdict);
        Ok(StepRecord { record, verdict: found.words, condition })
    }

    fn collect(&mut self) -> Result<(), StepError> {
        self.learner.collect()
    }

    fn release(&mut self) {
        self.learner.release();
    }

    fn save<'a>(&'a self, state: &mut State<'a>) {
        self.learner.save(state);
        if !self.description.is_empty() {
            let said = self.description.iter().map(|(key, value)| ((*key).to_owned(), value.clone().into()));
            state.value(NETWORK, said.collect::<serde_json::Map<_, _>>());
        }
    }

    fn restore(&mut self, saved: &SavedState<'_>) -> Result<(), StateError> {
        self.learner.restore(saved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method;
    use crate::recipe::{Facts, RawRecipe};
    use data::{Batch, CropGroup};

    #[test]
    fn drop_path_is_keyed_by_the_image_whose_turn_it_was_as_its_views_are() {
        let text = "arch = \"vit_nano\"\npatch_size = 8\nhead_hidden = 16\nhead_bottleneck = 16\nout_dim = 8\n\
                    local_crops = 0\nbatch_size = 3\ndrop_path = 0.5";
        let facts = Facts { images: 30, height: 16, width: 16, labelled: false, fingerprint: 0 };
        let recipe = RawRecipe::from_toml(text, "test").unwrap().resolve(&facts).unwrap();
        let device = Device::cpu(Default::default()).unwrap();
        let pretraining =
            Pretraining::new(&device, &recipe, &*method::of(&recipe), &learner_options(&recipe).unwrap()).unwrap();

        // Image 7 could not be read, and image 20 took its place.
        let group =
            CropGroup { height: 16, width: 16, channels: 3, count: 6, pixels: vec![0; 6 * 768], finish: vec![] };
        let batch = |keys: [u64; 3], samples: [u64; 3]| {
            let (keys, samples) = (keys.to_vec(), samples.to_vec());
            Batch { epoch: 2, position: 0, keys, samples, groups: vec![group.clone()], substituted: vec![], turned: 0 }
        };
        let drawn = |batch: Batch| {
            let drawn = pretraining.draw_drop_path(&Fed::on_host(batch), Position { step: 25, epoch: 2 });
            format!("{:?}", drawn.unwrap())
        };
        let substituted = drawn(batch([4, 7, 9], [4, 20, 9]));
        assert_eq!(substituted, drawn(batch([4, 7, 9], [4, 7, 9])));
        assert_ne!(substituted, drawn(batch([4, 20, 9], [4, 20, 9])));
    }
}
