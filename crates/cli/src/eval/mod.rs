//! `eval`: a file for each protocol, which resolves, calls and prints. [`sets`] has what most of them judge, [`record`] what
//! every result says of where it comes from.

mod copies;
mod fewshot;
mod finetune;
pub mod head;
mod knn;
mod linear;
mod mixture;
pub mod precision;
pub mod prototypes;
mod record;
mod retrieval;
mod sets;
mod transfer;
mod video;

use std::process::ExitCode;

use crate::args::EvalCommand;
use crate::error::CliError;

/// Runs a protocol.
pub fn run(command: &EvalCommand) -> Result<ExitCode, CliError> {
    let done: Result<(), CliError> = match command {
        // A run, which may be stopped: its exit status says so.
        EvalCommand::Finetune(args) => return finetune::run(args),
        EvalCommand::Knn(args) => knn::run(args),
        EvalCommand::Linear(args) => linear::run(args),
        EvalCommand::Fewshot(args) => fewshot::run(args),
        EvalCommand::Transfer(args) => transfer::run(args),
        EvalCommand::Retrieval(args) => retrieval::run(args),
        EvalCommand::Copies(args) => copies::run(args),
        EvalCommand::Video(args) => video::run(args),
        EvalCommand::Prototypes(args) => prototypes::run(args),
        EvalCommand::Precision(args) => precision::run(args),
        EvalCommand::Mixture(args) => mixture::run(args),
    };
    done.map(|()| ExitCode::SUCCESS)
}
