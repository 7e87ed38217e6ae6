//! `eval`: a file for each protocol, which resolves, calls and prints. [`sets`] has what most of them judge, [`record`] what
//! every result says of where it comes from.

mod copies;
mod head;
mod knn;
mod precision;
mod prototypes;
mod record;
mod retrieval;
mod sets;

use crate::args::EvalCommand;
use crate::error::CliError;

/// Runs a protocol.
pub fn run(command: &EvalCommand) -> Result<(), CliError> {
    match command {
        EvalCommand::Knn(args) => knn::run(args),
        EvalCommand::Retrieval(args) => retrieval::run(args),
        EvalCommand::Copies(args) => copies::run(args),
        EvalCommand::Prototypes(args) => prototypes::run(args),
        EvalCommand::Precision(args) => precision::run(args),
    }
}
