//! `pretrain --epochs N --extend HOW`: a run that is made longer than it was begun.
//!
//! The schedules of a run follow its length, so there are two ways. Stretched, they are those of a run that was as long from
//! the beginning: at the step where the run goes on, the learning rate is what it would have been there, and higher than it
//! was. Begun again, the epochs so far stay as they were, and those that are added have schedules of their own.

use std::path::Path;

use ssl::recipe::{self, Extension, RawRecipe, Recipe};
use ssl::schedule::Schedules;
use train::Position;
use train::run::{Attempt, RunError, RunFolder, RunReader};

use crate::args::PretrainArgs;
use crate::error::CliError;
use crate::output;

/// Where a longer length was said.
const PLACE: &str = "--extend";

/// What was asked for, with the length of the run.
pub struct Length {
    /// For the run as it is to be.
    pub asked: RawRecipe,
    /// For the run as it was, where it is made longer now.
    pub before: Option<RawRecipe>,
}

/// Settles the length of a run that is made longer, or was.
pub fn of(args: &PretrainArgs, asked: RawRecipe, out: &Path) -> Result<Length, CliError> {
    let refused = |why: String| CliError::CannotExtend { path: out.to_owned(), why };
    // A folder that cannot be read is spoken of when it is opened.
    let begun = RunReader::open_any_attempt(out).ok().flatten().and_then(|run| recipe::of_run(&run).ok());
    let Some(begun) = begun else {
        return match args.extend {
            Some(_) => Err(refused("this folder holds none".to_owned())),
            None => Ok(Length { asked, before: None }),
        };
    };
    let (has, was, from) = (begun.epochs(), begun.extension(), begun.extended_from());
    let Some(wanted) = asked.epochs() else {
        return match args.extend {
            Some(_) => Err(refused(format!("needs --epochs above {has}, which it has"))),
            None => Ok(Length { asked, before: None }),
        };
    };
    let as_it_is = |asked: RawRecipe| match was {
        Extension::No => asked,
        _ => asked.with_length(has, was, from, PLACE),
    };
    match args.extend {
        // The same command again, with or without the flag.
        _ if wanted == has && (was != Extension::No || args.extend.is_none()) => {
            Ok(Length { asked: as_it_is(asked), before: None })
        }
        Some(_) if wanted <= has => Err(refused(format!("needs --epochs above {has}, which it has"))),
        _ if was == Extension::Again && wanted > has => Err(refused(format!(
            "this one has been already, to {}, by epochs with schedules of their own. A new run goes on from it: --init {} and \
             another --out",
            text::count(has, "epoch"),
            text::shell(&out.to_string_lossy())
        ))),
        Some(how) => {
            let before = as_it_is(asked.clone()).with_length(has, was, from, PLACE);
            Ok(Length { asked: asked.with_length(wanted, how, has, PLACE), before: Some(before) })
        }
        None if wanted > has => Err(CliError::NotExtended {
            path: out.to_owned(),
            from: text::count(has, "epoch"),
            to: wanted,
            ways: ways(&begun, &asked, wanted, out),
        }),
        None => Ok(Length { asked, before: None }),
    }
}

/// What can be done to train for longer, in words, with what becomes of the learning rate.
fn ways(begun: &Recipe, asked: &RawRecipe, wanted: usize, out: &Path) -> String {
    let (has, end) = (begun.epochs(), begun.total_steps().saturating_sub(1));
    let lr = |recipe: &Recipe, step| format!("{:.1e}", at(recipe, step));
    let longer = |how| asked.clone().with_length(wanted, how, has, PLACE).resolve(&begun.facts()).ok();
    let [stretched, again] = [Extension::Stretch, Extension::Again].map(longer);
    let of = |recipe: Option<Recipe>, step| recipe.map_or("its own".to_owned(), |recipe| lr(&recipe, step));
    let second = begun.total_steps() + (wanted - has) as u64 * begun.steps_per_epoch() / 10;
    format!(
        "The schedules follow the number of epochs, so there are three ways, each this command and one change:\n  \
         --extend stretch   schedules of {wanted} epochs from the beginning: after epoch {has} the learning rate, which had come \
         down to {}, is {}\n  \
         --extend again     the first {has} epochs stay as they were; after them it rises once more, to {}, and falls\n  \
         --init {} --out ANOTHER   a new run of {wanted} epochs that begins with the weights of this one",
        lr(begun, end),
        of(stretched, end + 1),
        of(again, second),
        text::shell(&out.to_string_lossy())
    )
}

/// The learning rate at a step.
fn at(recipe: &Recipe, step: u64) -> f64 {
    Schedules::new(recipe).at(Position { step, epoch: step / recipe.steps_per_epoch().max(1) }, false).lr
}

/// Opens a run that is made longer, and says what becomes of its learning rate.
pub fn open(out: &Path, before: &Recipe, now: &Recipe, attempts: &[Attempt]) -> Result<RunFolder, RunError> {
    let folder = RunFolder::open_extended(out, before, now, attempts)?;
    let saved = folder.checkpoints().list()?.iter().map(|&(step, _)| step).max().unwrap_or(0);
    output::note(&format!(
        "extended from {} to {}: the learning rate of step {saved} would have been {:.2e}, and is {:.2e}",
        text::count(before.epochs(), "epoch"),
        text::count(now.epochs(), "epoch"),
        at(before, saved),
        at(now, saved)
    ));
    Ok(folder)
}
