//! The runs of a study as processes, and what is said of them.

use std::collections::HashSet;
use std::io;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ::study::pool::{Event, Started, Work};
use ::study::{self as studies, Plan, RunOutcome, StudyRun, Summary};
use ssl::recipe::Recipe;
use train::run::{Activity, RunReader};

use super::folder::StudyFolder;
use super::found;
use crate::args::StudyArgs;
use crate::error::CliError;
use crate::machine;
use crate::progress::{Console, Meter};
use crate::signals::Stop;

/// How often the logs of runs are read to see how far they are.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What the trainings and the evaluations of a study share.
#[derive(Clone, Copy)]
pub struct Study<'a> {
    pub plan: &'a Plan,
    /// The numbers of the runs that are asked for.
    pub selected: &'a [usize],
    pub recipes: &'a [Recipe],
    pub folder: &'a StudyFolder,
    pub args: &'a StudyArgs,
    /// What `--device` of every process is.
    pub device: &'a str,
    /// Threads of each.
    pub threads: Option<usize>,
    pub console: &'a Console,
    pub stop: &'a Stop,
}

impl Study<'_> {
    /// A command of this program on the study's device, which stops with this process.
    pub fn command(&self, words: &[&str]) -> io::Result<Command> {
        let mut command = Command::new(machine::program()?);
        // Ctrl-C is for the study, which asks every process to stop once: a run that is asked twice ends without saving.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.args(words).arg("--device").arg(self.device);
        if let Some(threads) = self.threads {
            command.arg("--threads").arg(threads.to_string());
        }
        command.arg("--stop-with").arg(std::process::id().to_string());
        Ok(command)
    }
}

/// Asks a process of the study to save and stop.
pub fn ask_to_stop(process: &mut Child) {
    #[cfg(unix)]
    if let Some(pid) = i32::try_from(process.id()).ok().and_then(rustix::process::Pid::from_raw) {
        _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    #[cfg(not(unix))]
    let _ = process.kill();
}

/// The runs of a study, at work or ended.
pub struct Runs<'a> {
    study: Study<'a>,
    meter: Meter,
    looked: Instant,
    running: Vec<usize>,
    outcomes: Vec<RunOutcome>,
    /// Runs that have printed a result at an earlier start, and have not been asked yet whether it is still theirs.
    unconfirmed: HashSet<usize>,
    /// What went wrong with the study's own files.
    failure: Option<CliError>,
}

/// What there is when no run is at work any more.
pub struct Ended {
    /// What became of each run.
    pub outcomes: Vec<RunOutcome>,
    /// What went wrong with the study's own files.
    pub failure: Option<CliError>,
    /// Whether no earlier result is missing among these.
    pub is_whole: bool,
}

impl<'a> Runs<'a> {
    /// None has begun.
    pub fn new(study: Study<'a>) -> Self {
        let Study { plan, selected, recipes, folder, args, console, .. } = study;
        let outcome = |run: usize| match selected.binary_search(&run) {
            Ok(_) => RunOutcome::open(),
            Err(_) => found::outcome(folder, plan, &plan.runs[run], &recipes[run], args),
        };
        let outcomes = (0..plan.runs.len()).map(outcome).collect();
        let unconfirmed = selected.iter().copied().filter(|&run| folder.printed(&plan.runs[run]).is_some()).collect();
        let (meter, running, looked, failure) = (Meter::new(console, "steps"), Vec::new(), Instant::now(), None);
        Self { study, meter, looked, running, outcomes, unconfirmed, failure }
    }

    /// The numbers of the runs: first those that are probably finished, so that the table is soon whole.
    pub fn order(&self) -> Vec<usize> {
        let (first, rest): (Vec<usize>, Vec<usize>) =
            self.study.selected.iter().partition(|run| self.unconfirmed.contains(run));
        [first, rest].concat()
    }

    /// What became of everything.
    pub fn end_of_work(self) -> Ended {
        Ended { is_whole: self.unconfirmed.is_empty(), outcomes: self.outcomes, failure: self.failure }
    }

    fn command(&self, run: &StudyRun) -> io::Result<Command> {
        let mut command = self.study.command(&["pretrain", "--no-report", "--json"])?;
        command.arg("--data").arg(&run.source).arg("--out").arg(self.study.folder.run(run));
        for setting in &run.settings {
            command.arg("--set").arg(setting);
        }
        Ok(command)
    }

    fn is_busy(&self, run: &StudyRun) -> bool {
        let reader = RunReader::open(&self.study.folder.run(run));
        reader.is_ok_and(|reader| matches!(reader.activity(), Some(Activity::Training { .. })))
    }

    /// The last step that a run has saved.
    fn saved_step_of(&self, run: usize) -> Option<u64> {
        RunReader::open(&self.study.folder.run(&self.study.plan.runs[run])).ok()?.last_saved()
    }

    /// The steps that a run has logged.
    fn steps_of(&self, run: usize) -> u64 {
        let reader = RunReader::open(&self.study.folder.run(&self.study.plan.runs[run]));
        reader.ok().and_then(|reader| reader.last_step()).unwrap_or(0)
    }

    fn show(&mut self) {
        let selected = || self.study.selected.iter().copied();
        let total = selected().map(|run| self.study.recipes[run].total_steps()).sum();
        let ended = |&run: &usize| self.outcomes[run].ended != studies::Ended::Open;
        let of = |run: usize| if ended(&run) { self.study.recipes[run].total_steps() } else { self.steps_of(run) };
        let done = selected().filter(|run| ended(run) || self.running.contains(run)).map(of).sum();
        let ended = selected().filter(ended).count();
        let about = format!(
            "{ended} of {} done, {} at work",
            text::count(self.study.selected.len(), "run"),
            self.running.len()
        );
        self.meter.show(done, total, &about);
    }

    fn end(&mut self, run: usize, outcome: RunOutcome) {
        self.running.retain(|other| *other != run);
        let name = &self.study.plan.runs[run].name;
        let knn = outcome.knn.map_or(String::new(), |knn| {
            let (trained, raw, untrained) = (knn.trained, knn.raw_pixels, knn.untrained);
            format!(", kNN top-1 {trained:.1} %, raw pixels {raw:.1} %, untrained {untrained:.1} %")
        });
        match &outcome.ended {
            studies::Ended::Judged(word) => self.study.console.say(&format!("{name}: {}{knn}", word.replace('_', " "))),
            studies::Ended::Failed(why) => self.study.console.say(&format!("{name}: failed: {}", text::message(why))),
            studies::Ended::Open => self.study.console.say(&format!("{name}: stopped")),
        }
        self.outcomes[run] = outcome;
        self.unconfirmed.remove(&run);
        if !self.unconfirmed.is_empty() {
            // A table in which finished runs are missing must not replace the one that has them.
            return;
        }
        if let Err(error) = self.study.folder.write(&Summary::of(self.study.plan, &self.outcomes)) {
            self.failure.get_or_insert(error);
        }
    }
}

impl Work for Runs<'_> {
    fn start(&mut self, run: usize) -> io::Result<Started> {
        let planned = &self.study.plan.runs[run];
        if self.is_busy(planned) {
            return Ok(Started::Busy);
        }
        self.study.folder.forget_result_without_run(planned)?;
        let mut command = self.command(planned)?;
        let (result, log) = (self.study.folder.result_of(planned)?, self.study.folder.log_of(planned, &command)?);
        Ok(Started::Process(command.stdin(Stdio::null()).stdout(result).stderr(log).spawn()?))
    }

    fn stop(&mut self, process: &mut Child) {
        ask_to_stop(process);
    }

    fn heard(&mut self, event: Event) {
        match event {
            Event::Began(run) => {
                self.running.push(run);
                let name = &self.study.plan.runs[run].name;
                match (self.unconfirmed.contains(&run), self.saved_step_of(run)) {
                    // It only says once more what it has said.
                    (true, _) => {}
                    (false, Some(step)) => self.study.console.say(&format!("{name}: goes on after step {step}")),
                    (false, None) => self.study.console.say(&format!("{name}: begun")),
                }
            }
            Event::Waits(run) => {
                self.study
                    .console
                    .say(&format!("{}: waits for another process that works on it", self.study.plan.runs[run].name));
            }
            Event::Ended(run, status) => {
                let (planned, recipe) = (&self.study.plan.runs[run], &self.study.recipes[run]);
                let (status, is_stopping) = (status.to_string(), self.should_stop());
                let outcome = found::outcome_of_process(&self.study, planned, recipe, &status, is_stopping);
                self.end(run, outcome);
            }
            Event::NotStarted(run, error) => {
                self.end(run, RunOutcome::failed(format!("it could not be started: {error}")))
            }
        }
    }

    fn tick(&mut self) {
        if self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            self.show();
        }
    }

    fn should_stop(&self) -> bool {
        self.study.stop.requested() || self.failure.is_some()
    }
}
