//! The head of a run: from features to the sphere on which its prototypes are a mixture.

use std::path::Path;

use eval::Features;
use eval::mixture::prototype_mixture;
use model::weights::{NetworkRole, WeightsFile};
use model::{Head, Layout};
use random::{Key, Purpose};
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
    batch_norm: bool,
}

/// The head that belongs to a network; or why there is none.
pub fn of(given: &Path, weights: &Weights, device: &Device) -> Result<Result<RunHead, &'static str>, CliError> {
    let run = if is_run(given) { Some(given.to_owned()) } else { run_of_checkpoint(given) };
    let Some(run) = run else { return Ok(Err("only a run says how its prototypes were used")) };
    let recipe = recipe::of_run(&RunReader::open(&run)?)?;
    if recipe.method() == MethodName::Msn {
        return Ok(Err("MSN's prototypes belong to its loss rather than to the network"));
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
    let batch_norm = recipe.head_batch_norm();
    Ok(Ok(RunHead { head, weights: values, device: device.clone(), temperature, batch_norm }))
}

impl RunHead {
    /// Features on the head's sphere. A head with batch norm takes the statistics of the images that are computed together:
    /// a few thousand, in an order that does not go by class.
    pub fn project(&self, features: &Features) -> Result<Features, CliError> {
        let (images, width) = (features.len(), features.dim);
        let mut order: Vec<usize> = (0..images).collect();
        if self.batch_norm {
            Key::new(0, Purpose::Subset).sample(images as u64).view(2).stream().shuffle(&mut order);
        }
        // Equal parts: the last would otherwise have statistics of a few images.
        let rows = images.div_ceil(images.div_ceil(ROWS).max(1)).max(1);
        let (mut values, mut dim) = (Vec::new(), 0);
        for part in order.chunks(rows) {
            let x: Vec<f32> = part.iter().flat_map(|&row| features.row(row)).copied().collect();
            let y = self.head.projector.infer(&self.weights, &self.device.from_f32(&[part.len(), width], &x));
            dim = y.columns();
            values.resize(images * dim, 0.0);
            let y = y.to_f32();
            self.device.finish()?;
            for (&row, y) in part.iter().zip(y.chunks_exact(dim)) {
                values[row * dim..(row + 1) * dim].copy_from_slice(y);
            }
        }
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
