//! `pretrain --minutes`: a recipe that fits the time on this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use data::Source;
use ssl::learner::LearnError;
use ssl::pretraining::PretrainError;
use ssl::recipe::{self, BudgetError, Facts, RawRecipe, Recipe};
use ssl::trial;
use tensor::{Device, DeviceError};
use train::run::RunReader;

use crate::error::CliError;
use crate::memory;
use crate::output;
use crate::pretrain::name_of;

/// Of each minute that there is, what one trial may take; more than three seconds tell nothing more.
const SECONDS_OF_A_MINUTE: f64 = 2.0;
/// Minutes in which something can be seen.
const AN_HOUR: f64 = 60.0;

/// `runs/photos-dino-vmf-5-minutes`: a function of the command, as the network, which is found by trial, is not.
pub fn default_out(data: &str, asked: &RawRecipe, minutes: f64) -> PathBuf {
    Path::new("runs").join(format!("{}-{}-{}-{minutes}-minutes", name_of(data), asked.method(), asked.prototypes()))
}

/// What was asked for, and what makes it fit. A run that has begun keeps what was found then.
pub fn fit(
    asked: &RawRecipe,
    facts: &Facts,
    minutes: f64,
    source: &Arc<dyn Source>,
    device: &Device,
    out: &Path,
) -> Result<RawRecipe, CliError> {
    if let Some(run) = RunReader::open_any_attempt(out)? {
        let begun = recipe::of_run(&run)?;
        output::note(&format!(
            "{} holds a run that has begun: --minutes changes nothing of it. It is of {}",
            text::shown(out),
            text::count(begun.total_steps() as usize, "step")
        ));
        return Ok(recipe::fitted_before(asked, &begun, minutes)?);
    }
    output::note(&format!("--minutes {minutes}: trying how fast some steps are here"));
    let trial = Duration::from_secs_f64((minutes * SECONDS_OF_A_MINUTE).clamp(0.5, 3.0));
    // What does not fit into memory takes for ever, and something cheaper may not.
    let mut too_large = None;
    let speed = |recipe: &Recipe| {
        if let Err(error) = memory::judge_recipe(device, recipe) {
            too_large = Some(error);
            return Ok(f64::INFINITY);
        }
        match trial::seconds_per_step(device, recipe, source.clone(), trial) {
            Err(PretrainError::Learn(LearnError::Device(error @ DeviceError::OutOfMemory { .. }))) => {
                too_large = Some(error.into());
                Ok(f64::INFINITY)
            }
            other => other,
        }
    };
    let fitted = match (recipe::fit(asked, facts, minutes, speed), too_large) {
        // Nothing was tried that has an end.
        (Err(BudgetError::NoEpoch { needed, .. }), Some(error)) if needed.is_infinite() => return Err(error),
        (fitted, _) => fitted?,
    };
    output::note(&fitted.summary);
    Ok(fitted.asked)
}

/// What to do about a run that takes days, by what fits into an hour.
pub fn under_an_hour(asked: &RawRecipe, facts: &Facts, recipe: &Recipe, images_per_second: f64) -> String {
    let fitted = recipe::fit_by_count(asked, facts, AN_HOUR, (recipe, images_per_second));
    let resolved = fitted.and_then(|fitted| fitted.asked.resolve(facts).ok());
    match resolved {
        Some(short) => format!(
            "--minutes {AN_HOUR} in place of --epochs would end within an hour: about {} of {} on views of {}. Ctrl-C stops \
             this one",
            text::count(short.epochs(), "epoch"),
            short.arch(),
            short.global_size()
        ),
        None => "Fewer images, or a GPU, would bring it under an hour. Ctrl-C stops this one".to_owned(),
    }
}
