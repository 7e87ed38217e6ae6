//! `pretrain --dry-run`: what would be trained and what it takes, without training it.

use std::process::ExitCode;

use train::run::{RunFolder, RunReader};

use crate::error::CliError;
use crate::memory;
use crate::output;
use crate::pretrain::{Command, introduce};
use crate::study::State;

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
    if let Some(run) = RunReader::open_any_attempt(out)? {
        let state = match State::of(&run, recipe.total_steps()) {
            State::Ended => "this run is finished, and would not be trained again".to_owned(),
            State::Saved(step) => format!("this run would go on from step {step}"),
            State::New => "this run has no checkpoint, and would begin again".to_owned(),
        };
        output::note(&format!("folder  {}: {state}", text::shown(out)));
    }
    output::result(&recipe.to_draft())?;
    Ok(ExitCode::SUCCESS)
}
