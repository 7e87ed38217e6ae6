//! `pretrain`: from a command line to a trained network.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use eval::{EvalError, Network, ReadOptions};
use serde_json::json;
use ssl::learner::Learner;
use ssl::recipe::Recipe;
use ssl::run::RunFolder;
use ssl::trainer::{Observer, Outcome, Progress, Trainer, learner_options, view_shapes};

use crate::args::PretrainArgs;
use crate::backbone;
use crate::device::Chosen;
use crate::error::CliError;
use crate::images;
use crate::memory;
use crate::outcome::{self, KnnTable, RunResult};
use crate::output;
use crate::probe::Probe;
use crate::progress::{Console, Meter, Repeats};
use crate::signals::Stop;
use crate::view::View;

/// Unreadable images that are named on the terminal.
const NAMED: usize = 100;

/// Trains, or goes on with what an earlier start of the same command began.
pub fn run(args: &PretrainArgs) -> Result<ExitCode, CliError> {
    let device = args.device.choose()?;
    let (train, recipe) = args.recipe.open(args.device.thread_count())?;
    // Before there is a folder that holds these settings.
    memory::check(&device.device, &learner_options(&recipe)?, &view_shapes(&recipe), recipe.batch_size())?;
    let out = args.out.clone().unwrap_or_else(|| default_out(&args.recipe.data, &recipe));
    let folder = RunFolder::open(&out, &recipe)?;

    if let Some(result) = finished(&folder, &recipe)? {
        output::note(&format!("{}: this run is finished; give another --out to train anew", out.display()));
        print(&result, args, &out, &recipe)?;
        return Ok(ExitCode::SUCCESS);
    }
    introduce(&device, &train.describe(), &recipe, &out);
    let read = ReadOptions { workers: workers(args), ..Default::default() };
    let probe = Probe::new(train.clone(), images::open_held_out(&args.recipe.data), &recipe, read);
    if let Some((probe, Some(reason))) = &probe {
        output::note(&format!("kNN: judged on {}. {reason}", probe.judged()));
    }
    let probe = probe.map(|(probe, _)| probe);

    let console = Console::new(recipe.total_steps());
    let stop = Stop::listen(&console)?;
    let mut face = Face::new(console.clone(), stop.clone(), probe, recipe.epochs());
    let trained = Trainer::open(&device.device, recipe.clone(), folder, train, &mut face).and_then(|mut trainer| {
        face.meter.begin(trainer.step(), recipe.total_steps(), &device.device.describe());
        trainer.run(&mut face).map(|outcome| (trainer, outcome))
    });
    console.close();
    let (trainer, outcome) = trained?;
    if face.skipped > 0 {
        output::note(&format!("skipped because unreadable: {}", text::count(face.skipped, "image")));
    }
    let stopped = |step: u64| {
        output::note(&format!(
            "stopped after step {step} of {}. Run the same command again to continue",
            recipe.total_steps()
        ));
        if args.json {
            output::result(&json!({ "outcome": "stopped", "steps": step }).to_string())?;
        }
        Ok(ExitCode::from(stop.status()))
    };
    if let Outcome::Stopped { step } = outcome {
        return stopped(step);
    }
    match finish(&trainer, &recipe, &face) {
        Ok(result) => print(&result, args, &out, &recipe).map(|()| ExitCode::SUCCESS),
        Err(CliError::Eval(EvalError::Stopped)) => stopped(trainer.step()),
        Err(error) => Err(error),
    }
}

fn workers(args: &PretrainArgs) -> usize {
    args.device.thread_count().unwrap_or(ReadOptions::default().workers)
}

/// `runs/photos-dino-vmf-vit_small`: a function of the command, so that the same command finds its run again.
fn default_out(data: &str, recipe: &Recipe) -> PathBuf {
    let name = match data.split(':').next() {
        Some("synthetic") => "synthetic".to_owned(),
        _ => {
            let path = Path::new(data);
            // `.` and `..` have no name of their own.
            let real = path.file_name().is_none().then(|| path.canonicalize().ok()).flatten();
            let name = real.as_deref().unwrap_or(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.is_empty() { "images".to_owned() } else { name }
        }
    };
    Path::new("runs").join(format!("{name}-{}-{}-{}", recipe.method(), recipe.prototypes(), recipe.arch()))
}

fn introduce(device: &Chosen, data: &str, recipe: &Recipe, out: &Path) {
    let (steps, per_epoch) = (recipe.total_steps(), recipe.steps_per_epoch());
    output::note(&format!(
        "device  {}\ndata    {data}\nrun     {}: {} in {} of {per_epoch}\nrecipe\n{}",
        device.describe(),
        out.display(),
        text::count(steps as usize, "step"),
        text::count(recipe.epochs(), "epoch"),
        recipe.table().trim_end()
    ));
    for warning in recipe.warnings() {
        output::note(&format!("warning: {warning}"));
    }
}

/// The result of a run that has nothing left to do.
fn finished(folder: &RunFolder, recipe: &Recipe) -> Result<Option<RunResult>, CliError> {
    let total = recipe.total_steps();
    let checkpoints = folder.checkpoints();
    // The name alone would do for a sound folder; a damaged last checkpoint means there is work to do.
    if checkpoints.list()?.first().is_none_or(|&(step, _)| step != total) {
        return Ok(None);
    }
    let is_there = checkpoints.latest_valid()?.checkpoint.is_some_and(|checkpoint| checkpoint.step() == total);
    let result = RunResult::read(folder.root(), total).filter(|_| folder.root().join(backbone::FILE).is_file());
    Ok(result.filter(|_| is_there))
}

/// Hands the weights over and judges them.
fn finish(trainer: &Trainer, recipe: &Recipe, face: &Face) -> Result<RunResult, CliError> {
    let (learner, folder) = (trainer.learner(), trainer.folder());
    let weights = backbone::to_safetensors(learner.layout(), &learner.teacher, &View::of(recipe))?;
    learner.device().finish()?;
    folder.write(backbone::FILE, &weights)?;
    let go_on = || !face.stop.requested();
    let table = |probe: &Probe| -> Result<KnnTable, CliError> {
        output::note("comparing with raw pixels and with the untrained network");
        Ok(KnnTable {
            k: probe.k() as u64,
            judged: probe.judged(),
            raw_pixels: probe.raw_pixels(learner.device(), &go_on)?,
            untrained: probe.untrained(recipe, learner.device(), &go_on)?,
            trained: match face.last_knn {
                Some((epoch, top1)) if epoch + 1 == recipe.epochs() as u64 => top1,
                _ => probe.network(teacher(learner), &go_on)?,
            },
        })
    };
    let knn = match face.probe.as_ref().map(table).transpose() {
        Ok(knn) => knn,
        Err(stopped @ CliError::Eval(EvalError::Stopped)) => return Err(stopped),
        // The training is done and its weights are written: that it cannot be judged is no reason to fail.
        Err(error) => {
            output::note(&format!("no kNN: {error}"));
            None
        }
    };
    let loss = outcome::last_record(folder.root(), "loss").and_then(|record| record["loss"].as_f64());
    let verdict = trainer.verdict().map(str::to_owned);
    let result = RunResult { steps: trainer.step(), loss, verdict, knn };
    folder.write(outcome::FILE, format!("{:#}\n", result.to_json()).as_bytes())?;
    Ok(result)
}

fn print(result: &RunResult, args: &PretrainArgs, out: &Path, recipe: &Recipe) -> Result<(), CliError> {
    if !args.json {
        return output::result(&result.table(out, &args.recipe.data, recipe));
    }
    let mut object = result.to_json();
    object["run"] = json!(out.display().to_string());
    object["weights"] = json!(out.join(backbone::FILE).display().to_string());
    output::result(&object.to_string())
}

fn teacher(learner: &Learner) -> Network<'_> {
    Network { vit: learner.vit(), weights: &learner.teacher, device: learner.device() }
}

/// What the trainer talks to.
struct Face {
    console: Console,
    stop: Stop,
    probe: Option<Probe>,
    meter: Meter,
    epochs: usize,
    repeats: Repeats,
    skipped: usize,
    /// The last evaluation of this process: epoch and accuracy.
    last_knn: Option<(u64, f64)>,
}

impl Face {
    fn new(console: Console, stop: Stop, probe: Option<Probe>, epochs: usize) -> Self {
        let meter = Meter::new(&console, "step");
        Self { console, stop, probe, meter, epochs, repeats: Repeats::default(), skipped: 0, last_knn: None }
    }
}

impl Observer for Face {
    fn step(&mut self, progress: &Progress) {
        let Progress { step, total_steps, epoch, loss, images_per_second, data_wait } = *progress;
        let speed = output::speed(self.meter.smooth(images_per_second));
        let about = format!(
            "epoch {}/{}  loss {loss:.4}  {speed}  data wait {:.0} %",
            epoch + 1,
            self.epochs,
            100.0 * data_wait
        );
        self.meter.show(step, total_steps, &about);
    }

    fn say(&mut self, text: &str) {
        if self.repeats.is_news(text) {
            self.console.say(text);
        }
    }

    fn skipped(&mut self, bad: &data::BadSample) {
        self.skipped += 1;
        let text = format!("skipped {}: {}", bad.name, bad.reason);
        match self.skipped {
            n if n < NAMED => self.console.say(&text),
            NAMED => self.console.say(&format!("{text}\nfurther unreadable images are counted, not named")),
            _ => {}
        }
    }

    fn evaluate(&mut self, learner: &Learner, epoch: u64) -> Vec<(String, f64)> {
        let Some(probe) = &self.probe else { return Vec::new() };
        // Not ended by a signal: the log of a run that was stopped must be that of an unbroken one.
        match probe.network(teacher(learner), &|| true) {
            Ok(top1) => {
                self.last_knn = Some((epoch, top1));
                self.console.say(&format!("epoch {}/{}: kNN top-1 {top1:.1} %", epoch + 1, self.epochs));
                vec![("knn_top1".to_owned(), top1)]
            }
            Err(error) => {
                self.console.say(&format!("epoch {}/{}: no kNN: {error}", epoch + 1, self.epochs));
                Vec::new()
            }
        }
    }

    fn should_stop(&self) -> bool {
        self.stop.requested()
    }
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
