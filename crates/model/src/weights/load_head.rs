//! The projection head of a network, out of the file that its backbone is in.

use std::collections::BTreeMap;

use tensor::{Device, ParamSet};

use super::error::WeightsError;
use super::file::{TensorInfo, WeightsFile};
use super::names::NetworkRole;
use crate::{HeadConfig, Layout, Projector, PrototypeLayer};

const MLP: &str = "head.mlp";
/// Where prototypes are: in DINO's head, or, as MSN has them, beside it.
const PROTOTYPES: [&str; 2] = ["head.last_layer", "prototypes"];
const MAGNITUDE: &str = "weight_g";

/// A projection head with its weights.
#[derive(Debug)]
pub struct LoadedHead {
    /// Its shape.
    pub config: HeadConfig,
    /// From features to unit vectors.
    pub projector: Projector,
    /// What they are compared with.
    pub prototypes: PrototypeLayer,
    /// The values of both.
    pub weights: ParamSet,
}

impl WeightsFile {
    /// Loads the projection head of a network, the one for class tokens, onto a device; none where the file holds none.
    pub fn load_head(
        &mut self,
        role: Option<NetworkRole>,
        device: &Device,
    ) -> Result<Option<LoadedHead>, WeightsError> {
        let mut there = self.beside_backbone_as_trained(role);
        let direction = |name: &str| format!("{name}.weight_v");
        let Some(name) = PROTOTYPES.into_iter().find(|name| there.contains_key(&direction(name))) else {
            return Ok(None);
        };
        let config = config(&there, &direction(name)).map_err(|what| self.unusable(what))?;
        let mut layout = Layout::default();
        let projector = Projector::new(&mut layout, MLP, &config.projector());
        let prototypes = PrototypeLayer::new(&mut layout, name, config.prototypes, config.bottleneck);
        let mut found = Vec::with_capacity(layout.specs().len());
        for spec in layout.specs() {
            let tensor = there.remove(&spec.name);
            match &tensor {
                Some(tensor) if tensor.values() == spec.shape.iter().product::<usize>() => {}
                // Prototypes without lengths have unit length.
                None if spec.name.ends_with(MAGNITUDE) => {}
                Some(tensor) => {
                    let (name, there, needed) = (&tensor.name, &tensor.shape, &spec.shape);
                    return Err(self.unusable(format!("`{name}` has the shape {there:?} instead of {needed:?}")));
                }
                None => return Err(self.unusable(format!("`{}` is not there", spec.name))),
            }
            found.push(tensor);
        }
        // Tensors may share their bytes, and a head that takes more than there are would have no bound.
        let bytes = |tensor: &TensorInfo| tensor.values() as u64 * tensor.element.size().unwrap_or(0) as u64;
        if found.iter().flatten().map(bytes).sum::<u64>() > self.file_bytes() {
            return Err(self.unusable("its tensors share their bytes, which weights do not".to_owned()));
        }
        let mut weights = ParamSet::empty(device, layout.specs().iter().map(|spec| spec.shape.as_slice()));
        for (parameter, tensor) in weights.tensors_mut().iter_mut().zip(&found) {
            match tensor {
                Some(tensor) => self.read_into(tensor, parameter)?,
                None => parameter.fill(1.0),
            }
        }
        Ok(Some(LoadedHead { config, projector, prototypes, weights }))
    }

    fn unusable(&self, what: String) -> WeightsError {
        WeightsError::Head { path: self.path().to_owned(), what }
    }
}

/// The shape of the head that these tensors are; or what is wrong with them.
fn config(there: &BTreeMap<String, TensorInfo>, direction: &str) -> Result<HeadConfig, String> {
    let [prototypes, bottleneck] = there[direction].shape[..] else {
        return Err(format!("`{direction}` is no matrix"));
    };
    let (mut linear, mut batch_norm) = (Vec::new(), false);
    for (name, tensor) in there {
        let Some(module) = name.strip_prefix(MLP).and_then(|rest| rest.strip_suffix(".weight")) else { continue };
        match tensor.shape[..] {
            [outputs, inputs] => {
                // One layer alone has no number.
                let number = module.strip_prefix('.').unwrap_or("0").parse::<u32>();
                linear.push((number.map_err(|_| format!("`{name}` is in no known place"))?, inputs, outputs));
            }
            [_] => batch_norm = true,
            _ => return Err(format!("`{name}` is neither a matrix nor a vector")),
        }
    }
    linear.sort_unstable();
    let (Some(&(_, inputs, hidden)), Some(&(_, _, last))) = (linear.first(), linear.last()) else {
        return Err("it has prototypes, but no MLP before them".to_owned());
    };
    if last != bottleneck {
        return Err(format!("its MLP ends with {last} values, and its prototypes have {bottleneck}"));
    }
    if prototypes == 0 || bottleneck == 0 || inputs == 0 || hidden == 0 {
        return Err("one of its layers is empty".to_owned());
    }
    Ok(HeadConfig { inputs, hidden, bottleneck, prototypes, layers: linear.len(), batch_norm })
}
