//! A run from its first step, or its last checkpoint, to its end.
//!
//! The loop knows nothing of terminals or of evaluation: an [`Observer`] sees its progress, evaluates when asked and says
//! when to stop. What an observer does cannot change what is learnt.

mod feed;
mod setup;
mod state;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::{BadSample, Batch, Loader, LoaderError, Source};
use model::DropPath;
use random::{Key, Purpose};
use serde_json::json;
use tensor::Device;

use crate::health::{Health, RANK_ROWS, Vitals};
use crate::learner::{LearnError, Learner, StepReport};
use crate::loss::NotFinite;
use crate::memory::plan_and_reserve;
use crate::recipe::Recipe;
use crate::run::{Checkpoints, EventLog, MetricsLog, Record, RunError, RunFolder};
use crate::schedule::{Schedules, StepValues};

pub(crate) use feed::AHEAD;
use feed::{Fed, Feed};
pub(crate) use setup::PREFETCH;
use setup::can_finish;
pub use setup::{learner_options, loader_config, upload, view_shapes, vit_config};

/// Share of the time spent waiting for data from which on that is worth a word.
const MUCH_WAITING: f64 = 0.2;
/// The first checkpoint is written after this long at the latest.
const FIRST_SAVE: Duration = Duration::from_secs(20);

/// Why a run stopped before its end.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The network or the device.
    #[error(transparent)]
    Learn(#[from] LearnError),
    /// The data.
    #[error(transparent)]
    Data(#[from] LoaderError),
    /// The run folder.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A checkpoint of this program that does not fit this run.
    #[error("{}: {what}; remove the file to go on from the one before", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Weights that are not finite, found when they were to be saved.
    #[error(
        "step {step}: {name} has weights that are not finite, so they were not saved. {kept} In a new run (another --out) a \
         lower lr or weight_decay usually helps"
    )]
    Weights {
        /// Whose.
        name: &'static str,
        /// The step.
        step: u64,
        /// The last good checkpoint, in words.
        kept: String,
    },
    /// A value that is not finite.
    #[error(
        "step {step}: {term} is not finite, so training stopped before it could change a weight. {kept} {report} In a new run \
         (another --out) a lower lr, a longer warm-up or a smaller clip_grad usually helps"
    )]
    NotFinite {
        /// The step.
        step: u64,
        /// Which quantity.
        term: String,
        /// The last good checkpoint, in words.
        kept: String,
        /// Where the batch is described, in words.
        report: String,
    },
}

/// Where a run is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Steps done.
    pub step: u64,
    /// Steps in all.
    pub total_steps: u64,
    /// Epoch of the last step, from 0.
    pub epoch: u64,
    /// Loss of the last step.
    pub loss: f64,
    /// Images per second since the last report.
    pub images_per_second: f64,
    /// Share of the time spent waiting for data since the last report.
    pub data_wait: f64,
}

/// The face of a run.
pub trait Observer {
    /// After every step.
    fn step(&mut self, progress: &Progress);
    /// Something that a person should read: a resume, a verdict.
    fn say(&mut self, text: &str);
    /// An image that could not be read; another took its place.
    fn skipped(&mut self, bad: &BadSample);
    /// Numbers to log after an epoch that is due for evaluation, such as the accuracy of kNN.
    fn evaluate(&mut self, learner: &Learner, epoch: u64) -> Vec<(String, f64)>;
    /// Whether to save and stop now.
    fn should_stop(&self) -> bool;
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All steps are done.
    Finished,
    /// The observer asked for it; the same command continues.
    Stopped {
        /// Steps done.
        step: u64,
    },
}

/// A run that is ready to go on.
pub struct Trainer {
    recipe: Recipe,
    schedules: Schedules,
    learner: Learner,
    health: Health,
    folder: RunFolder,
    checkpoints: Checkpoints,
    metrics: MetricsLog,
    events: EventLog,
    source: Arc<dyn Source>,
    step: u64,
    saved: Option<u64>,
    /// What was wrong at the last look, in words.
    verdict: Option<String>,
}

impl Trainer {
    /// Opens or creates the run in `folder`: from its newest usable checkpoint, or from the beginning.
    pub fn open(
        device: &Device,
        recipe: Recipe,
        folder: RunFolder,
        source: Arc<dyn Source>,
        observer: &mut dyn Observer,
    ) -> Result<Self, TrainError> {
        let options = learner_options(&recipe).map_err(LearnError::from)?;
        if let Some(plan) =
            plan_and_reserve(device, &options, &view_shapes(&recipe), recipe.batch_size(), recipe.drop_path())?
        {
            observer.say(&plan.in_words());
        }
        let mut learner = Learner::new(device, options)?;
        let checkpoints = folder.checkpoints();
        let recovered = checkpoints.recover()?;
        for skipped in &recovered.skipped {
            observer.say(&format!("{skipped}: going back to the checkpoint before it"));
        }
        let (step, health) = match &recovered.checkpoint {
            Some(checkpoint) => (checkpoint.step(), state::restore(checkpoint, &mut learner)?),
            None => (0, Health::default()),
        };
        let saved = recovered.checkpoint.as_ref().map(|c| c.step());
        if let Some(step) = saved {
            observer.say(&format!("continuing {} after step {step}", folder.root().display()));
        } else if !folder.is_new() {
            observer
                .say(&format!("{}: no checkpoint had been written yet, so it starts over", folder.root().display()));
        }
        let (metrics, _) = folder.metrics(saved)?;
        let events = folder.events(saved.map_or(0, |s| s + 1))?;
        let schedules = Schedules::new(&recipe);
        let verdict = None;
        Ok(Self {
            recipe,
            schedules,
            learner,
            health,
            folder,
            checkpoints,
            metrics,
            events,
            source,
            step,
            saved,
            verdict,
        })
    }

    /// The network being trained.
    pub fn learner(&self) -> &Learner {
        &self.learner
    }

    /// Steps done so far.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// What was wrong with the run when it was last looked at, in words.
    pub fn verdict(&self) -> Option<&str> {
        self.verdict.as_deref()
    }

    /// The run's folder.
    pub fn folder(&self) -> &RunFolder {
        &self.folder
    }

    /// Trains to the end, or until the observer asks to stop; what was learnt is saved in either case.
    pub fn run(&mut self, observer: &mut dyn Observer) -> Result<Outcome, TrainError> {
        let (total, per_epoch) = (self.schedules.total_steps(), self.schedules.steps_per_epoch());
        let start = (self.step / per_epoch, (self.step % per_epoch) as usize);
        let mut config = loader_config(&self.recipe);
        config.finish = !can_finish(self.learner.device(), &config);
        let loader = Loader::start(self.source.clone(), config, start.0, start.1, self.recipe.epochs() as u64)?;
        let mut feed = Feed::new(loader, self.learner.device())?;
        let mut pace = Pace::new();
        let mut last_save = Instant::now();
        let save_every = Duration::from_secs_f64(self.recipe.checkpoint_minutes() * 60.0);
        while self.step < total {
            if observer.should_stop() {
                self.save()?;
                return Ok(Outcome::Stopped { step: self.step });
            }
            let fed = feed.next()?.ok_or(LoaderError::Stopped)?;
            for bad in &fed.batch.substituted {
                observer.skipped(bad);
            }
            let values = self.schedules.at(self.step);
            let report = self.train_on(&fed, &values)?;
            self.step += 1;
            self.health.observe(&report);
            pace.add(self.recipe.batch_size(), feed.waited());

            let (images_per_second, data_wait) = pace.rates();
            let loss = report.loss.loss;
            let (step, epoch) = (self.step, values.epoch);
            observer.step(&Progress { step, total_steps: total, epoch, loss, images_per_second, data_wait });
            if self.step.is_multiple_of(self.recipe.log_every() as u64) || self.step == total {
                self.log(&fed, &report, &values, &pace, observer)?;
                if data_wait > MUCH_WAITING {
                    observer.say(&feed.advice());
                }
                pace = Pace::starting_at(feed.waited());
            }
            feed.recycle(fed);
            if self.step.is_multiple_of(per_epoch) {
                self.end_epoch(values.epoch, observer)?;
                pace = Pace::starting_at(feed.waited());
            }
            if last_save.elapsed() >= self.until_save(save_every) {
                self.save()?;
                last_save = Instant::now();
            }
        }
        self.save()?;
        Ok(Outcome::Finished)
    }

    /// One step on a batch; a value that is not finite ends the run with the batch's identity on disk.
    fn train_on(&mut self, fed: &Fed, values: &StepValues) -> Result<StepReport, TrainError> {
        let (views, batch) = (fed.views(), &fed.batch);
        let drop_path = self.drop_path(batch, values.epoch);
        match self.learner.step(&views, batch.samples.len(), drop_path.as_ref(), values) {
            Ok(report) => Ok(report),
            Err(LearnError::NotFinite(e)) => Err(self.not_finite(e, batch)),
            Err(e) => Err(e.into()),
        }
    }

    /// Each view of each image draws from its own key, in the order of the rows: globals view by view, then locals.
    fn drop_path(&self, batch: &Batch, epoch: u64) -> Option<DropPath> {
        let rate = self.recipe.drop_path();
        if rate == 0.0 {
            return None;
        }
        let views = batch.groups.iter().map(|g| g.count).sum::<usize>() / batch.samples.len();
        let key = Key::new(self.recipe.seed(), Purpose::DropPath).epoch(epoch);
        let keys = (0..views).flat_map(|v| batch.samples.iter().map(move |&s| key.sample(s).view(v as u32)));
        Some(DropPath::draw(rate, self.learner.vit().config().depth, keys))
    }

    fn not_finite(&self, error: NotFinite, batch: &Batch) -> TrainError {
        let names: Vec<String> = batch.samples.iter().map(|&i| self.source.name(i as usize)).collect();
        let identity = json!({
            "step": self.step, "epoch": batch.epoch, "position": batch.position, "term": error.term,
            "samples": batch.samples, "names": names,
        });
        // That the description could not be written must not hide why the run stopped.
        let report = match self.folder.write("not-finite.json", format!("{identity:#}\n").as_bytes()) {
            Ok(path) => format!("The batch is described in {}.", path.display()),
            Err(e) => {
                format!("The batch could not be described in the run's folder: {e}. Its images: {}.", names.join(", "))
            }
        };
        TrainError::NotFinite { step: self.step, term: error.term, kept: self.kept(), report }
    }

    /// The last good checkpoint, in words.
    fn kept(&self) -> String {
        match self.saved {
            Some(step) => format!("The checkpoint of step {step} is intact."),
            None => "No checkpoint had been written yet.".into(),
        }
    }

    fn log(
        &mut self,
        fed: &Fed,
        report: &StepReport,
        values: &StepValues,
        pace: &Pace,
        observer: &mut dyn Observer,
    ) -> Result<(), TrainError> {
        let features = self.learner.teacher_features(&[fed.globals(RANK_ROWS)])?;
        let magnitude = &self.learner.student[self.learner.head().magnitude()];
        let vitals = self.health.vitals(report, magnitude, self.recipe.student_temp(), Some(&features));
        self.verdict = vitals.in_words(self.recipe.out_dim()).filter(|_| !values.last_layer_frozen);
        if let Some(words) = &self.verdict {
            observer.say(words);
        }
        let record = step_record(self.step, values, &vitals, report, pace);
        self.metrics.append(&record)?;
        self.events.append(&record)?;
        Ok(())
    }

    fn end_epoch(&mut self, epoch: u64, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let every = self.recipe.knn_every() as u64;
        let last = epoch + 1 == self.recipe.epochs() as u64;
        if every == 0 || !((epoch + 1).is_multiple_of(every) || last) {
            return Ok(());
        }
        let mut record = Record::new(self.step).whole("epoch", epoch as i64);
        let found = observer.evaluate(&self.learner, epoch);
        self.learner.device().check().map_err(LearnError::from)?;
        if found.is_empty() {
            return Ok(());
        }
        for (key, value) in found {
            record = record.number(&key, value);
        }
        self.metrics.append(&record)?;
        self.events.append(&record)?;
        Ok(())
    }

    /// The first checkpoint comes early: a short run has something to lose too.
    fn until_save(&self, every: Duration) -> Duration {
        if self.saved.is_none() { every.min(FIRST_SAVE) } else { every }
    }

    fn save(&mut self) -> Result<(), TrainError> {
        if self.saved == Some(self.step) {
            return Ok(());
        }
        // A gradient was finite at every step, but an update may still have left the range of numbers.
        for (name, set) in [("the student", &self.learner.student), ("the teacher", &self.learner.teacher)] {
            if tensor::ops::squared_norms(set).iter().any(|square| !square.is_finite()) {
                return Err(TrainError::Weights { name, step: self.step, kept: self.kept() });
            }
        }
        self.metrics.sync()?;
        state::save(&self.checkpoints, self.step, &self.learner, &self.health)?;
        self.saved = Some(self.step);
        Ok(())
    }
}

fn step_record(step: u64, values: &StepValues, vitals: &Vitals, report: &StepReport, pace: &Pace) -> Record {
    let (images_per_second, data_wait) = pace.rates();
    let mut record = Record::new(step)
        .whole("epoch", values.epoch as i64)
        .number("loss", vitals.loss)
        .number("divergence", vitals.divergence)
        .number("teacher_entropy", vitals.teacher_entropy)
        .whole("prototypes_in_use", vitals.prototypes_in_use as i64)
        .number("usage_perplexity", vitals.usage_perplexity)
        .number("kappa_min", vitals.kappa[0])
        .number("kappa_median", vitals.kappa[1])
        .number("kappa_max", vitals.kappa[2])
        .number("gradient_norm", vitals.gradient_norm)
        .whole("tensors_clipped", report.gradient.clipped as i64);
    if let Some(rank) = vitals.feature_rank {
        record = record.number("feature_rank", rank);
    }
    record
        .number("lr", values.lr)
        .number("weight_decay", values.weight_decay)
        .number("momentum", values.momentum)
        .number("teacher_temperature", values.teacher_temperature)
        .number("images_per_second", images_per_second)
        .number("data_wait", data_wait)
}

/// Images and waiting since the last report.
struct Pace {
    since: Instant,
    images: usize,
    waited_before: Duration,
    waited: Duration,
}

impl Pace {
    fn new() -> Self {
        Self::starting_at(Duration::ZERO)
    }

    fn starting_at(waited: Duration) -> Self {
        Self { since: Instant::now(), images: 0, waited_before: waited, waited }
    }

    fn add(&mut self, images: usize, waited: Duration) {
        self.images += images;
        self.waited = waited;
    }

    /// Images per second, and the share of the time that went into waiting for data.
    fn rates(&self) -> (f64, f64) {
        let seconds = self.since.elapsed().as_secs_f64().max(1e-9);
        (self.images as f64 / seconds, (self.waited - self.waited_before).as_secs_f64() / seconds)
    }
}
