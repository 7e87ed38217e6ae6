//! How a run ends: its weights are handed over, judged, and the judgement is kept.

use eval::{EvalError, Network, OnlineKnn};
use model::weights;
use ssl::beginning::Beginning;
use ssl::health::{Ending, Evidence, Judgement, Movement, judge};
use ssl::learner::BACKBONE;
use ssl::pretraining::Pretraining;
use ssl::recipe::Recipe;
use train::Trainer;
use train::run::{BACKBONE_FILE, KnnTable, RESULT_FILE, RunFolder, RunReader, RunResult, checksum};

use crate::collapse;
use crate::description;
use crate::error::CliError;
use crate::online_knn::{self, OnlineEvaluation, teacher};
use crate::output;

/// The result of a run that has nothing left to do.
pub fn finished(folder: &RunFolder, recipe: &Recipe) -> Result<Option<RunResult>, CliError> {
    let total = recipe.total_steps();
    let (run, checkpoints) = (RunReader::open(folder.root())?, folder.checkpoints());
    let (result, saved) = (run.result(total), checkpoints.list()?);
    if let Some(result) = &result
        && !collapse::is_final(folder, recipe, result)?
    {
        return Ok(None);
    }
    let last = result.as_ref().map_or(total, |result| result.steps);
    // A run that has never been healthy hands nothing over.
    let is_handed_over = |result: &RunResult| {
        result.collapsed.is_some_and(|collapsed| collapsed.healthy.is_none()) || run.has_backbone_of(result)
    };
    // Whoever needs the space may remove the checkpoints of a finished run.
    if let Some(result) = result.as_ref().filter(|result| saved.is_empty() && is_handed_over(result)) {
        return Ok(Some(result.clone()));
    }
    // The name alone would do for a sound folder; a damaged last checkpoint means there is work to do.
    if !saved.iter().any(|&(step, _)| step == last) {
        return Ok(None);
    }
    if checkpoints.latest_valid()?.checkpoint.is_none_or(|checkpoint| checkpoint.step() != last) {
        return Ok(None);
    }
    let Some(result) = result else { return Ok(None) };
    if is_handed_over(&result) {
        return Ok(Some(result));
    }
    let path = folder.root().join(BACKBONE_FILE);
    let what = if path.exists() { "is damaged" } else { "is missing" };
    output::note(&format!("{}: {what}, and is made again from the last checkpoint", text::shown(&path)));
    Ok(None)
}

/// Writes the backbone of the teacher as it is now, after `step` steps; its checksum. Before the last step it says of which
/// step it is.
pub fn export(trainer: &Trainer<Pretraining>, recipe: &Recipe, step: u64) -> Result<String, CliError> {
    let learner = trainer.trained().learner();
    let unfinished = description::unfinished(step, recipe.total_steps());
    let metadata = description::of_recipe(recipe)?.into_iter().chain(unfinished);
    let bytes = weights::to_safetensors(learner.layout(), &learner.teacher, BACKBONE, metadata)?;
    learner.device().finish()?;
    trainer.folder().write(BACKBONE_FILE, &bytes)?;
    Ok(checksum(&bytes))
}

/// Hands the weights over and judges them.
pub fn finish(
    trainer: &Trainer<Pretraining>,
    recipe: &Recipe,
    knn: &OnlineEvaluation,
    beginning: Option<&Beginning>,
    should_stop: &dyn Fn() -> bool,
) -> Result<RunResult, CliError> {
    let (learner, folder) = (trainer.trained().learner(), trainer.folder());
    let backbone = Some(export(trainer, recipe, trainer.step())?);
    let table = |judge: &OnlineKnn| -> Result<KnnTable, CliError> {
        let start = if beginning.is_some() { "network that it began with" } else { "untrained network" };
        output::note(&format!("comparing with raw pixels and with the {start}"));
        let untrained = || -> Result<f64, CliError> {
            let (vit, weights) = online_knn::untrained(recipe, beginning, learner.device())?;
            Ok(judge.network_top1(Network::new(&vit, &weights, learner.device()), should_stop)?)
        };
        let raw_pixels = judge.raw_pixels_top1(should_stop)?;
        let untrained = match knn.start {
            Some(start) => start,
            None => untrained()?,
        };
        let trained = match knn.last {
            Some((epoch, top1)) if epoch + 1 == recipe.epochs() as u64 => top1,
            _ => judge.network_top1(teacher(learner), should_stop)?,
        };
        Ok(KnnTable {
            k: judge.k() as u64,
            // After the images were read: some may not be readable.
            judged: judge.describe(),
            images: Some(judge.judged() as u64),
            raw_pixels,
            untrained,
            is_given: beginning.is_some(),
            trained,
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
    let movement = Movement::of(learner, recipe.start(), recipe.seed(), beginning);
    let movement = movement.inspect_err(|error| output::note(&format!("not compared with its start: {error}"))).ok();
    let (steps, log) = (trainer.step(), RunReader::open(folder.root())?.metrics()?);
    let loss = log.iter().rev().find_map(|record| record.get("loss")?.as_f64());
    let evidence = Evidence { recipe, steps, ending: Ending::Finished, log: &log, movement, knn: knn.as_ref() };
    let Judgement { kind, advice, verdict, epochs, .. } = judge(&evidence);
    let advised_epochs = epochs.map(|epochs| epochs as u64);
    let (substitutes, judgement) = (trainer.substitutes().images, Some((kind.word().to_owned(), advice)));
    let result =
        RunResult { steps, collapsed: None, loss, verdict, knn, substitutes, backbone, judgement, advised_epochs };
    folder.write(RESULT_FILE, format!("{:#}\n", result.to_json()).as_bytes())?;
    Ok(result)
}

/// The judgement on a run that was stopped: a word and a sentence.
pub fn of_a_stop(trainer: &Trainer<Pretraining>, recipe: &Recipe) -> Result<(&'static str, String), CliError> {
    let log = RunReader::open(trainer.folder().root())?.metrics()?;
    let steps = trainer.step();
    let Judgement { kind, advice, .. } =
        judge(&Evidence { recipe, steps, ending: Ending::Stopped, log: &log, movement: None, knn: None });
    Ok((kind.word(), advice))
}
