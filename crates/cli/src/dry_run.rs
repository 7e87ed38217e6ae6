//! `pretrain --dry-run`: what would be trained and what it takes, without training it.

use std::process::ExitCode;

use ssl::recipe::Recipe;
use train::run::{RunFolder, RunReader};

use crate::error::CliError;
use crate::memory;
use crate::output;
use crate::pretrain::{Command, introduce};

/// Says what the command would train, and prints its recipe as a file for `--recipe`. Nothing is written, and what the command
/// would refuse is refused.
pub fn show(command: &Command<'_>) -> Result<ExitCode, CliError> {
    let Command { args, device, train, out, .. } = command;
    let attempts = RunFolder::attempts_in(out)?;
    let recipe = command.recipe_after(&attempts)?;
    memory::check_recipe(&device.device, &recipe)?;
    if !command.is_extended() {
        RunFolder::check(out, &recipe)?;
    }
    introduce(device, &train.describe(), &recipe, out, attempts.len(), args.verbose);
    output::note(&format!("memory  {}", memory::of_recipe(&device.device, &recipe)?));
    if let Some(state) = state(&RunReader::open_any_attempt(out)?, &recipe) {
        output::note(&format!("folder  {}: {state}", text::shown(out)));
    }
    output::result(&recipe.to_draft())?;
    Ok(ExitCode::SUCCESS)
}

/// How far the run is that is there already.
fn state(run: &Option<RunReader>, recipe: &Recipe) -> Option<String> {
    let run = run.as_ref()?;
    Some(match (run.result(recipe.total_steps()), run.last_saved()) {
        (Some(_), _) => "this run is finished, and would not be trained again".to_owned(),
        (None, Some(step)) => format!("this run would go on from step {step}"),
        (None, None) => "this run has no checkpoint, and would begin again".to_owned(),
    })
}
