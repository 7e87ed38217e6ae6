//! Where a run keeps what it has learnt and what there is to say of it.
//!
//! Of the processes of a run one writes: a [`Writer`]. The others are [`Witness`]es, which read the checkpoint that the run goes
//! on from and leave its folder alone.

use serde_json::Value;
use tensor::Device;

use crate::error::TrainFailure;
use crate::run::{Checkpoint, EventLog, MetricsLog, NOT_FINITE_FILE, Record, RunFolder, RunReader, Written};
use crate::state::State;
use crate::watch::Monitor;

/// What the loop wants of the place where its run is kept.
pub trait Home {
    /// Writes a record of the log. One that cannot be written now is written with the next checkpoint.
    fn append(&mut self, record: Record, monitor: &mut dyn Monitor) -> Result<(), TrainFailure>;

    /// Writes a checkpoint, and before it whatever of the log is still to be written. Beside the newest checkpoints the newest
    /// one from before the step `healthy_before` stays.
    fn save(
        &mut self,
        state: State<'_>,
        step: u64,
        healthy_before: Option<u64>,
        device: &Device,
        monitor: &mut dyn Monitor,
    ) -> Result<(), TrainFailure>;

    /// Whether the checkpoint of a step is there.
    fn holds(&self, step: u64) -> bool;

    /// Writes down which batch gave a value that is not finite; where it is, in words.
    fn describe_not_finite(&self, identity: &Value) -> String;
}

/// The one process that writes.
pub struct Writer {
    /// The run's folder.
    pub folder: RunFolder,
    metrics: MetricsLog,
    events: EventLog,
    /// Records that are still to be written: no checkpoint may lie behind one that is missing.
    unwritten: Vec<Record>,
}

impl Writer {
    /// Goes on with the log of a run after the step that was saved last.
    pub(crate) fn open(
        folder: RunFolder,
        saved: Option<u64>,
        log_every: u64,
        monitor: &mut dyn Monitor,
    ) -> Result<Self, TrainFailure> {
        let (metrics, log) = folder.metrics(saved)?;
        if log.kept == 0 && saved.is_some_and(|step| step >= log_every) {
            monitor.say("metrics.jsonl has nothing of the steps so far any more; it goes on from here");
        }
        let events = folder.events(saved.map_or(0, |s| s + 1))?;
        Ok(Self { folder, metrics, events, unwritten: Vec::new() })
    }

    fn write_records(&mut self) -> Result<(), TrainFailure> {
        while let Some(record) = self.unwritten.first() {
            self.metrics.append(record)?;
            let record = self.unwritten.remove(0);
            self.events.append(&record)?;
        }
        Ok(())
    }
}

impl Home for Writer {
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

    fn save(
        &mut self,
        state: State<'_>,
        step: u64,
        healthy_before: Option<u64>,
        device: &Device,
        monitor: &mut dyn Monitor,
    ) -> Result<(), TrainFailure> {
        self.folder.check_own()?;
        self.write_records()?;
        self.metrics.sync()?;
        let checkpoints = self.folder.checkpoints().sparing(healthy_before);
        let written = state.write(&checkpoints, step, device);
        // A folder that goes while a checkpoint is written shows as a file that cannot be renamed.
        let Written { path, moved, .. } =
            written.or_else(|error| self.folder.check_own().map_err(TrainFailure::from).and(Err(error)))?;
        if let Some(moved) = moved {
            let (path, moved) = (path.display(), moved.display());
            monitor.say(&format!("{path} was not of this run, which has written its own: the other is now {moved}"));
        }
        self.folder.note_saved(step);
        Ok(())
    }

    fn holds(&self, step: u64) -> bool {
        self.folder.checkpoints().list().is_ok_and(|found| found.iter().any(|&(there, _)| there == step))
    }

    fn describe_not_finite(&self, identity: &Value) -> String {
        match self.folder.write(NOT_FINITE_FILE, format!("{identity:#}\n").as_bytes()) {
            Ok(path) => format!("The batch is described in {}.", path.display()),
            // That the description could not be written must not hide why the run stopped.
            Err(e) => {
                let names = identity["names"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let names = names.collect::<Vec<_>>().join(", ");
                format!("The batch could not be described in the run's folder: {e}. Its images: {names}.")
            }
        }
    }
}

/// A process that does not write.
#[derive(Clone, Debug)]
pub struct Witness {
    run: RunReader,
}

impl Witness {
    /// Of the run in this folder.
    pub fn new(run: RunReader) -> Self {
        Self { run }
    }

    /// The checkpoint of a step, which another process has found to be the one to go on from.
    pub(crate) fn checkpoint(&self, step: u64) -> Result<Checkpoint, TrainFailure> {
        let found = self.run.checkpoints()?.into_iter().find(|&(there, _)| there == step);
        let unseen = |what: String| TrainFailure::Unseen { step, what };
        let Some((_, path)) = found else { return Err(unseen("it is not there".to_owned())) };
        self.run.checkpoint(&path)?.map_err(|damage| unseen(damage.to_string()))
    }
}

impl Home for Witness {
    fn append(&mut self, _: Record, _: &mut dyn Monitor) -> Result<(), TrainFailure> {
        Ok(())
    }

    fn save(
        &mut self,
        _: State<'_>,
        _: u64,
        _: Option<u64>,
        _: &Device,
        _: &mut dyn Monitor,
    ) -> Result<(), TrainFailure> {
        Ok(())
    }

    fn holds(&self, step: u64) -> bool {
        self.run.checkpoints().is_ok_and(|found| found.iter().any(|&(there, _)| there == step))
    }

    fn describe_not_finite(&self, identity: &Value) -> String {
        format!("The batch: {identity}.")
    }
}
