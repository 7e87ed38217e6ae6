//! The head of a network, and how its prototypes are used.

use eval::certainty::Describer;
use eval::mixture::prototype_mixture;
use eval::prototypes::{Directions, PrototypeKind, project};
use eval::{EvalError, Features};
use model::weights::{LoadedHead, WeightsError, WeightsFile};
use serde_json::{Value, json};
use ssl::recipe::Prototypes;
use tensor::Device;
use vmf::VmfMixture;

use crate::args::{HeadArgs, PrototypesArg};
use crate::description::{self, PrototypeUse};
use crate::error::CliError;
use crate::output;
use crate::weights::{GivenWeightsError, Weights};

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
    device: Device,
}

impl Head {
    /// Loads the head beside a backbone.
    pub fn load(weights: &Weights, asked: &HeadArgs, device: &Device) -> Result<Self, CliError> {
        let said = said(weights)?;
        let given = asked.prototypes.map(|given| match given {
            PrototypesArg::None => Prototypes::None,
            PrototypesArg::L2 => Prototypes::L2,
            PrototypesArg::Vmf => Prototypes::Vmf,
        });
        let (prototypes, temperature) = (given.or(said.prototypes), asked.tau.or(said.temperature));
        let is_said = prototypes.is_some() && temperature.is_some();
        let (prototypes, temperature) =
            (prototypes.unwrap_or(Prototypes::None), temperature.unwrap_or(USUAL_TEMPERATURE));
        let head = Self::read(weights, prototypes, temperature, device)?;
        let head = head.ok_or_else(|| CliError::NoHead { path: weights.path.clone() })?;
        if !is_said {
            output::note(&format!(
                "only a run, and what `export` makes of one, says how its prototypes were used; taking prototypes {prototypes}, tau \
                 {temperature}. --prototypes and --tau say otherwise"
            ));
        }
        Ok(head)
    }

    /// The head of a run, where its prototypes are a mixture on its sphere; or why they are not.
    pub fn as_mixture(weights: &Weights, device: &Device) -> Result<Result<Self, &'static str>, CliError> {
        let said = said(weights)?;
        let (Some(prototypes), Some(temperature)) = (said.prototypes, said.temperature) else {
            return Ok(Err("only a run, and what `export` makes of one, says how its prototypes were used"));
        };
        if said.are_of_the_loss {
            return Ok(Err("MSN's prototypes belong to its loss rather than to the network"));
        }
        Ok(Self::read(weights, prototypes, temperature, device)?.ok_or("its file holds no head"))
    }

    /// None where the file holds none. It fits the backbone: whoever has it need not ask again.
    fn read(
        weights: &Weights,
        prototypes: Prototypes,
        temperature: f64,
        device: &Device,
    ) -> Result<Option<Self>, CliError> {
        let loaded = WeightsFile::open(&weights.path)?.load_head(weights.loaded.report.role, device)?;
        let Some(loaded) = loaded else { return Ok(None) };
        let (takes, width) = (loaded.config.inputs, weights.loaded.vit.config().dim);
        if takes != width {
            let what = format!("its MLP takes {takes} values, and the backbone gives {width}");
            return Err(WeightsError::Head { path: weights.path.clone(), what }.into());
        }
        let values = |id| loaded.weights[id].to_f32();
        let (lengths, directions) = (values(loaded.prototypes.magnitude()), values(loaded.prototypes.direction()));
        device.finish()?;
        let directions = Directions::new(loaded.config.bottleneck, &directions, &lengths);
        let lengths = lengths.iter().map(|&length| f64::from(length).abs()).collect();
        Ok(Some(Self { loaded, prototypes, temperature, lengths, directions, device: device.clone() }))
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

    /// What says how certain it is of images.
    pub fn describer(&self) -> Result<Describer<'_>, EvalError> {
        Describer::new(&self.loaded, self.kind(), self.temperature, &self.device)
    }

    /// Features on its sphere.
    pub fn project(&self, features: &Features) -> Result<Features, CliError> {
        Ok(project(&self.loaded, features, &self.device)?)
    }

    /// Its prototypes as a mixture of equal weights.
    pub fn mixture(&self) -> Result<VmfMixture, CliError> {
        let values = |id| self.loaded.weights[id].to_f32();
        let layer = &self.loaded.prototypes;
        let (directions, magnitudes) = (values(layer.direction()), values(layer.magnitude()));
        self.device.finish()?;
        Ok(prototype_mixture(self.loaded.config.bottleneck, &directions, &magnitudes, self.temperature)?)
    }
}

/// What the run or the file of a network says of its prototypes.
fn said(weights: &Weights) -> Result<PrototypeUse, CliError> {
    let said = description::prototype_use(&weights.said);
    Ok(said.map_err(|source| GivenWeightsError::Described { path: weights.path.clone(), source })?)
}
