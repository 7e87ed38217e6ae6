//! `eval`: a file for each protocol, which resolves, calls and prints. [`sets`] has what most of them judge, [`record`] what
//! every result says of where it comes from.

mod head;
mod knn;
mod linear;
mod mixture;
mod record;
mod sets;

use crate::args::EvalCommand;
use crate::error::CliError;

/// Runs a protocol.
pub fn run(command: &EvalCommand) -> Result<(), CliError> {
    match command {
        EvalCommand::Knn(args) => knn::run(args),
        EvalCommand::Linear(args) => linear::run(args),
        EvalCommand::Mixture(args) => mixture::run(args),
    }
}
