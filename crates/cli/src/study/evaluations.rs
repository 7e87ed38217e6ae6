//! The evaluations of a study: an `eval all` for every run that has ended, whose numbers go into the table.
//!
//! What is stored already is not computed again, and what is stored of other weights is an error of that run's evaluation.

use std::fs;
use std::io;
use std::process::{Child, Command, Stdio};

use ::study::pool::{Event, Started, Work};
use ::study::{self as studies, Plan, RunOutcome, StudyRun, Summary};

use super::folder::StudyFolder;
use super::work::{ask_to_stop, of_study};
use crate::args::StudyArgs;
use crate::error::CliError;
use crate::progress::{Console, Meter};
use crate::signals::Stop;

/// The evaluations of a study's runs, at work or ended.
pub struct Evaluations<'a> {
    plan: &'a Plan,
    /// The numbers of the runs that are to be evaluated.
    order: Vec<usize>,
    folder: &'a StudyFolder,
    args: &'a StudyArgs,
    /// Threads of each.
    threads: Option<usize>,
    console: &'a Console,
    stop: &'a Stop,
    meter: Meter,
    done: usize,
    running: usize,
    /// What became of the runs, with the numbers of the evaluations.
    outcomes: Vec<RunOutcome>,
    failed: bool,
    /// What went wrong with the study's own files.
    failure: Option<CliError>,
}

/// What there is when no evaluation is at work any more.
pub struct Evaluated {
    /// What became of each run.
    pub outcomes: Vec<RunOutcome>,
    /// Whether one of the evaluations failed.
    pub failed: bool,
    /// What went wrong with the study's own files.
    pub failure: Option<CliError>,
}

impl<'a> Evaluations<'a> {
    /// None has begun. Of the selected runs those with a result are evaluated.
    pub fn new(
        plan: &'a Plan,
        selected: &[usize],
        folder: &'a StudyFolder,
        args: &'a StudyArgs,
        threads: Option<usize>,
        console: &'a Console,
        stop: &'a Stop,
        outcomes: Vec<RunOutcome>,
    ) -> Self {
        let has_result = |run: &usize| matches!(outcomes[*run].ended, studies::Ended::Judged(_));
        let order = selected.iter().copied().filter(has_result).collect();
        let meter = Meter::started(console, "evaluations");
        let (done, running, failed, failure) = (0, 0, false, None);
        Self { plan, order, folder, args, threads, console, stop, meter, done, running, outcomes, failed, failure }
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
        let mut command = of_study(self.args, self.threads, &["eval", "all"])?;
        command.arg("--only").arg(self.plan.evaluate.join(","));
        command.arg("--weights").arg(self.folder.run(run)).arg("--data").arg(&run.source);
        if let Some(other) = &run.other {
            command.arg("--other").arg(other);
        }
        command.arg("--out").arg(self.folder.evaluation(run));
        Ok(command)
    }

    fn end(&mut self, run: usize, found: Result<(), String>) {
        let planned = &self.plan.runs[run];
        (self.done, self.running) = (self.done + 1, self.running.saturating_sub(1));
        self.outcomes[run].scores = match &found {
            Ok(()) => self.folder.scores(planned, &self.plan.scores),
            Err(_) => Vec::new(),
        };
        if let Err(why) = found {
            self.failed = true;
            self.console.say(&format!("{}: not evaluated: {}", planned.name, text::message(&why)));
        }
        if let Err(error) = self.folder.write(&Summary::of(self.plan, &self.outcomes)) {
            self.failure.get_or_insert(error);
        }
        let about = format!("{} at work", self.running);
        self.meter.show(self.done as u64, self.order.len() as u64, &about);
    }
}

impl Work for Evaluations<'_> {
    fn start(&mut self, run: usize) -> io::Result<Started> {
        let planned = &self.plan.runs[run];
        if let Some(evaluations) = self.folder.evaluation(planned).parent() {
            fs::create_dir_all(evaluations)?;
        }
        let mut command = self.command(planned)?;
        let log = self.folder.log_of(planned, &command)?;
        Ok(Started::Process(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?))
    }

    fn stop(&mut self, process: &mut Child) {
        ask_to_stop(process);
    }

    fn heard(&mut self, event: Event) {
        match event {
            Event::Began(_) => self.running += 1,
            Event::Waits(_) => {}
            Event::Ended(_, status) if !status.success() && self.should_stop() => {}
            Event::Ended(run, status) if status.success() => self.end(run, Ok(())),
            Event::Ended(run, status) => {
                let said = self.folder.error(&self.plan.runs[run]);
                self.end(run, Err(said.unwrap_or_else(|| format!("it ended with {status}; see its log"))));
            }
            Event::NotStarted(run, error) => self.end(run, Err(format!("it could not be started: {error}"))),
        }
    }

    fn should_stop(&self) -> bool {
        self.stop.requested() || self.failure.is_some()
    }
}
