//! `pretrain --dry-run`: what would be trained and what it takes, without training it.

use std::process::ExitCode;

use train::run::RunFolder;

use crate::error::CliError;
use crate::memory;
use crate::output;
use crate::pretrain::{Command, introduce};

/// Says what the command would train, and prints its recipe as a file that `--recipe` takes. Nothing is written.
pub fn show(command: &Command<'_>) -> Result<ExitCode, CliError> {
    let Command { args, device, train, out, .. } = command;
    let attempts = RunFolder::attempts_in(out)?;
    let recipe = command.recipe_after(&attempts)?;
    memory::check_recipe(&device.device, &recipe)?;
    introduce(device, &train.describe(), &recipe, out, attempts.len(), args.verbose);
    output::note(&format!("memory  {}", memory::of_recipe(&device.device, &recipe)?));
    output::result(&recipe.to_toml())?;
    Ok(ExitCode::SUCCESS)
}
