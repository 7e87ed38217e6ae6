//! `eval`: a file for each protocol, which resolves, calls and prints. [`sets`] has what most of them judge, [`record`] what
//! every result says of where it comes from.

mod fewshot;
mod knn;
mod record;
mod sets;
mod transfer;

use crate::args::EvalCommand;
use crate::error::CliError;

/// Runs a protocol.
pub fn run(command: &EvalCommand) -> Result<(), CliError> {
    match command {
        EvalCommand::Knn(args) => knn::run(args),
        EvalCommand::Fewshot(args) => fewshot::run(args),
        EvalCommand::Transfer(args) => transfer::run(args),
    }
}
