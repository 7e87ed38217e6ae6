//! `pretrain`: from a command line to a trained network.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use eval::{EvalError, Network, OnlineKnn, ReadOptions};
use model::weights;
use serde_json::json;
use ssl::learner::BACKBONE;
use ssl::memory::MemoryNeed;
use ssl::pretraining::{self, Pretraining};
use ssl::recipe::Recipe;
use ssl::setup::learner_options;
use ssl::{method, view_plan::ViewShape};
use train::run::{BACKBONE_FILE, KnnTable, RESULT_FILE, RunFolder, RunReader, RunResult};
use train::{Outcome, Trainer};

use crate::args::PretrainArgs;
use crate::device::Chosen;
use crate::error::CliError;
use crate::images;
use crate::memory;
use crate::online_knn::{self, OnlineEvaluation, input_spec, teacher};
use crate::outcome;
use crate::output;
use crate::progress::Console;
use crate::signals::Stop;
use crate::terminal::Terminal;

/// Trains, or goes on with what an earlier start of the same command began.
pub fn run(args: &PretrainArgs) -> Result<ExitCode, CliError> {
    let asked = args.recipe.asked(args.device.thread_count())?;
    let device = args.device.choose_for_training(asked.residual_stream())?;
    let (train, recipe) = args.recipe.open(asked)?;
    let method = method::of(&recipe);
    let read = ReadOptions { workers: workers(args), ..Default::default() };
    let need = MemoryNeed {
        options: &learner_options(&recipe)?,
        method: &*method,
        batch: recipe.batch_size(),
        drop_path: recipe.drop_path(),
        evaluated: None,
    };
    // Before there is a folder that holds these settings.
    memory::check(&device.device, &need)?;
    let out = args.out.clone().unwrap_or_else(|| default_out(&args.recipe.data, &recipe));
    let folder = RunFolder::open(&out, &recipe)?;

    if let Some(result) = finished(&folder, &recipe)? {
        output::note(&format!("{}: this run is finished; give another --out to train anew", text::shown(&out)));
        print(&result, args, &out, &recipe)?;
        return Ok(ExitCode::SUCCESS);
    }
    introduce(&device, &train.describe(), &recipe, &out);
    for difference in folder.changed() {
        output::note(&format!("changed from here on: {difference}"));
    }
    let held_out = images::open_held_out(&args.recipe.data);
    let watched: Vec<_> = std::iter::once(&train).chain(held_out.as_ref().ok()).cloned().collect();
    let knn = online_knn::of_recipe(&recipe, train.clone(), held_out, read, args.device.host(&device.device)?)?;
    let evaluated = knn.as_ref().map(|_| evaluated_at_once(&recipe, read));

    let console = Console::new(recipe.total_steps());
    let stop = Stop::listen(&console)?;
    let mut terminal = Terminal::new(&console, recipe.epochs()).watching(watched);
    let mut knn = OnlineEvaluation::new(knn);
    let opened = pretraining::open(&device.device, &recipe, &*method, folder, train, evaluated, &mut terminal);
    let trained = opened.map_err(CliError::from).and_then(|mut trainer| {
        terminal.begin(trainer.step(), recipe.total_steps(), &device.device.describe());
        let outcome = trainer.run(&mut terminal, &mut knn, &|| stop.requested())?;
        Ok((trainer, outcome))
    });
    console.close();
    let (trainer, outcome) = trained?;
    if terminal.skipped() > 0 {
        output::note(&format!("skipped because unreadable: {}", text::count(terminal.skipped(), "image")));
    }
    let stopped = |step: u64| {
        output::note(&format!(
            "stopped after step {step} of {}. Run the same command again to continue",
            recipe.total_steps()
        ));
        if args.json {
            output::json(&json!({ "outcome": "stopped", "steps": step }))?;
        }
        Ok(ExitCode::from(stop.status()))
    };
    if let Outcome::Stopped { step } = outcome {
        return stopped(step);
    }
    match finish(&trainer, &recipe, &knn, &|| stop.requested()) {
        Ok(result) => print(&result, args, &out, &recipe).map(|()| ExitCode::SUCCESS),
        Err(CliError::Eval(EvalError::Stopped)) => stopped(trainer.step()),
        Err(error) => Err(error),
    }
}

/// The images whose features the online evaluation computes at once.
fn evaluated_at_once(recipe: &Recipe, read: ReadOptions) -> ViewShape {
    let (height, width) = input_spec(recipe).size;
    ViewShape { count: read.batch_size, height, width, channels: recipe.channels() }
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
        text::shown(out),
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
    let result = RunReader::open(folder.root())?.result(total).filter(|_| folder.root().join(BACKBONE_FILE).is_file());
    Ok(result.filter(|_| is_there))
}

/// Hands the weights over and judges them.
fn finish(
    trainer: &Trainer<Pretraining>,
    recipe: &Recipe,
    knn: &OnlineEvaluation,
    should_stop: &dyn Fn() -> bool,
) -> Result<RunResult, CliError> {
    let (learner, folder) = (trainer.trained().learner(), trainer.folder());
    let metadata = input_spec(recipe).metadata();
    let weights = weights::to_safetensors(learner.layout(), &learner.teacher, BACKBONE, metadata)?;
    learner.device().finish()?;
    folder.write(BACKBONE_FILE, &weights)?;
    let table = |judge: &OnlineKnn| -> Result<KnnTable, CliError> {
        output::note("comparing with raw pixels and with the untrained network");
        let (vit, weights) = online_knn::untrained(recipe, learner.device())?;
        let untrained = Network { vit: &vit, weights: &weights, device: learner.device() };
        Ok(KnnTable {
            k: judge.k() as u64,
            judged: judge.describe(),
            raw_pixels: judge.raw_pixels_top1(should_stop)?,
            untrained: judge.network_top1(untrained, should_stop)?,
            trained: match knn.last {
                Some((epoch, top1)) if epoch + 1 == recipe.epochs() as u64 => top1,
                _ => judge.network_top1(teacher(learner), should_stop)?,
            },
        })
    };
    let knn = match knn.knn.as_ref().map(table).transpose() {
        Ok(knn) => knn,
        Err(stopped @ CliError::Eval(EvalError::Stopped)) => return Err(stopped),
        // The training is done and its weights are written: that it cannot be judged is no reason to fail.
        Err(error) => {
            output::note(&format!("no kNN: {error}"));
            None
        }
    };
    let last = RunReader::open(folder.root())?.last_record("loss")?;
    let loss = last.and_then(|record| record["loss"].as_f64());
    let verdict = trainer.verdict().map(str::to_owned);
    let result = RunResult { steps: trainer.step(), loss, verdict, knn };
    folder.write(RESULT_FILE, format!("{:#}\n", result.to_json()).as_bytes())?;
    Ok(result)
}

fn print(result: &RunResult, args: &PretrainArgs, out: &Path, recipe: &Recipe) -> Result<(), CliError> {
    if !args.json {
        return output::result(&outcome::table(result, out, &args.recipe.data, recipe));
    }
    let mut object = result.to_json();
    object["run"] = json!(text::shown(out));
    object["weights"] = json!(text::shown(&out.join(BACKBONE_FILE)));
    output::json(&object)
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
