//! What became of a run, from what it has left.

use std::fmt;
use std::path::Path;

use ssl::recipe::{Facts, Recipe};
use study::{Plan, RunOutcome, StudyRun};
use train::run::RunReader;

use super::folder::StudyFolder;
use super::recipe_args;
use super::work::Study;
use crate::args::StudyArgs;
use crate::error::CliError;

/// The outcome of a run whose process has just ended; `is_stopping` where it may only have been stopped.
pub fn outcome_of_process(
    study: &Study<'_>,
    run: &StudyRun,
    recipe: &Recipe,
    status: &str,
    is_stopping: bool,
) -> RunOutcome {
    let Study { folder, plan, args, .. } = *study;
    match folder.take_result(run) {
        Ok(Some(outcome)) => return whole(folder, plan, run, recipe, outcome),
        Ok(None) => {}
        Err(error) => return RunOutcome::failed(format!("its result cannot be kept: {error}")),
    }
    if is_stopping {
        return RunOutcome::open();
    }
    // What `pretrain` advises is for somebody who gave it flags. Other images it names itself.
    let difference = difference(folder, run, recipe, args, Images::NotCompared).ok().flatten();
    let of_settings = difference.map(|difference| {
        let run = text::shown(&folder.run(run)).into_owned();
        format!("{run} was begun with other settings: {difference}. Remove it, or give the study another --out")
    });
    let said = || folder.error(run).unwrap_or_else(|| format!("it ended with {status}; see its log"));
    RunOutcome::failed(of_settings.unwrap_or_else(said))
}

/// The outcome of a run that nobody has started now, which may have been trained elsewhere and with other settings.
pub fn outcome(folder: &StudyFolder, plan: &Plan, run: &StudyRun, recipe: &Recipe, args: &StudyArgs) -> RunOutcome {
    let Some(outcome) = printed(folder, plan, run, recipe) else { return RunOutcome::open() };
    match difference(folder, run, recipe, args, Images::Compared) {
        Ok(None) => outcome,
        Ok(Some(difference)) => RunOutcome::failed(format!("it was trained with other settings: {difference}")),
        Err(error) => RunOutcome::failed(format!("it has printed a result, but: {error}")),
    }
}

fn printed(folder: &StudyFolder, plan: &Plan, run: &StudyRun, recipe: &Recipe) -> Option<RunOutcome> {
    let outcome = folder.printed(run).and_then(|object| RunOutcome::of_json(&object))?;
    Some(whole(folder, plan, run, recipe, outcome))
}

/// The same with its time, and with what its evaluation has found.
fn whole(folder: &StudyFolder, plan: &Plan, run: &StudyRun, recipe: &Recipe, outcome: RunOutcome) -> RunOutcome {
    let outcome = outcome.timed(&folder.run(run), recipe.batch_size());
    let scores = if outcome.is_finished { folder.scores(run, &plan.scores) } else { Vec::new() };
    RunOutcome { scores, ..outcome }
}

/// How far a run is that nobody has asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its folder is not there, or has nothing to go on with.
    New,
    /// It has saved this step.
    Saved(u64),
    /// It has a result.
    Ended,
}

impl State {
    /// That of a run which is to be so long.
    pub fn of(run: &RunReader, total_steps: u64) -> Self {
        match (run.result(total_steps), run.last_saved()) {
            (Some(_), _) => Self::Ended,
            (None, Some(step)) => Self::Saved(step),
            (None, None) => Self::New,
        }
    }

    /// The word for programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Saved(_) => "begun",
            Self::Ended => "ended",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New => Ok(()),
            Self::Saved(step) => write!(f, ", begun: goes on after step {step}"),
            Self::Ended => f.write_str(", ended"),
        }
    }
}

/// How far the run in a folder is.
pub fn state(folder: &Path, total_steps: u64) -> State {
    match RunReader::open_any_attempt(folder) {
        Ok(Some(run)) => State::of(&run, total_steps),
        _ => State::New,
    }
}

/// Whether a run's images are held against the study's by their contents, or only counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Images {
    Compared,
    NotCompared,
}

/// What a run's settings have that the study's do not; what it changed by itself when it began again is its own.
fn difference(
    folder: &StudyFolder,
    run: &StudyRun,
    recipe: &Recipe,
    args: &StudyArgs,
    images: Images,
) -> Result<Option<String>, CliError> {
    let reader = RunReader::open(&folder.run(run))?;
    let (saved, place) = reader.config()?;
    let saved = Recipe::from_toml(&saved, &text::shown(&place))?;
    let facts = match images {
        Images::Compared => recipe.facts(),
        Images::NotCompared => Facts { fingerprint: saved.facts().fingerprint, ..recipe.facts() },
    };
    let asked = recipe_args(run);
    let expected = asked.resolve(asked.asked(args.device.thread_count()?)?, &facts, &reader.attempts()?)?;
    Ok(saved.same_run(&expected).err().and_then(|differences| differences.first().map(ToString::to_string)))
}
