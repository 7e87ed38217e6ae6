//! What became of a run, from what it has left.

use ssl::recipe::{Facts, Recipe};
use study::{Plan, RunOutcome, StudyRun};
use train::run::RunReader;

use super::folder::StudyFolder;
use super::recipe_args;
use crate::args::StudyArgs;
use crate::error::CliError;

/// The outcome of a run whose process has just ended; `is_stopping` where it may only have been stopped.
pub fn outcome_of_process(
    folder: &StudyFolder,
    plan: &Plan,
    run: &StudyRun,
    recipe: &Recipe,
    status: &str,
    is_stopping: bool,
) -> RunOutcome {
    match printed(folder, plan, run, recipe) {
        Some(outcome) => outcome,
        None if is_stopping => RunOutcome::open(),
        None => RunOutcome::failed(folder.error(run).unwrap_or_else(|| format!("it ended with {status}; see its log"))),
    }
}

/// The outcome of a run that nobody has started now, which may have been trained elsewhere and with other settings.
pub fn outcome(folder: &StudyFolder, plan: &Plan, run: &StudyRun, recipe: &Recipe, args: &StudyArgs) -> RunOutcome {
    let Some(outcome) = printed(folder, plan, run, recipe) else { return RunOutcome::open() };
    match difference(folder, run, recipe, args) {
        Ok(None) => outcome,
        Ok(Some(difference)) => RunOutcome::failed(format!("it was trained with other settings: {difference}")),
        Err(error) => RunOutcome::failed(format!("it has printed a result, but: {error}")),
    }
}

fn printed(folder: &StudyFolder, plan: &Plan, run: &StudyRun, recipe: &Recipe) -> Option<RunOutcome> {
    let outcome = folder.printed(run).and_then(|object| RunOutcome::of_json(&object))?;
    let outcome = outcome.timed(&folder.run(run), recipe.batch_size());
    let scores = if outcome.is_finished { folder.scores(run, &plan.scores) } else { Vec::new() };
    Some(RunOutcome { scores, ..outcome })
}

/// What a run's settings have that the study's do not; what it changed by itself when it began again is its own.
fn difference(
    folder: &StudyFolder,
    run: &StudyRun,
    recipe: &Recipe,
    args: &StudyArgs,
) -> Result<Option<String>, CliError> {
    let reader = RunReader::open(&folder.run(run))?;
    let (saved, place) = reader.config()?;
    let saved = Recipe::from_toml(&saved, &text::shown(&place))?;
    // The images themselves are not looked at here, only counted.
    let facts = Facts { fingerprint: saved.facts().fingerprint, ..recipe.facts() };
    let asked = recipe_args(run);
    let expected = asked.resolve(asked.asked(args.device.thread_count()?)?, &facts, &reader.attempts()?)?;
    Ok(saved.same_run(&expected).err().and_then(|differences| differences.first().map(ToString::to_string)))
}
