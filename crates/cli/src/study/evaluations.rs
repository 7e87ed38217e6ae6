//! The evaluations of a study: an `eval all` for every run that was trained to its end, whose numbers go into the table.
//!
//! What is stored already of the same network is not computed again, and what is stored of another one goes.

use std::collections::HashSet;
use std::io;
use std::process::{Child, Command, Stdio};

use ::study::pool::{Event, Started, Work};
use ::study::{RunOutcome, StudyRun, Summary};

use super::work::{Study, ask_to_stop};
use crate::error::CliError;
use crate::eval::WHY_FAILED;
use crate::progress::Meter;

/// The evaluations of a study's runs, at work or ended.
pub struct Evaluations<'a> {
    study: Study<'a>,
    /// The numbers of the runs that are evaluated.
    order: Vec<usize>,
    meter: Meter,
    done: usize,
    /// What became of the runs, with the numbers of the evaluations.
    outcomes: Vec<RunOutcome>,
    /// What has been said of protocols that are left out: of all runs on the same data it is the same.
    told: HashSet<(String, String)>,
    failed: usize,
    /// What went wrong with the study's own files.
    failure: Option<CliError>,
}

/// What there is when no evaluation is at work any more.
pub struct Evaluated {
    /// What became of each run.
    pub outcomes: Vec<RunOutcome>,
    /// How many evaluations failed.
    pub failed: usize,
    /// What went wrong with the study's own files.
    pub failure: Option<CliError>,
}

impl<'a> Evaluations<'a> {
    /// None has begun. Of the runs that are asked for those are evaluated that were trained to their end.
    pub fn new(study: Study<'a>, outcomes: Vec<RunOutcome>) -> Self {
        let order: Vec<usize> = study.selected.iter().copied().filter(|&run| outcomes[run].is_finished).collect();
        let meter = Meter::started(study.console, "evaluations");
        let (done, told, failed, failure) = (0, HashSet::new(), 0, None);
        Self { study, order, meter, done, outcomes, told, failed, failure }
    }

    /// The numbers of the runs.
    pub fn order(&self) -> Vec<usize> {
        self.order.clone()
    }

    /// What became of everything.
    pub fn end_of_work(self) -> Evaluated {
        Evaluated { outcomes: self.outcomes, failed: self.failed, failure: self.failure }
    }

    fn command(&self, run: &StudyRun) -> io::Result<Command> {
        let mut command = self.study.command(&["eval", "all"])?;
        command.args(["--only", &self.study.plan.evaluate.join(","), "--data", &run.source]);
        command.arg("--weights").arg(self.study.folder.run(run)).arg("--out").arg(self.study.folder.evaluation(run));
        if let Some(other) = &run.other {
            command.arg("--other").arg(other);
        }
        Ok(command)
    }

    /// Takes what an evaluation has stored into the table, and says what is not there and why.
    fn end(&mut self, run: usize, error: Option<String>) {
        let Study { plan, folder, console, .. } = self.study;
        let (planned, data) = (&plan.runs[run], &plan.cells[plan.runs[run].cell].data);
        self.done += 1;
        self.outcomes[run].scores = folder.scores(planned, &plan.scores);
        let mut is_explained = false;
        for (protocol, why) in folder.skipped(planned, &plan.evaluate) {
            if let Some(why) = why.strip_prefix(WHY_FAILED) {
                is_explained = true;
                console.say(&format!("{}: {protocol} failed: {}", planned.name, text::message(why)));
            } else if self.told.insert((data.clone(), protocol.to_owned())) {
                console.say(&format!("{data}: {protocol} is left out: {}", text::message(&why)));
            }
        }
        if let Some(error) = error {
            self.failed += 1;
            if !is_explained {
                console.say(&format!("{}: not evaluated: {}", planned.name, text::message(&error)));
            }
        }
        if let Err(error) = folder.write(&Summary::of(plan, &self.outcomes)) {
            self.failure.get_or_insert(error);
        }
        self.meter.show(self.done as u64, self.order.len() as u64, "");
    }
}

impl Work for Evaluations<'_> {
    fn start(&mut self, run: usize) -> io::Result<Started> {
        let planned = &self.study.plan.runs[run];
        self.study.folder.make_ready_to_evaluate(planned)?;
        let mut command = self.command(planned)?;
        let log = self.study.folder.log_of(planned, &command)?;
        Ok(Started::Process(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?))
    }

    fn stop(&mut self, process: &mut Child) {
        ask_to_stop(process);
    }

    fn heard(&mut self, event: Event) {
        match event {
            Event::Began(_) | Event::Waits(_) => {}
            Event::Ended(run, status) => {
                // One that was stopped is open, not failed; what it has found counts.
                if !status.success() && self.should_stop() {
                    let Study { plan, folder, .. } = self.study;
                    self.outcomes[run].scores = folder.scores(&plan.runs[run], &plan.scores);
                } else {
                    let folder = self.study.folder;
                    let planned = &self.study.plan.runs[run];
                    let said = || folder.error(planned).unwrap_or_else(|| format!("it ended with {status}"));
                    let error = || format!("{} ({})", said(), text::shown(&folder.log(planned)));
                    self.end(run, (!status.success()).then(error));
                }
            }
            Event::NotStarted(run, error) => self.end(run, Some(format!("it could not be started: {error}"))),
        }
    }

    fn should_stop(&self) -> bool {
        self.study.stop.requested() || self.failure.is_some()
    }
}
