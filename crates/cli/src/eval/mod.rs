//! `eval`: a file for each protocol, which resolves, calls and prints. [`sets`] has what most of them judge, [`record`] what
//! every result says of where it comes from.

mod all;
pub mod certainty;
mod copies;
mod fewshot;
mod finetune;
pub mod head;
mod headed;
mod knn;
mod linear;
mod mixture;
pub mod precision;
pub mod prototypes;
mod record;
mod retrieval;
mod sets;
pub mod shelf;
mod transfer;
mod video;

use std::process::ExitCode;

use crate::args::EvalCommand;
use crate::error::CliError;
pub use all::{FORMAT as FORMAT_OF_RESULTS, MOST_BYTES_OF_RESULTS, OF_BACKBONE, RESULTS, WHY_FAILED};
use record::Judgement;
use shelf::Shelf;

/// Runs a protocol and prints what it found.
pub fn run(command: &EvalCommand) -> Result<ExitCode, CliError> {
    match command {
        // Both may be stopped: their exit status says so.
        EvalCommand::Finetune(args) => finetune::run(args),
        EvalCommand::All(args) => all::run(args),
        protocol => {
            if let Some((judgement, is_json)) = judge(protocol, &Shelf::default())? {
                judgement.print(is_json)?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// What a protocol finds, and whether it is asked for as JSON. What is on the shelf is not computed again. None of what
/// is more than a protocol: a training, or all of them.
fn judge(command: &EvalCommand, shelf: &Shelf) -> Result<Option<(Judgement, bool)>, CliError> {
    Ok(Some(match command {
        EvalCommand::Knn(args) => (knn::judge(args, shelf)?, args.json),
        EvalCommand::Linear(args) => (linear::judge(args, shelf)?, args.json),
        EvalCommand::Fewshot(args) => (fewshot::judge(args, shelf)?, args.json),
        EvalCommand::Transfer(args) => (transfer::judge(args, shelf)?, args.json),
        EvalCommand::Retrieval(args) => (retrieval::judge(args, shelf)?, args.json),
        EvalCommand::Copies(args) => (copies::judge(args, shelf)?, args.judging.json),
        EvalCommand::Video(args) => (video::judge(args, shelf)?, args.json),
        EvalCommand::Prototypes(args) => (prototypes::judge(args, shelf)?, args.json),
        EvalCommand::Precision(args) => (precision::judge(args, shelf)?, args.json),
        EvalCommand::Certainty(args) => (certainty::judge(args, shelf)?, args.judged.json),
        EvalCommand::Mixture(args) => (mixture::judge(args, shelf)?, args.json),
        EvalCommand::Finetune(_) | EvalCommand::All(_) => return Ok(None),
    }))
}
