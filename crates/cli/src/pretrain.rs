//! `pretrain`: from a command line to a trained network.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use data::{Census, Source};
use eval::{EvalError, ReadOptions};
use ssl::beginning::Beginning;
use ssl::learner::LearnError;
use ssl::pretraining::{Extras, PretrainError, Start, share_of_batch};
use ssl::recipe::{Begin, Facts, RawRecipe, Recipe};
use ssl::{method, view_plan::ViewShape};
use tensor::{Device, DeviceError};
use train::Outcome;
use train::reduce::Until;
use train::run::{Attempt, CENSUS_FILE, Difference, INITIAL_FILE, RunError, RunFolder, RunReader, Vacated};

use crate::args::PretrainArgs;
use crate::beginning;
use crate::collapse;
use crate::conclusion;
use crate::description;
use crate::device::Chosen;
use crate::dry_run;
use crate::error::CliError;
use crate::extension::{self, Length};
use crate::images;
use crate::machine;
use crate::memory;
use crate::online_knn::{self, OnlineEvaluation, input_spec};
use crate::outcome::Ended;
use crate::output;
use crate::processes::{self, Processes, ProcessesError, own};
use crate::progress::Console;
use crate::report;
use crate::signals::{self, Stop};
use crate::terminal::Terminal;
use crate::time_budget;
use crate::witness;

/// Trains, or goes on with what an earlier start of the same command began.
pub fn run(args: &PretrainArgs) -> Result<ExitCode, CliError> {
    if args.dry_run {
        processes::check_alone()?;
        return dry_run::show(&resolve(args, &Processes::alone())?);
    }
    if let own::Part::Parent(status) = own::start(args)? {
        return Ok(status);
    }
    let processes = Processes::find(args)?;
    let ended = train(args, &processes);
    processes.end(ended)
}

/// Trains in one of the processes of a run; the status to end with.
fn train(args: &PretrainArgs, processes: &Processes) -> Result<u8, CliError> {
    if let Some(parent) = own::parent().or(args.stop_with) {
        signals::stop_with(parent)?;
    }
    let command = resolve(args, processes)?;
    if !processes.is_first() {
        return witness::run(&command);
    }
    let (mut vacated, mut heard) = (None, None);
    loop {
        match command.attempt(vacated.take(), &mut heard)? {
            Next::Again(folder) => vacated = Some(folder),
            Next::Ended(status) => {
                command.report(&|| heard.as_ref().is_some_and(|(_, stop)| stop.requested()));
                return Ok(status);
            }
        }
    }
}

/// What is to be trained, on which device and in which folder.
fn resolve<'a>(args: &'a PretrainArgs, processes: &'a Processes) -> Result<Command<'a>, CliError> {
    let asked = as_begun(args.recipe.asked(args.device.thread_count()?)?, args.out.as_deref())?;
    let (asked, beginning) = beginning::of(args, asked)?;
    // One GPU that was asked for by number of GPUs is no reason to go on without.
    let gpu = processes.gpu().or(args.gpus.filter(|_| !processes.are_several()).map(|_| 0));
    let device = args.device.choose_for_training(asked.residual_stream(), gpu)?;
    if processes.are_several() {
        check_several(args, processes, &device)?;
        processes.begin_on(&device.device)?;
    }
    let (train, facts) = args.recipe.open(&asked)?;
    let named_out =
        args.out.clone().or_else(|| args.minutes.map(|m| time_budget::default_out(&args.recipe.data, &asked, m)));
    let fitted = match (args.minutes, &named_out) {
        (Some(minutes), Some(out)) => time_budget::fit(&asked, &facts, minutes, &train, &device.device, out)?,
        _ => asked.clone(),
    };
    let out = match named_out {
        Some(out) => out,
        None => default_out(&args.recipe.data, &args.recipe.resolve(fitted.clone(), &facts, &[])?),
    };
    let fitted = as_begun(fitted, Some(&out))?;
    let Length { asked: fitted, before } = extension::of(args, fitted, &out)?;
    Ok(Command { args, processes, asked, fitted, before, beginning, device, train, facts, out })
}

impl Command<'_> {
    /// Writes the page that shows the run, now that nobody trains it. Everything else is done: that it cannot be written is
    /// no reason to fail.
    fn report(&self, should_stop: &dyn Fn() -> bool) {
        if self.args.no_report {
            return;
        }
        let write = || {
            let (device, of_args) = (&self.device.device, &self.args.device);
            let (host, workers) = (of_args.host(device)?, of_args.thread_count()?);
            report::of_run(&self.out, &report::Machine { device, host, workers, should_stop })
        };
        if let Err(error) = write() {
            output::note(&format!("no report: {error}"));
        }
    }
}

/// Refuses what several processes cannot do.
fn check_several(args: &PretrainArgs, processes: &Processes, device: &Chosen) -> Result<(), CliError> {
    if args.minutes.is_some() {
        let instead = "give --epochs";
        return Err(ProcessesError::ForOneProcess { what: "--minutes", instead }.into());
    }
    if device.device.is_gpu() && processes.gpu().is_none() {
        let instead = "processes that talk through MPI compute on CPUs: --device cpu";
        return Err(ProcessesError::ForOneProcess { what: "a GPU", instead }.into());
    }
    Ok(())
}

/// What was asked for, and of a run that has begun what it was begun with where its configuration is older than a key.
fn as_begun(mut asked: RawRecipe, out: Option<&Path>) -> Result<RawRecipe, CliError> {
    // A folder that cannot be read is spoken of when it is opened.
    let begun = out.and_then(|out| RunReader::open_any_attempt(out).ok().flatten());
    if let Some((saved, path)) = begun.and_then(|run| run.config().ok()) {
        asked.go_on_as(&saved, &text::shown(&path))?;
    }
    Ok(asked)
}

/// What comes after an attempt.
enum Next {
    Again(Vacated),
    /// With this status.
    Ended(u8),
}

/// What the first process tells the others.
pub mod word {
    /// To train.
    pub const TRAIN: u8 = 0;
    /// That there is nothing to do, or no more.
    pub const END: u8 = 1;
    /// That another attempt is made.
    pub const AGAIN: u8 = 2;
}

/// What the attempts of a run have in common.
pub struct Command<'a> {
    pub args: &'a PretrainArgs,
    pub processes: &'a Processes,
    asked: RawRecipe,
    /// What was asked for, and what makes it fit into the time.
    pub fitted: RawRecipe,
    /// The same for the run as it was before it was made longer, where that is asked for.
    before: Option<RawRecipe>,
    /// The weights to begin with; none where they are drawn.
    pub beginning: Option<Arc<Beginning>>,
    pub device: Chosen,
    pub train: Arc<dyn Source>,
    pub facts: Facts,
    pub out: PathBuf,
}

impl Command<'_> {
    /// The recipe of the attempt that comes after these, on which all processes agree before one of them writes a file.
    pub fn recipe_after(&self, attempts: &[Attempt]) -> Result<Recipe, CliError> {
        let recipe = self.args.recipe.resolve(self.fitted.clone(), &self.facts, attempts)?;
        if recipe.begin() != Begin::Drawn && self.beginning.is_none() {
            return Err(CliError::NoBeginning { begin: recipe.begin() });
        }
        if self.processes.are_several() {
            let version = ("the program's version".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
            // Versions are rare, and builds of one version may differ in what they compute.
            let build = ("the program's file".to_owned(), machine::build().unwrap_or_else(|| "unreadable".to_owned()));
            let device = ("what computes".to_owned(), kind_of_device(&self.device.device));
            // Where paths are relative, processes that were started in several places mean several folders.
            let out = std::path::absolute(&self.out).unwrap_or_else(|_| self.out.clone());
            let out = ("the folder of the run".to_owned(), out.display().to_string());
            let data = ("the fingerprint of the images".to_owned(), format!("{:016x}", self.facts.fingerprint));
            let keys = recipe.explain().into_iter().map(|line| (line.key.to_owned(), line.value));
            self.processes.agree_on(&[version, build, device, data, out].into_iter().chain(keys).collect())?;
            // Before there is a folder that holds this batch.
            share_of_batch(recipe.batch_size(), self.processes.count())?;
        }
        Ok(recipe)
    }

    /// Whether a run is to be made longer.
    pub fn is_extended(&self) -> bool {
        self.before.is_some()
    }

    /// Trains until the run ends, or collapses and begins again. `heard` is made once: who asks to stop asks for all of them.
    fn attempt(&self, vacated: Option<Vacated>, heard: &mut Option<(Console, Stop)>) -> Result<Next, CliError> {
        let Self { args, asked, facts, train, device, out, .. } = self;
        let attempts = match &vacated {
            Some(vacated) => vacated.attempts().to_vec(),
            None => RunFolder::attempts_in(out)?,
        };
        let recipe = self.recipe_after(&attempts)?;
        let beginning = &self.beginning;
        let method = method::of(&recipe);
        let read = ReadOptions { workers: workers(args)?, ..Default::default() };
        // Before there is a folder that holds these settings.
        memory::check_recipe(&device.device, &recipe)?;
        let begins_again = vacated.is_some();
        let folder = match vacated {
            Some(vacated) => vacated.begin(&recipe)?,
            None => {
                let before =
                    self.before.clone().map(|before| args.recipe.resolve(before, facts, &attempts)).transpose()?;
                let opened = match &before {
                    Some(before) => extension::open(out, before, &recipe, &attempts),
                    None => RunFolder::open_after(out, &recipe, &attempts),
                };
                opened.map_err(|error| other_data(error, out, &**train))?
            }
        };
        let ended = Ended { args, out, recipe: &recipe, attempts: &attempts };
        if let Some(result) = conclusion::finished(&folder, &recipe)? {
            let what = if result.collapsed.is_some() { "collapsed" } else { "is finished" };
            output::note(&format!("{}: this run {what}; give another --out to train anew", text::shown(out)));
            self.processes.told(word::END, Until::Limit)?;
            return ended.print(&result).map(Next::Ended);
        }
        folder.discard_result()?;
        // The images are still those that the run was begun with, or it would have been refused.
        if !out.join(CENSUS_FILE).exists() {
            folder.write(CENSUS_FILE, &Census::of(&**train).to_bytes())?;
        }
        if let Some(beginning) = beginning.as_ref().filter(|_| !out.join(INITIAL_FILE).exists()) {
            folder.write(INITIAL_FILE, &beginning.to_safetensors()?)?;
        }
        if self.processes.are_several() {
            output::note(&format!("{} train together", text::count(self.processes.count(), "process")));
        }
        introduce(device, &train.describe(), &recipe, out, attempts.len(), args.verbose);
        for difference in folder.changed() {
            output::note(&format!("changed from here on: {difference}"));
        }
        let held_out = images::open_held_out(&args.recipe.data);
        let watched: Vec<_> = std::iter::once(train).chain(held_out.as_ref().ok()).cloned().collect();
        let knn = online_knn::of_recipe(&recipe, train.clone(), held_out, read, args.device.host(&device.device)?)?;
        let evaluated = knn.as_ref().map(|_| evaluated_at_once(&recipe, read));
        let (beginning, description) = (beginning.clone(), description::of_recipe(&recipe)?);
        let extras = Extras { evaluated, beginning, description };

        let (console, stop) = match heard {
            Some(heard) => heard,
            None => {
                let console = Console::with_words(recipe.total_steps());
                let stop = Stop::listen(&console)?;
                heard.insert((console, stop))
            }
        };
        console.reopen();
        let faster = |images_per_second| time_budget::under_an_hour(asked, facts, &recipe, images_per_second);
        let mut terminal = Terminal::new(console, recipe.epochs(), recipe.batch_size(), &faster).watching(watched);
        let mut knn = OnlineEvaluation::new(knn, &recipe);
        let threads = args.device.host(&device.device)?.threads();
        let machine = machine::here(&device.device, threads, self.processes.count());
        let before = RunReader::open(out)?;
        if let Some(words) = other_number(&before, machine.processes) {
            output::note(&words);
        }
        // For people: that it cannot be written is no reason to fail.
        if let Err(error) = folder.note_machine(&machine, before.last_saved().unwrap_or(0)) {
            output::note(&format!("the machine is not written down: {error}"));
        }
        self.processes.told(word::TRAIN, Until::Limit)?;
        let start = Start {
            device: &device.device,
            recipe: &recipe,
            method: &*method,
            source: train.clone(),
            extras,
            reduce: self.processes.reduce(),
        };
        let opened = start.open(folder, &mut terminal);
        let trained = opened.map_err(CliError::from).and_then(|mut trainer| {
            knn.start = online_knn::logged_start(&RunReader::open(out)?)?;
            terminal.begin(trainer.step(), recipe.total_steps(), &device.device.describe());
            let outcome = trainer.run(&mut terminal, &mut knn, &|| stop.requested())?;
            Ok((trainer, outcome))
        });
        console.close();
        if begins_again && trained.as_ref().is_err_and(is_out_of_memory) {
            output::note(
                "this process may still hold memory of the attempt before: the same command has all of it again",
            );
        }
        let (trainer, outcome) = trained?;
        if terminal.skipped() > 0 {
            output::note(&format!("skipped because unreadable: {}", text::count(terminal.skipped(), "image")));
        }
        if terminal.turned() > 0 {
            output::note(&output::turned(terminal.turned()));
        }
        if let Some(changes) = images::changes(&args.recipe.data, facts.fingerprint, out) {
            output::note(&format!(
                "warning: the images are no longer those that this run began with: {changes}. What it has seen is a mixture, \
                 and the same command will not continue it"
            ));
        }
        match outcome {
            Outcome::Collapsed { since, .. } => match collapse::conclude(trainer, &recipe, since)? {
                collapse::Next::Again(vacated) => {
                    self.processes.told(word::AGAIN, Until::Limit)?;
                    Ok(Next::Again(vacated))
                }
                collapse::Next::Ended(result) => {
                    self.processes.told(word::END, Until::Limit)?;
                    ended.print(&result).map(Next::Ended)
                }
            },
            Outcome::Stopped { step } => {
                conclusion::export(&trainer, &recipe, step)?;
                ended.stopped(&trainer, stop).map(Next::Ended)
            }
            Outcome::Finished => {
                match conclusion::finish(&trainer, &recipe, &knn, self.beginning.as_deref(), &|| stop.requested()) {
                    Ok(result) => ended.print(&result).map(Next::Ended),
                    Err(CliError::Eval(EvalError::Stopped)) => ended.stopped(&trainer, stop).map(Next::Ended),
                    Err(error) => Err(error),
                }
            }
        }
    }
}

/// The error of a folder that holds another run, with which images differ, where only those do or they do too.
fn other_data(error: RunError, out: &Path, train: &dyn Source) -> CliError {
    let differs = |differences: &[Difference]| differences.iter().any(|difference| difference.key.contains("images"));
    match &error {
        RunError::OtherRun { differences, .. } if differs(differences) => match images::changes_since(train, out) {
            Some(changes) => CliError::OtherData { source: error, changes },
            None => error.into(),
        },
        _ => error.into(),
    }
}

/// Whether a GPU had too little memory for a run.
fn is_out_of_memory(error: &CliError) -> bool {
    matches!(error, CliError::Pretrain(PretrainError::Learn(LearnError::Device(DeviceError::OutOfMemory { .. }))))
}

/// The images whose features the online evaluation computes at once.
pub fn evaluated_at_once(recipe: &Recipe, read: ReadOptions) -> ViewShape {
    let (height, width) = input_spec(recipe).size;
    ViewShape { count: read.batch_size, height, width, channels: recipe.channels() }
}

fn workers(args: &PretrainArgs) -> Result<usize, CliError> {
    Ok(args.device.thread_count()?.unwrap_or(ReadOptions::default().workers))
}

/// `runs/photos-dino-vmf-vit_small`: a function of the command, so that the same command finds its run again.
fn default_out(data: &str, recipe: &Recipe) -> PathBuf {
    let name = name_of(data);
    Path::new("runs").join(format!("{name}-{}-{}-{}", recipe.method(), recipe.prototypes(), recipe.arch()))
}

/// The name of the data as a part of the name of a run.
pub fn name_of(data: &str) -> String {
    match data.split(':').next() {
        Some("synthetic") => "synthetic".to_owned(),
        _ => {
            let path = Path::new(data);
            // `.` and `..` have no name of their own.
            let real = path.file_name().is_none().then(|| path.canonicalize().ok()).flatten();
            let name = real.as_deref().unwrap_or(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.is_empty() { "images".to_owned() } else { name }
        }
    }
}

/// Says what is to be trained.
pub fn introduce(device: &Chosen, data: &str, recipe: &Recipe, out: &Path, collapsed: usize, is_verbose: bool) {
    let (steps, per_epoch) = (recipe.total_steps(), recipe.steps_per_epoch());
    let attempt = if collapsed > 0 { format!(", attempt {}", collapsed + 1) } else { String::new() };
    let table = recipe.table(is_verbose);
    let usual = recipe.explain().len() - table.lines().count();
    let usual = match usual {
        0 => String::new(),
        usual => format!("\n  and {usual} values as always: --verbose shows them, config.toml has them"),
    };
    output::note(&format!(
        "device  {}\ndata    {data}\nrun     {}{attempt}: {} in {} of {per_epoch}\nrecipe\n{}{usual}",
        device.describe(),
        text::shown(out),
        text::count(steps as usize, "step"),
        text::count(recipe.epochs(), "epoch"),
        table.trim_end()
    ));
    for warning in recipe.warnings() {
        output::note(&format!("warning: {warning}"));
    }
}

/// What every process of a run computes on, as far as its numbers depend on it.
fn kind_of_device(device: &Device) -> String {
    let kind = if device.is_gpu() { "a GPU" } else { "a CPU" };
    format!("{kind}, {:?}", device.dtype())
}

/// What is to be said where a run goes on in more or fewer processes than until now.
fn other_number(run: &RunReader, now: u64) -> Option<String> {
    let before = run.machines().last()?.machine.processes;
    run.last_saved().filter(|_| before != now)?;
    let (before, now) = (text::count(before as usize, "process"), text::count(now as usize, "process"));
    Some(format!(
        "until now this run had {before}, and has {now} from here on: sums are added up in another order, and nothing else changes"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ssl::recipe::{Facts, RawRecipe};

    fn recipe(text: &str) -> Recipe {
        let facts = Facts { images: 500, height: 48, width: 48, labelled: true, fingerprint: 0 };
        RawRecipe::from_toml(text, "test").unwrap().resolve(&facts).unwrap()
    }

    #[test]
    fn the_default_folder_follows_from_the_command() {
        let name = |data: &str, text: &str| default_out(data, &recipe(text)).display().to_string();
        assert_eq!(name("synthetic", ""), "runs/synthetic-dino-vmf-vit_nano");
        assert_eq!(name("synthetic:train=64", "prototypes = \"l2\""), "runs/synthetic-dino-l2-vit_nano");
        assert_eq!(name("/data/my photos/", "arch = \"vit_tiny\""), "runs/my photos-dino-vmf-vit_tiny");
        assert!(!name(".", "").contains("images-"), "the folder itself has a name");
        assert_eq!(name("/", ""), "runs/images-dino-vmf-vit_nano");
    }
}
