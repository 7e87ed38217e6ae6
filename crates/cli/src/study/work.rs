//! The runs of a study as processes, and what is said of them.

use std::io;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ::study::pool::{Event, Started, Work};
use ::study::{Ended, Plan, RunOutcome, StudyRun, Summary};
use ssl::recipe::Recipe;
use train::run::{Activity, RunReader};

use super::folder::StudyFolder;
use super::outcome;
use crate::args::StudyArgs;
use crate::error::CliError;
use crate::output;
use crate::progress::{Console, Meter};
use crate::signals::Stop;

/// How often the logs of runs are read to see how far they are.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The runs of a study, at work or ended.
pub struct Runs<'a> {
    plan: &'a Plan,
    recipes: &'a [Recipe],
    folder: &'a StudyFolder,
    args: &'a StudyArgs,
    /// Threads of each run.
    threads: Option<usize>,
    console: &'a Console,
    stop: &'a Stop,
    meter: Meter,
    looked: Instant,
    running: Vec<usize>,
    outcomes: Vec<RunOutcome>,
    /// What went wrong with the study's own files.
    failure: Option<CliError>,
}

impl<'a> Runs<'a> {
    /// None has begun.
    pub fn new(
        plan: &'a Plan,
        recipes: &'a [Recipe],
        folder: &'a StudyFolder,
        args: &'a StudyArgs,
        at_once: usize,
        console: &'a Console,
        stop: &'a Stop,
    ) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let share = (at_once > 1).then(|| (cores / at_once).max(1));
        let threads = args.device.threads.map(usize::from).or(share);
        let (meter, outcomes) = (Meter::new(console, "steps"), vec![RunOutcome::open(); plan.runs.len()]);
        let (running, looked, failure) = (Vec::new(), Instant::now(), None);
        Self { plan, recipes, folder, args, threads, console, stop, meter, looked, running, outcomes, failure }
    }

    /// What became of the runs, and what went wrong with the study's files.
    pub fn into_outcomes(self) -> (Vec<RunOutcome>, Option<CliError>) {
        (self.outcomes, self.failure)
    }

    fn command(&self, run: &StudyRun) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("pretrain").arg("--data").arg(&run.source).arg("--out").arg(self.folder.run(run));
        if let Some(file) = &run.file {
            command.arg("--recipe").arg(file);
        }
        for setting in &run.settings {
            command.arg("--set").arg(setting);
        }
        if let Some(threads) = self.threads {
            command.arg("--threads").arg(threads.to_string());
        }
        command.arg("--device").arg(&self.args.device.device).arg("--json");
        command.arg("--stop-with").arg(std::process::id().to_string());
        Ok(command)
    }

    fn is_busy(&self, run: &StudyRun) -> bool {
        let reader = RunReader::open(&self.folder.run(run));
        reader.is_ok_and(|reader| matches!(reader.activity(), Some(Activity::Training { .. })))
    }

    /// The steps that a run has logged.
    fn steps_of(&self, run: usize) -> u64 {
        let reader = RunReader::open(&self.folder.run(&self.plan.runs[run]));
        let record = reader.ok().and_then(|reader| reader.last_record("step").ok()?);
        record.and_then(|record| record.get("step")?.as_u64()).unwrap_or(0)
    }

    fn show(&mut self) {
        let total = self.recipes.iter().map(Recipe::total_steps).sum();
        let ended = |run: usize| self.outcomes[run].ended != Ended::Open;
        let of = |run: usize| if ended(run) { self.recipes[run].total_steps() } else { self.steps_of(run) };
        let done = (0..self.outcomes.len()).filter(|&run| ended(run) || self.running.contains(&run)).map(of).sum();
        let ended = self.outcomes.iter().filter(|outcome| outcome.ended != Ended::Open).count();
        let about =
            format!("{ended} of {} done, {} at work", text::count(self.outcomes.len(), "run"), self.running.len());
        self.meter.show(done, total, &about);
    }

    fn end(&mut self, run: usize, outcome: RunOutcome) {
        self.running.retain(|other| *other != run);
        let name = &self.plan.runs[run].name;
        let knn = outcome.knn.map_or(String::new(), |knn| {
            let (trained, raw, untrained) = (knn.trained, knn.raw_pixels, knn.untrained);
            format!(", kNN top-1 {trained:.1} %, raw pixels {raw:.1} %, untrained {untrained:.1} %")
        });
        match &outcome.ended {
            Ended::Judged(word) => self.console.say(&format!("{name}: {}{knn}", word.replace('_', " "))),
            Ended::Failed(why) => self.console.say(&format!("{name}: failed: {}", text::message(why))),
            Ended::Open => self.console.say(&format!("{name}: stopped")),
        }
        self.outcomes[run] = outcome;
        if let Err(error) = self.folder.write(&Summary::of(self.plan, &self.outcomes)) {
            self.failure.get_or_insert(error);
        }
    }
}

impl Work for Runs<'_> {
    fn start(&mut self, run: usize) -> io::Result<Started> {
        let planned = &self.plan.runs[run];
        if self.is_busy(planned) {
            return Ok(Started::Busy);
        }
        let mut command = self.command(planned)?;
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let shown = words.map(|word| output::shell(&word.to_string_lossy())).collect::<Vec<_>>().join(" ");
        let (result, log) = self.folder.outputs(planned, &shown)?;
        Ok(Started::Process(command.stdin(Stdio::null()).stdout(result).stderr(log).spawn()?))
    }

    fn stop(&mut self, process: &mut Child) {
        #[cfg(unix)]
        if let Some(pid) = i32::try_from(process.id()).ok().and_then(rustix::process::Pid::from_raw) {
            _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        #[cfg(not(unix))]
        let _ = process.kill();
    }

    fn heard(&mut self, event: Event) {
        match event {
            Event::Began(run) => {
                self.running.push(run);
                self.console.say(&format!("{}: begun", self.plan.runs[run].name));
            }
            Event::Waits(run) => {
                self.console.say(&format!("{}: waits for another process that works on it", self.plan.runs[run].name));
            }
            Event::Ended(run, status) => {
                let (planned, recipe) = (&self.plan.runs[run], &self.recipes[run]);
                let outcome = outcome(self.folder, planned, recipe, &status.to_string(), self.stop.requested());
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
        self.stop.requested() || self.failure.is_some()
    }
}
