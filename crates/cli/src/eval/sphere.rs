//! The head of a run: from features to the sphere on which its prototypes are a mixture.

use std::path::Path;

use eval::Features;
use eval::mixture::prototype_mixture;
use model::weights::{NetworkRole, WeightsFile};
use model::{Head, Layout};
use ssl::recipe::{self, MethodName};
use ssl::setup::head_config;
use tensor::{Device, ParamSet};
use train::run::{RunReader, is_run};
use vmf::VmfMixture;

use crate::error::CliError;
use crate::weights::{Weights, run_of_checkpoint};

/// Features that go through the head at once.
const ROWS: usize = 4096;

/// A head with its weights.
pub struct RunHead {
    head: Head,
    weights: ParamSet,
    device: Device,
    temperature: f64,
}

/// The head that belongs to a network; or why there is none.
pub fn of(given: &Path, weights: &Weights, device: &Device) -> Result<Result<RunHead, &'static str>, CliError> {
    let run = if is_run(given) { Some(given.to_owned()) } else { run_of_checkpoint(given) };
    let Some(run) = run else { return Ok(Err("only a run says how its prototypes were used")) };
    let recipe = recipe::of_run(&RunReader::open(&run)?)?;
    if recipe.method() == MethodName::Msn {
        return Ok(Err("MSN's prototypes belong to its loss rather than to the network"));
    }
    if recipe.head_batch_norm() {
        return Ok(Err("its head has batch norm, so that an image alone has no place on its sphere"));
    }
    let mut layout = Layout::default();
    let head = Head::new(&mut layout, "", &head_config(&recipe));
    let mut values = layout.zeros(device);
    let mut file = WeightsFile::open(&weights.path)?;
    let stored = file.head(weights.loaded.report.role);
    for (spec, value) in layout.specs().iter().zip(values.tensors_mut()) {
        let found = stored.iter().find(|(name, tensor)| *name == spec.name && tensor.shape == spec.shape);
        let Some((_, tensor)) = found else { return Ok(Err("its file holds no head, or one of another shape")) };
        value.copy_from_f32(&file.read(tensor)?.into_f32());
    }
    let temperature = match weights.loaded.report.role {
        Some(NetworkRole::Student) => recipe.student_temp(),
        _ => recipe.teacher_temp(),
    };
    Ok(Ok(RunHead { head, weights: values, device: device.clone(), temperature }))
}

impl RunHead {
    /// Features on the head's sphere.
    pub fn project(&self, features: &Features) -> Result<Features, CliError> {
        let mut values = Vec::new();
        for rows in features.values.chunks(ROWS * features.dim.max(1)) {
            let x = self.device.from_f32(&[rows.len() / features.dim, features.dim], rows);
            values.extend(self.head.projector.infer(&self.weights, &x).to_f32());
            self.device.finish()?;
        }
        let dim = values.len() / features.len().max(1);
        Ok(Features { dim, values, indices: features.indices.clone(), labels: features.labels.clone() })
    }

    /// Its prototypes as a mixture of equal weights.
    pub fn mixture(&self) -> Result<VmfMixture, CliError> {
        let layer = &self.head.prototypes;
        let (directions, magnitudes) = (&self.weights[layer.direction()], &self.weights[layer.magnitude()]);
        let mixture =
            prototype_mixture(directions.columns(), &directions.to_f32(), &magnitudes.to_f32(), self.temperature);
        Ok(mixture?)
    }
}
