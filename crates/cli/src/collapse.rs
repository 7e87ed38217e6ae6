//! A run that a collapse has ended: it begins again with a safer value, or its last healthy weights are handed over.

use ssl::health::{CollapseKind, Ending, Evidence, Judgement, Remedy, judge};
use ssl::pretraining::Pretraining;
use ssl::recipe::{MOST_RETRIES, OnCollapse, Recipe};
use train::Trainer;
use train::run::{Attempt, CollapsedAt, RESULT_FILE, RunFolder, RunReader, RunResult, Vacated};

use crate::conclusion;
use crate::error::CliError;
use crate::output;

/// The exit status of a run that ended by a collapse: neither an error (1) nor a mistake in the command (2).
pub const STATUS: u8 = 3;

/// What comes after a collapse.
pub enum Next {
    /// The run begins again in this folder.
    Again(Vacated),
    /// It is over.
    Ended(RunResult),
}

/// Decides what comes after the collapse of a run, and prepares it.
pub fn conclude(mut trainer: Trainer<Pretraining>, recipe: &Recipe, since: u64) -> Result<Next, CliError> {
    let steps = trainer.step();
    let judgement = judged(trainer.folder(), recipe, steps, since)?;
    let healthy = trainer.return_to_health()?;
    // Also for an attempt that is followed by another: what it has left says by itself what it is.
    let result = hand_over(&trainer, recipe, &judgement, CollapsedAt { since, healthy })?;
    let Some((kind, remedy)) = retry(recipe, trainer.folder().attempts(), &judgement) else {
        return Ok(Next::Ended(result));
    };
    let run = trainer.folder().run_name().to_owned();
    let (became, reason) = (kind.became().to_owned(), remedy.reason.clone());
    let changes = recipe.changes_by(remedy);
    // The networks go first: the next attempt needs their memory.
    let folder = trainer.into_folder();
    announce(&folder, remedy, kind, since, steps);
    Ok(Next::Again(folder.vacate(Attempt { run, steps, since, healthy, became, changes, reason })?))
}

/// Whether a run that ended by a collapse stays ended: with other words about a collapse, the same command goes on with it.
pub fn is_final(folder: &RunFolder, recipe: &Recipe, result: &RunResult) -> Result<bool, CliError> {
    let Some(CollapsedAt { since, .. }) = result.collapsed else { return Ok(true) };
    Ok(match recipe.on_collapse() {
        OnCollapse::Continue => false,
        OnCollapse::Stop => true,
        OnCollapse::Retry => retry(recipe, folder.attempts(), &judged(folder, recipe, result.steps, since)?).is_none(),
    })
}

fn judged(folder: &RunFolder, recipe: &Recipe, steps: u64, since: u64) -> Result<Judgement, CliError> {
    let log = RunReader::open(folder.root())?.metrics()?;
    let ending = Ending::Collapsed { since };
    Ok(judge(&Evidence { recipe, steps, ending, log: &log, movement: None, knn: None }))
}

/// What the next attempt changes; none where there is to be none.
fn retry<'a>(recipe: &Recipe, before: &[Attempt], judgement: &'a Judgement) -> Option<(CollapseKind, &'a Remedy)> {
    let remedy = judgement.remedy.as_ref().filter(|remedy| recipe.first_given(remedy).is_none())?;
    let may_retry = recipe.on_collapse() == OnCollapse::Retry && before.len() < MOST_RETRIES;
    judgement.collapse.filter(|_| may_retry).map(|kind| (kind, remedy))
}

fn announce(folder: &RunFolder, remedy: &Remedy, kind: CollapseKind, since: u64, steps: u64) {
    let number = folder.attempts().len() + 1;
    let aside = folder.root().join(format!("collapsed-{number}"));
    output::note(&format!(
        "attempt {number} became {} at step {since}, and was so until it was ended after step {steps}. Attempt {} of at most {} \
         begins with {}: {}. What the last one left is in {} (on_collapse = \"stop\" would have ended the run)",
        kind.became(),
        number + 1,
        MOST_RETRIES + 1,
        remedy.assignments(),
        remedy.reason,
        text::shown(&aside)
    ));
}

/// Hands over the weights from before the collapse, and writes down how the run ended.
fn hand_over(
    trainer: &Trainer<Pretraining>,
    recipe: &Recipe,
    judgement: &Judgement,
    collapsed: CollapsedAt,
) -> Result<RunResult, CliError> {
    let backbone = collapsed.healthy.map(|step| conclusion::export(trainer, recipe, step)).transpose()?;
    let log = RunReader::open(trainer.folder().root())?.metrics()?;
    let loss = log.iter().rev().find_map(|record| record.get("loss")?.as_f64());
    let Judgement { kind, advice, verdict, .. } = judgement.clone();
    let result = RunResult {
        steps: trainer.step(),
        collapsed: Some(collapsed),
        loss,
        verdict,
        knn: None,
        substitutes: trainer.substitutes().images,
        backbone,
        judgement: Some((kind.word().to_owned(), advice)),
        advised_epochs: None,
    };
    trainer.folder().write(RESULT_FILE, format!("{:#}\n", result.to_json()).as_bytes())?;
    Ok(result)
}
