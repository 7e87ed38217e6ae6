//! The head of a network, and how its prototypes are used.

use std::path::Path;

use eval::prototypes::{Directions, PrototypeKind};
use model::weights::{LoadedHead, NetworkRole, WeightsFile};
use serde_json::{Value, json};
use ssl::recipe::{self, MethodName, Prototypes, Recipe};
use tensor::Device;
use train::run::{RunReader, is_run};

use crate::args::{HeadArgs, PrototypesArg};
use crate::error::CliError;
use crate::output;
use crate::weights::{Weights, run_of_checkpoint};

/// The temperature of DINO's teacher at the end of its training.
const USUAL_TEMPERATURE: f64 = 0.07;

/// A head, and what its logits are.
pub struct Head {
    /// Its layers.
    pub loaded: LoadedHead,
    /// What the lengths of its prototypes mean.
    pub prototypes: Prototypes,
    /// tau.
    pub temperature: f64,
    /// |w_k| of each prototype.
    pub lengths: Vec<f64>,
    /// v_k of each, of unit length.
    pub directions: Directions,
}

impl Head {
    /// Loads the head beside a backbone that was given as `path`.
    pub fn load(path: &Path, weights: &Weights, asked: &HeadArgs, device: &Device) -> Result<Self, CliError> {
        let role = weights.loaded.report.role;
        let loaded = WeightsFile::open(&weights.path)?.load_head(role, device)?;
        let loaded = loaded.ok_or_else(|| CliError::NoHead { path: weights.path.clone() })?;
        let recipe = recipe_of(path)?;
        let of_recipe = recipe.as_ref().map(|recipe| (recipe.prototypes(), temperature(recipe, role)));
        let (said, usual) = of_recipe.unwrap_or((Prototypes::None, USUAL_TEMPERATURE));
        let prototypes = match asked.prototypes {
            None => said,
            Some(PrototypesArg::None) => Prototypes::None,
            Some(PrototypesArg::L2) => Prototypes::L2,
            Some(PrototypesArg::Vmf) => Prototypes::Vmf,
        };
        let temperature = asked.tau.unwrap_or(usual);
        if recipe.is_none() && (asked.prototypes.is_none() || asked.tau.is_none()) {
            output::note(&format!(
                "only a run says how its prototypes were used; taking prototypes {prototypes}, tau {temperature}. \
                 --prototypes and --tau say otherwise"
            ));
        }
        let values = |id| loaded.weights[id].to_f32();
        let (lengths, directions) = (values(loaded.prototypes.magnitude()), values(loaded.prototypes.direction()));
        device.finish()?;
        let directions = Directions::new(loaded.config.bottleneck, &directions, &lengths);
        let lengths = lengths.iter().map(|&length| f64::from(length).abs()).collect();
        Ok(Self { loaded, prototypes, temperature, lengths, directions })
    }

    /// What the lengths of its prototypes mean to a logit.
    pub fn kind(&self) -> PrototypeKind {
        match self.prototypes {
            Prototypes::Vmf => PrototypeKind::Vmf,
            Prototypes::None | Prototypes::L2 => PrototypeKind::Plain,
        }
    }

    /// How it is used, for a result's settings.
    pub fn settings(&self) -> Value {
        json!({ "prototypes": self.prototypes.to_string(), "tau": self.temperature })
    }
}

/// The temperature of a network of a run at its end.
fn temperature(recipe: &Recipe, role: Option<NetworkRole>) -> f64 {
    // MSN has one for both networks.
    match (recipe.method(), role) {
        (MethodName::Msn, _) | (_, Some(NetworkRole::Student)) => recipe.student_temp(),
        _ => recipe.teacher_temp(),
    }
}

/// The recipe of the run that was given, or of a checkpoint in one; none of anything else.
fn recipe_of(path: &Path) -> Result<Option<Recipe>, CliError> {
    let run = if is_run(path) { Some(path.to_owned()) } else { run_of_checkpoint(path) };
    let Some(run) = run else { return Ok(None) };
    Ok(Some(recipe::of_run(&RunReader::open(&run)?)?))
}
