//! `dino-vmf`: pre-trains vision transformers on unlabelled images with DINO and DINO-vMF, and evaluates them.
//!
//! One file a command: parse, resolve, call, print. What is computed, and how, is in the crates below.

mod args;
mod backbone;
mod bench;
mod device;
mod doctor;
mod error;
mod eval;
mod features;
mod images;
mod inspect;
mod memory;
mod outcome;
mod output;
mod pretrain;
mod probe;
mod progress;
mod recipe;
mod signals;
mod view;
mod views;
mod weights;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{BenchCommand, Cli, Command, EvalCommand};
use crate::error::CliError;

fn main() -> ExitCode {
    match run(&Cli::parse().command) {
        Ok(status) => status,
        Err(error) => {
            output::note(&format!("error: {}", error::message(&error)));
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<ExitCode, CliError> {
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
