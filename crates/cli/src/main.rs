//! `dino-vmf`: pre-trains vision transformers on unlabelled images with DINO and DINO-vMF, and evaluates them.
//!
//! One file a command: parse, resolve, call, print. What is computed, and how, is in the crates below.

mod args;
mod attention;
mod beginning;
mod bench;
mod collapse;
mod conclusion;
mod description;
mod device;
mod devices;
mod doctor;
mod dry_run;
mod error;
mod eval;
mod export;
mod extension;
mod features;
mod figure;
mod images;
mod inspect;
mod limits;
mod longer;
mod machine;
mod memory;
mod online_knn;
mod outcome;
mod output;
mod output_file;
mod pictures;
mod preparing;
mod pretrain;
mod proc;
mod processes;
mod progress;
mod raw_views;
mod recipe;
mod report;
mod signals;
mod sparkline;
mod study;
mod terminal;
mod time_budget;
mod usage;
mod views;
mod watch;
mod weights;
mod witness;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::args::{BenchCommand, Cli, Command};
use crate::error::CliError;

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| {
        let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        usage::explained(shown(error), &words).exit()
    });
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

fn run(command: &Command) -> Result<ExitCode, CliError> {
    signals::files_that_are_too_large_are_errors()?;
    // Also for commands without a device: whoever asks for instructions wants to know that a word was not understood.
    simd::requested().map_err(tensor::DeviceError::from)?;
    device::threads_of_environment()?;
    if !matches!(command, Command::Pretrain(_) | Command::Doctor(_) | Command::Inspect(_)) {
        processes::check_alone()?;
    }
    match command {
        Command::Pretrain(args) => return pretrain::run(args),
        Command::Views(args) => views::run(args)?,
        Command::Features(args) => return features::run(args),
        Command::Attention(args) => attention::run(args)?,
        Command::Eval(command) => return eval::run(command),
        Command::Export(args) => export::run(args)?,
        Command::Inspect(args) => inspect::run(args)?,
        Command::Report(args) => report::run(args)?,
        Command::Runs(args) => report::list(args)?,
        Command::Figure(command) => figure::run(command)?,
        Command::Watch(args) => watch::run(args)?,
        Command::Study(args) => return study::run(args),
        Command::Bench(BenchCommand::Step(args)) => bench::step::run(args)?,
        Command::Bench(BenchCommand::Data(args)) => bench::data::run(args)?,
        Command::Bench(BenchCommand::Knn(args)) => bench::knn::run(args)?,
        Command::Doctor(args) => doctor::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}
