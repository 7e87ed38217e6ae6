//! A training from its first step, or its last checkpoint, to its end.
//!
//! The loop knows nothing of what it trains, of terminals or of evaluation. Whatever ends it after a step, what was
//! learnt is saved first, unless the weights themselves cannot be used. All processes of a run take the same turns: where
//! one fails, the others end with it.

use std::sync::Arc;
use std::time::Instant;

use data::loader::batches_per_epoch;
use data::{Batch, LoaderConfig, LoaderError, Source};
use serde_json::json;

use crate::collapse::{Collapse, Condition};
use crate::error::{Kept, NotFinite, StepError, TrainError, TrainFailure};
use crate::feed::{Fed, Feed};
use crate::home::{Home, Witness, Writer};
use crate::options::{LoopOptions, Outcome};
use crate::pace::{Pace, Waited};
use crate::reduce::Until;
use crate::run::{Checkpoint, Record, RunError, RunFolder};
use crate::save_times::SaveTimes;
use crate::slowest::{Comparison, Slowest, Spent};
use crate::state::{SavedState, State, StateError};
use crate::step;
use crate::substitutes::Substitutes;
use crate::trainable::{Position, StepRecord, Trainable};
use crate::watch::{Evaluation, Evaluator, Monitor, Progress};

/// Share of the time spent waiting for data from which on that is worth a word.
const MUCH_WAITING: f64 = 0.2;
/// What the first process says in place of a step where there is nothing to go on from.
const NO_CHECKPOINT: f64 = -1.0;

/// A run that is ready to go on.
pub struct Trainer<T, H = Writer> {
    trained: T,
    options: LoopOptions,
    home: H,
    source: Arc<dyn Source>,
    step: u64,
    /// The last step of which all was taken note of, in the log too.
    noted: u64,
    saved: Option<u64>,
    substitutes: Substitutes,
    collapse: Collapse,
}

impl<T: Trainable> Trainer<T, Witness> {
    /// Goes on with a run that another process writes: from where that one has said.
    pub fn join(
        mut trained: T,
        options: LoopOptions,
        home: Witness,
        source: Arc<dyn Source>,
    ) -> Result<Self, TrainError> {
        // The first process looks for it alone.
        let said = trained.reduce().told(NO_CHECKPOINT, Until::Done).map_err(StepError::from)?;
        let checkpoint = match said {
            NO_CHECKPOINT => Ok(None),
            step => home.checkpoint(step as u64).map(Some),
        };
        let checkpoint = step::together(checkpoint, trained.reduce())?;
        let restored = Restored::from(checkpoint.as_ref(), &mut trained);
        let restored = step::together(restored, trained.reduce())?;
        // Whether the log can be written.
        step::together_until(Ok::<(), TrainFailure>(()), trained.reduce(), Until::Done)?;
        Ok(Self::with(trained, options, home, source, restored))
    }
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
        // The others wait to hear from where to go on; of an error the caller tells them.
        folder.save_changes()?;
        let recovered = folder.recover()?;
        for skipped in &recovered.skipped {
            let what = if skipped.is_damaged { "falling back to the previous checkpoint" } else { "it is passed over" };
            monitor.say(&format!("{skipped}: {what}"));
        }
        let saved = recovered.checkpoint.as_ref().map(Checkpoint::step);
        let said = saved.map_or(NO_CHECKPOINT, |step| step as f64);
        trained.reduce().told(said, Until::Limit).map_err(StepError::from)?;
        // Whether the others can read it.
        step::together(Ok::<(), TrainFailure>(()), trained.reduce())?;
        let restored = Restored::from(recovered.checkpoint.as_ref(), &mut trained);
        let restored = step::together(restored, trained.reduce())?;
        let root = folder.root().display();
        match saved {
            Some(step) => monitor.say(&format!("continuing {root} after step {step}")),
            None if folder.is_new() => {}
            None => monitor.say(&format!("{root}: no checkpoint had been written yet, so it starts over")),
        }
        if restored.substitutes.images > 0 {
            monitor.say(&format!(
                "{}. If that has been repaired since, those steps stay as they are: for what a run gives that can \
                 read all images, begin one with another --out",
                restored.substitutes
            ));
        }
        let home = Writer::open(folder, saved, options.log_every, monitor);
        let home = step::together(home, trained.reduce())?;
        Ok(Self::with(trained, options, home, source, restored))
    }

    /// The run's folder.
    pub fn folder(&self) -> &RunFolder {
        &self.home.folder
    }

    /// The run's folder alone: what was trained is given up.
    pub fn into_folder(self) -> RunFolder {
        self.home.folder
    }

    /// For a run that has collapsed: takes what is trained back to the newest checkpoint from before, whose step is
    /// returned; none where there is none. The run itself stays where it is: this is the last that is done with it.
    pub fn return_to_health(&mut self) -> Result<Option<u64>, TrainError> {
        let Some(before) = self.collapse.healthy_before() else { return Ok(None) };
        let Some(checkpoint) = self.folder().checkpoints().newest_before(before)? else { return Ok(None) };
        Restored::from(Some(&checkpoint), &mut self.trained)?;
        Ok(Some(checkpoint.step()))
    }
}

/// What a checkpoint says of the run beside what is trained.
#[derive(Default)]
struct Restored {
    step: Option<u64>,
    substitutes: Substitutes,
    collapse: Collapse,
}

impl Restored {
    /// Takes what is trained to where a checkpoint was; to the beginning, where it is, without one.
    fn from(checkpoint: Option<&Checkpoint>, trained: &mut impl Trainable) -> Result<Self, TrainFailure> {
        let Some(checkpoint) = checkpoint else { return Ok(Self::default()) };
        let mut restore = || {
            let saved = SavedState::of(checkpoint)?;
            trained.restore(&saved)?;
            let (substitutes, collapse) = (Substitutes::restore(&saved)?, Collapse::restore(&saved)?);
            Ok(Self { step: Some(checkpoint.step()), substitutes, collapse })
        };
        restore().map_err(|error: StateError| TrainFailure::Checkpoint {
            path: checkpoint.path().to_owned(),
            what: error.to_string(),
        })
    }
}

impl<T: Trainable, H: Home> Trainer<T, H> {
    fn with(trained: T, options: LoopOptions, home: H, source: Arc<dyn Source>, restored: Restored) -> Self {
        let Restored { step: saved, substitutes, collapse } = restored;
        let step = saved.unwrap_or(0);
        Self { trained, options, home, source, step, noted: step, saved, substitutes, collapse }
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
            Err(Ended { cause, .. }) => {
                // Once the images can be read again, the run is to become what it would have been. All processes save, or none:
                // each may hold a part of what is saved.
                let is_lost = self.ends_on_substitutes(cause);
                match self.any(is_lost) {
                    Ok(false) => self.save(monitor).or(Ok(())),
                    // The others are gone. What is complete is saved; in the middle of a turn the last checkpoint is.
                    Err(_) if !is_lost && self.noted == self.step => self.save(monitor).or(Ok(())),
                    _ => Ok(()),
                }
            }
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
            self.together_until(evaluated, Until::Done)?;
        }
        let started = self.feed(per_epoch);
        let feed = feed.insert(self.together(started)?);
        let mut pace = Pace::starting_at(self.waited(feed));
        let mut comparison = Comparison::default();
        let mut save_times = SaveTimes::new(self.options.save_every);
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
            pace.add(self.options.loader.batch_size * self.options.loader.shard.of, self.waited(feed));
            let spent = self.exchange(&fed.batch, pace.spent())?;

            let (images_per_second, data_wait) = pace.rates();
            let (step, epoch) = (self.step, at.epoch);
            monitor.step(&Progress { step, total_steps: total, epoch, loss, images_per_second, data_wait });
            if self.step.is_multiple_of(self.options.log_every) || self.step == total {
                let slowest = comparison.add(&spent);
                self.log(&fed, at, &pace, slowest.as_ref(), monitor)?;
                if data_wait > MUCH_WAITING {
                    monitor.say(&feed.advice());
                }
                if let Some(slowest) = slowest.filter(|slowest| comparison.is_news(slowest)) {
                    monitor.say(&slowest.to_string());
                }
                pace = Pace::starting_at(self.waited(feed));
                if let Some(collapsed) = self.collapsed() {
                    return Ok(collapsed);
                }
            }
            self.noted = self.step;
            feed.recycle(fed);
            if self.step.is_multiple_of(per_epoch) {
                let evaluated = self.end_epoch(at.epoch, monitor, evaluator);
                self.together_until(evaluated, Until::Done)?;
                pace = Pace::starting_at(self.waited(feed));
            }
            if self.any(save_times.is_due())? {
                let since = Instant::now();
                let saved = self.save(monitor);
                // One process has written it.
                self.together_until(saved, Until::Done).map_err(|ended| Ended { saving: true, ..ended })?;
                save_times.saved(since);
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

    /// What this process has waited for so far.
    fn waited(&mut self, feed: &Feed) -> Waited {
        Waited { data: feed.waited(), others: self.trained.reduce().waited() }
    }

    /// What all processes tell each other after a step: how many images of it stand in for others, which is taken note of,
    /// and what they have done with their time.
    fn exchange(&mut self, batch: &Batch, spent: Spent) -> Result<Vec<Spent>, TrainFailure> {
        let [whole, data, others] = spent.to_numbers();
        let here = [Substitutes::in_batch(batch) as f64, whole, data, others];
        let all = self.trained.reduce().gather(&here).map_err(StepError::from)?;
        let substituted: f64 = all.iter().filter_map(|numbers| numbers.first()).sum();
        self.substitutes.note(self.step, substituted as u64);
        Ok(all.iter().map(|numbers| Spent::of_numbers(numbers.get(1..).unwrap_or_default())).collect())
    }

    /// Whether any process says so.
    fn any(&mut self, here: bool) -> Result<bool, TrainFailure> {
        Ok(self.trained.reduce().any(here, Until::Limit).map_err(StepError::from)?)
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
        self.together_until(here, Until::Limit)
    }

    /// The same, where the process that writes may have done something alone.
    fn together_until<R>(&mut self, here: Result<R, TrainFailure>, until: Until) -> Result<R, Ended> {
        Ok(step::together_until(here, self.trained.reduce(), until)?)
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
        let report = self.home.describe_not_finite(&identity);
        TrainFailure::NotFinite { step: self.step, term: error.term, report }
    }

    /// Writes the record of a step. How the training is doing is noted first: a record that cannot be written now is written
    /// with the next checkpoint, which must count it.
    fn log(
        &mut self,
        fed: &Fed,
        at: Position,
        pace: &Pace,
        slowest: Option<&Slowest>,
        monitor: &mut dyn Monitor,
    ) -> Result<(), Ended> {
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
        let record = match slowest {
            Some(slowest) => slowest.note_in(record),
            None => record,
        };
        let written = self.home.append(record, monitor);
        self.together(written)
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
        self.home.append(record, monitor)
    }

    fn save(&mut self, monitor: &mut dyn Monitor) -> Result<(), TrainFailure> {
        if self.saved == Some(self.step) {
            return Ok(());
        }
        self.trained.collect()?;
        let written = self.write(monitor);
        self.trained.release();
        written?;
        self.saved = Some(self.step);
        Ok(())
    }

    /// Writes a checkpoint of what was brought together for it.
    fn write(&mut self, monitor: &mut dyn Monitor) -> Result<(), TrainFailure> {
        let mut state = State::default();
        self.trained.save(&mut state);
        self.substitutes.save(&mut state);
        self.collapse.save(&mut state);
        if let Some(name) = state.not_finite() {
            return Err(TrainFailure::State { name, step: self.step });
        }
        self.home.save(state, self.step, self.collapse.healthy_before(), self.trained.device(), monitor)
    }

    /// Whether unreadable images end the run, after others have stood in for them in steps that are not saved yet.
    fn ends_on_substitutes(&self, cause: &TrainFailure) -> bool {
        let unreadable =
            matches!(cause, TrainFailure::Data(LoaderError::TooManyBad { .. } | LoaderError::NothingReadable { .. }));
        unreadable && self.substitutes.are_after(self.saved.unwrap_or(0))
    }

    /// What a run that fails now leaves behind.
    fn kept(&self, cause: &TrainFailure) -> Kept {
        match self.saved {
            _ if matches!(cause, TrainFailure::Run(RunError::FolderLost { .. })) => Kept::NoFolder,
            Some(step) if !self.home.holds(step) => Kept::Gone { step },
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
