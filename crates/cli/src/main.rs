//! `dino-vmf`: pre-trains vision transformers on unlabelled images with DINO and DINO-vMF, and evaluates them.
//!
//! One file a command: parse, resolve, call, print. What is computed, and how, is in the crates below.

mod args;
mod bench;
mod device;
mod doctor;
mod error;
mod eval;
mod features;
mod images;
mod inspect;
mod memory;
mod online_knn;
mod outcome;
mod output;
mod output_file;
mod pretrain;
mod proc;
mod progress;
mod recipe;
mod signals;
mod terminal;
mod views;
mod weights;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::{BenchCommand, Cli, Command, EvalCommand};
use crate::error::CliError;

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| with_key_tip(shown(error)).exit());
    match run(&cli.command) {
        Ok(status) => status,
        Err(error) => {
            output::note(&format!("error: {}", error::message(&error)));
            ExitCode::FAILURE
        }
    }
}

/// An error of the command line quotes its arguments, which may be names of files: a shell has put them there for a `*`.
/// Where one of them could steer the terminal, the error is that of the same arguments as they are shown.
fn shown(error: clap::Error) -> clap::Error {
    let is_odd = |argument: &OsString| argument.to_str().is_none_or(|argument| !text::is_plain(argument));
    if !std::env::args_os().any(|argument| is_odd(&argument)) {
        return error;
    }
    let arguments = std::env::args_os().map(|argument| text::escape_name(argument.as_encoded_bytes()).into_owned());
    Cli::try_parse_from(arguments).err().unwrap_or_else(|| clap::Error::new(error.kind()))
}

/// Flags exist for the keys of a recipe that are needed most; the tip for another key is how to set it.
fn with_key_tip(mut error: clap::Error) -> clap::Error {
    let given = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(given)) if error.kind() == ErrorKind::UnknownArgument => given,
        _ => return error,
    };
    let takes_keys = std::env::args().nth(1).is_some_and(|command| ["pretrain", "views"].contains(&command.as_str()));
    let name = given.trim_start_matches('-').replace('-', "_");
    if let Some(key) = ssl::recipe::keys().find(|&key| takes_keys && key == name) {
        error.remove(ContextKind::SuggestedArg);
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![format!("set it with '--set {key}=...'").into()]),
        );
    }
    error
}

fn run(command: &Command) -> Result<ExitCode, CliError> {
    // Also for commands without a device: whoever asks for instructions wants to know that a word was not understood.
    simd::requested().map_err(tensor::DeviceError::from)?;
    match command {
        Command::Pretrain(args) => return pretrain::run(args),
        Command::Views(args) => views::run(args)?,
        Command::Features(args) => features::run(args)?,
        Command::Eval(EvalCommand::Knn(args)) => eval::knn(args)?,
        Command::Inspect(args) => inspect::run(args)?,
        Command::Bench(BenchCommand::Step(args)) => bench::step::run(args)?,
        Command::Bench(BenchCommand::Data(args)) => bench::data::run(args)?,
        Command::Doctor(args) => doctor::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}
