//! A training from its first step, or its last checkpoint, to its end.
//!
//! The loop knows nothing of what it trains, of terminals or of evaluation. Whatever ends it after a step, what was
//! learnt is saved first, unless the weights themselves cannot be used. All processes of a run take the same turns: where
//! one fails, the others end with it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use data::loader::batches_per_epoch;
use data::{Batch, LoaderConfig, LoaderError, Source};
use serde_json::json;

use crate::collapse::{Collapse, Condition};
use crate::error::{Kept, NotFinite, StepError, TrainError, TrainFailure};
use crate::feed::{Fed, Feed};
use crate::options::{LoopOptions, Outcome};
use crate::pace::Pace;
use crate::run::{EventLog, MetricsLog, NOT_FINITE_FILE, Record, RunError, RunFolder};
use crate::state::{SavedState, State};
use crate::step;
use crate::substitutes::Substitutes;
use crate::trainable::{Position, StepRecord, Trainable};
use crate::watch::{Evaluation, Evaluator, Monitor, Progress};

/// Share of the time spent waiting for data from which on that is worth a word.
const MUCH_WAITING: f64 = 0.2;
/// The first checkpoint is written after this long at the latest: a short run has something to lose too.
const FIRST_SAVE: Duration = Duration::from_secs(20);

/// A run that is ready to go on.
pub struct Trainer<T> {
    trained: T,
    options: LoopOptions,
    folder: RunFolder,
    metrics: MetricsLog,
    events: EventLog,
    source: Arc<dyn Source>,
    step: u64,
    saved: Option<u64>,
    /// Records that are still to be written: no checkpoint may lie behind one that is missing.
    unwritten: Vec<Record>,
    substitutes: Substitutes,
    collapse: Collapse,
}

impl<T: Trainable> Trainer<T> {
    /// Goes on with the run in `folder`: from its newest usable checkpoint, or from the beginning.
    pub fn open(
        mut trained: T,
        options: LoopOptions,
        folder: RunFolder,
        source: Arc<dyn Source>,
        monitor: &mut dyn Monitor,
    ) -> Result<Self, TrainError> {
        folder.save_changes()?;
        let recovered = folder.recover()?;
        for skipped in &recovered.skipped {
            let what = if skipped.is_damaged { "falling back to the previous checkpoint" } else { "it is passed over" };
            monitor.say(&format!("{skipped}: {what}"));
        }
        let (mut substitutes, mut collapse) = (Substitutes::default(), Collapse::default());
        if let Some(checkpoint) = &recovered.checkpoint {
            let mut restore = || {
                let saved = SavedState::of(checkpoint)?;
                substitutes = Substitutes::restore(&saved)?;
                collapse = Collapse::restore(&saved)?;
                trained.restore(&saved)
            };
            restore().map_err(|error| TrainFailure::Checkpoint {
                path: checkpoint.path().to_owned(),
                what: error.to_string(),
            })?;
        }
        let saved = recovered.checkpoint.as_ref().map(|c| c.step());
        let root = folder.root().display();
        match saved {
            Some(step) => monitor.say(&format!("continuing {root} after step {step}")),
            None if folder.is_new() => {}
            None => monitor.say(&format!("{root}: no checkpoint had been written yet, so it starts over")),
        }
        if substitutes.images > 0 {
            monitor.say(&format!(
                "{substitutes}. If that has been repaired since, those steps stay as they are: for what a run gives that can \
                 read all images, begin one with another --out"
            ));
        }
        let (metrics, log) = folder.metrics(saved)?;
        if log.kept == 0 && saved.is_some_and(|step| step >= options.log_every) {
            monitor.say("metrics.jsonl has nothing of the steps so far any more; it goes on from here");
        }
        let events = folder.events(saved.map_or(0, |s| s + 1))?;
        let (step, unwritten) = (saved.unwrap_or(0), Vec::new());
        Ok(Self { trained, options, folder, metrics, events, source, step, saved, unwritten, substitutes, collapse })
    }

    /// What is trained.
    pub fn trained(&self) -> &T {
        &self.trained
    }

    /// Steps done so far.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The steps so far that were trained on substitutes for unreadable images.
    pub fn substitutes(&self) -> Substitutes {
        self.substitutes
    }

    /// The run's folder.
    pub fn folder(&self) -> &RunFolder {
        &self.folder
    }

    /// The run's folder alone: what was trained is given up.
    pub fn into_folder(self) -> RunFolder {
        self.folder
    }

    /// For a run that has collapsed: takes what is trained back to the newest checkpoint from before, whose step is
    /// returned; none where there is none. The run itself stays where it is: this is the last that is done with it.
    pub fn return_to_health(&mut self) -> Result<Option<u64>, TrainError> {
        let Some(before) = self.collapse.healthy_before() else { return Ok(None) };
        let Some(checkpoint) = self.folder.checkpoints().newest_before(before)? else { return Ok(None) };
        let restored = SavedState::of(&checkpoint).and_then(|saved| self.trained.restore(&saved));
        restored.map_err(|error| TrainFailure::Checkpoint {
            path: checkpoint.path().to_owned(),
            what: error.to_string(),
        })?;
        Ok(Some(checkpoint.step()))
    }

    /// Full batches, of all processes together, in one pass over the data.
    fn steps_per_epoch(&self) -> u64 {
        let LoaderConfig { batch_size, shard, .. } = &self.options.loader;
        batches_per_epoch(self.source.len(), batch_size * shard.of) as u64
    }

    /// Trains to the end, or until `stop` says so.
    pub fn run(
        &mut self,
        monitor: &mut dyn Monitor,
        evaluator: &mut dyn Evaluator<T>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Outcome, TrainError> {
        // Ended after the run is saved: a loader that waits for a slow disk must not hold that up.
        let mut feed = None;
        let ended = self.train(&mut feed, monitor, evaluator, stop);
        let saved = match &ended {
            Ok(_) => self.save(monitor),
            // What could not be saved is not tried a second time, and that saving fails too does not hide what ended the
            // run.
            Err(Ended { saving: true, .. }) => Ok(()),
            Err(_) if self.step == 0 => Ok(()),
            // Once the images can be read again, the run is to become what it would have been.
            Err(Ended { cause, .. }) if self.ends_on_substitutes(cause) => Ok(()),
            Err(_) => self.save(monitor).or(Ok(())),
        };
        let outcome = ended.map_err(|ended| ended.cause).and_then(|outcome| saved.map(|()| outcome));
        outcome.map_err(|cause| TrainError { kept: self.kept(&cause), cause })
    }

    fn train(
        &mut self,
        feed: &mut Option<Feed>,
        monitor: &mut dyn Monitor,
        evaluator: &mut dyn Evaluator<T>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Outcome, Ended> {
        let (epochs, per_epoch) = (self.options.epochs, self.steps_per_epoch());
        let total = epochs * per_epoch;
        // A run that was ended here before, or killed before it could say so.
        if let Some(collapsed) = self.collapsed() {
            return Ok(collapsed);
        }
        if self.step == 0 && self.options.evaluate_start {
            let evaluated = self.note_evaluation(evaluator.evaluate_start(&self.trained), 0, monitor);
            self.together(evaluated)?;
        }
        let feed = feed.insert(self.feed(per_epoch)?);
        let mut pace = Pace::starting_at(Duration::ZERO);
        let mut last_save = Instant::now();
        while self.step < total {
            if self.any(stop())? {
                return Ok(Outcome::Stopped { step: self.step });
            }
            let next = feed.next_batch().and_then(|fed| fed.ok_or(LoaderError::Stopped));
            let fed = self.together(next.map_err(TrainFailure::from))?;
            for bad in &fed.batch.substituted {
                monitor.skipped(bad);
            }
            monitor.turned(fed.batch.turned);
            let at = self.position(per_epoch);
            let loss = match self.trained.step(&fed, at) {
                Err(StepError::NotFinite(error)) => return Err(self.not_finite(error, &fed.batch).into()),
                other => other?,
            };
            self.step += 1;
            self.substitutes.note(self.step, &fed.batch);
            pace.add(self.options.loader.batch_size, feed.waited());

            let (images_per_second, data_wait) = pace.rates();
            let (step, epoch) = (self.step, at.epoch);
            monitor.step(&Progress { step, total_steps: total, epoch, loss, images_per_second, data_wait });
            if self.step.is_multiple_of(self.options.log_every) || self.step == total {
                self.log(&fed, at, &pace, monitor)?;
                if data_wait > MUCH_WAITING {
                    monitor.say(&feed.advice());
                }
                pace = Pace::starting_at(feed.waited());
                if let Some(collapsed) = self.collapsed() {
                    return Ok(collapsed);
                }
            }
            feed.recycle(fed);
            if self.step.is_multiple_of(per_epoch) {
                let evaluated = self.end_epoch(at.epoch, monitor, evaluator);
                self.together(evaluated)?;
                pace = Pace::starting_at(feed.waited());
            }
            if self.any(last_save.elapsed() >= self.until_save())? {
                let saved = self.save(monitor);
                self.together(saved).map_err(|ended| Ended { saving: true, ..ended })?;
                last_save = Instant::now();
            }
        }
        Ok(Outcome::Finished)
    }

    /// How the run ends if a collapse has lasted for too long.
    fn collapsed(&self) -> Option<Outcome> {
        let since = self.collapse.since().filter(|_| self.collapse.exhausts(self.options.patience))?;
        Some(Outcome::Collapsed { step: self.step, since })
    }

    /// Batches from the next step on.
    fn feed(&self, per_epoch: u64) -> Result<Feed, TrainFailure> {
        let (epoch, position) = (self.position(per_epoch).epoch, (self.step % per_epoch.max(1)) as usize);
        let (source, config) = (self.source.clone(), self.options.loader.clone());
        Ok(Feed::start(source, config, self.trained.device(), (epoch, position), self.options.epochs)?)
    }

    /// Whether any process says so.
    fn any(&mut self, here: bool) -> Result<bool, TrainFailure> {
        Ok(self.trained.reduce().any(here).map_err(StepError::from)?)
    }

    /// The worst condition that any process has found: each sees images of its own, and all must end at the same step.
    fn worst(&mut self, here: Condition) -> Result<Condition, TrainFailure> {
        if self.any(here == Condition::Collapsed)? {
            return Ok(Condition::Collapsed);
        }
        Ok(if self.any(here == Condition::Unclear)? { Condition::Unclear } else { Condition::Healthy })
    }

    /// What this process has found, if no other one has failed.
    fn together<R>(&mut self, here: Result<R, TrainFailure>) -> Result<R, Ended> {
        Ok(step::together(here, self.trained.reduce())?)
    }

    /// Where the next step is.
    fn position(&self, per_epoch: u64) -> Position {
        Position { step: self.step, epoch: self.step / per_epoch.max(1) }
    }

    /// Writes the identity of a batch that gave a value which is not finite, so that it can be looked at.
    fn not_finite(&self, error: NotFinite, batch: &Batch) -> TrainFailure {
        let names: Vec<String> = batch.samples.iter().map(|&i| self.source.name(i as usize)).collect();
        let identity = json!({
            "step": self.step, "epoch": batch.epoch, "position": batch.position, "term": error.term,
            "samples": batch.samples, "names": names,
        });
        // That the description could not be written must not hide why the run stopped.
        let report = match self.folder.write(NOT_FINITE_FILE, format!("{identity:#}\n").as_bytes()) {
            Ok(path) => format!("The batch is described in {}.", path.display()),
            Err(e) => {
                format!("The batch could not be described in the run's folder: {e}. Its images: {}.", names.join(", "))
            }
        };
        TrainFailure::NotFinite { step: self.step, term: error.term, report }
    }

    /// Writes the record of a step. How the training is doing is noted first: a record that cannot be written now is written
    /// with the next checkpoint, which must count it.
    fn log(&mut self, fed: &Fed, at: Position, pace: &Pace, monitor: &mut dyn Monitor) -> Result<(), Ended> {
        let record = Record::new(self.step).whole("epoch", at.epoch as i64);
        let described = self.trained.describe(fed, at, record).map_err(TrainFailure::from);
        let StepRecord { record, verdict, condition } = self.together(described)?;
        let condition = self.worst(condition)?;
        self.collapse.note(self.step, condition);
        if let Some(words) = &verdict {
            monitor.say(words);
        }
        let (images_per_second, data_wait) = pace.rates();
        let record = record.number("images_per_second", images_per_second).number("data_wait", data_wait);
        let written = self.append(record, monitor);
        self.together(written)
    }

    fn append(&mut self, record: Record, monitor: &mut dyn Monitor) -> Result<(), TrainFailure> {
        // First of all: a disk that does not answer once must not lose it.
        self.unwritten.push(record);
        // Also between two checkpoints: nobody is helped by a run whose folder is gone.
        self.folder.check_own()?;
        if !self.metrics.keep_in_place()? {
            monitor.say("metrics.jsonl was removed; it goes on from here");
        }
        self.write_records()
    }

    fn write_records(&mut self) -> Result<(), TrainFailure> {
        while let Some(record) = self.unwritten.first() {
            self.metrics.append(record)?;
            let record = self.unwritten.remove(0);
            self.events.append(&record)?;
        }
        Ok(())
    }

    fn end_epoch(
        &mut self,
        epoch: u64,
        monitor: &mut dyn Monitor,
        evaluator: &mut dyn Evaluator<T>,
    ) -> Result<(), TrainFailure> {
        let (every, epochs) = (self.options.evaluate_every, self.options.epochs);
        if every == 0 || !((epoch + 1).is_multiple_of(every) || epoch + 1 == epochs) {
            return Ok(());
        }
        let found = evaluator.evaluate(&self.trained, epoch);
        self.note_evaluation(found, epoch, monitor)
    }

    /// Says what an evaluation found, and writes it into the log.
    fn note_evaluation(
        &mut self,
        found: Evaluation,
        epoch: u64,
        monitor: &mut dyn Monitor,
    ) -> Result<(), TrainFailure> {
        self.trained.device().check().map_err(StepError::from)?;
        if !found.words.is_empty() {
            let when = match self.step {
                0 => "at the start".to_owned(),
                _ => format!("epoch {}/{}", epoch + 1, self.options.epochs),
            };
            monitor.say(&format!("{when}: {}", found.words));
        }
        monitor.evaluated(&found);
        if found.numbers.is_empty() {
            return Ok(());
        }
        let record = Record::new(self.step).whole("epoch", epoch as i64);
        let record = found.numbers.iter().fold(record, |record, (key, value)| record.number(key, *value));
        self.append(record, monitor)
    }

    fn until_save(&self) -> Duration {
        let every = self.options.save_every;
        if self.saved.is_none() { every.min(FIRST_SAVE) } else { every }
    }

    fn save(&mut self, monitor: &mut dyn Monitor) -> Result<(), TrainFailure> {
        if self.saved == Some(self.step) {
            return Ok(());
        }
        self.folder.check_own()?;
        self.write_records()?;
        self.metrics.sync()?;
        let mut state = State::default();
        self.trained.save(&mut state);
        self.substitutes.save(&mut state);
        self.collapse.save(&mut state);
        if let Some(name) = state.not_finite() {
            return Err(TrainFailure::State { name, step: self.step });
        }
        let checkpoints = self.folder.checkpoints().sparing(self.collapse.healthy_before());
        let written = state.write(&checkpoints, self.step, self.trained.device());
        // A folder that goes while a checkpoint is written shows as a file that cannot be renamed.
        let written = written.or_else(|error| self.folder.check_own().map_err(TrainFailure::from).and(Err(error)))?;
        if let Some(moved) = written.moved {
            let (path, moved) = (written.path.display(), moved.display());
            monitor.say(&format!("{path} was not of this run, which has written its own: the other is now {moved}"));
        }
        self.saved = Some(self.step);
        self.folder.note_saved(self.step);
        Ok(())
    }

    /// Whether unreadable images end the run, after others have stood in for them in steps that are not saved yet.
    fn ends_on_substitutes(&self, cause: &TrainFailure) -> bool {
        let unreadable =
            matches!(cause, TrainFailure::Data(LoaderError::TooManyBad { .. } | LoaderError::NothingReadable { .. }));
        unreadable && self.substitutes.are_after(self.saved.unwrap_or(0))
    }

    fn is_there(&self, step: u64) -> bool {
        self.folder.checkpoints().list().is_ok_and(|found| found.iter().any(|&(there, _)| there == step))
    }

    /// What a run that fails now leaves behind.
    fn kept(&self, cause: &TrainFailure) -> Kept {
        match self.saved {
            _ if matches!(cause, TrainFailure::Run(RunError::FolderLost { .. })) => Kept::NoFolder,
            Some(step) if !self.is_there(step) => Kept::Gone { step },
            Some(step) if step == self.step => Kept::All { step },
            saved if self.ends_on_substitutes(cause) => Kept::BeforeSubstitutes { saved, step: self.step },
            Some(step) => Kept::Checkpoint { step },
            None if self.step == 0 => Kept::NotBegun,
            None => Kept::Nothing,
        }
    }
}

/// Why the loop ended, and whether it was in the middle of saving.
struct Ended {
    cause: TrainFailure,
    saving: bool,
}

impl<E: Into<TrainFailure>> From<E> for Ended {
    fn from(cause: E) -> Self {
        Self { cause: cause.into(), saving: false }
    }
}
