//! DINO's projection head: a projector and the prototypes that its unit vectors are compared with.

use tensor::ops::Logits;
use tensor::{ParamSet, Tensor};

use crate::layout::Layout;
use crate::peers::{PeerError, Peers};
use crate::projector::{Projected, Projector, ProjectorConfig};
use crate::prototypes::PrototypeLayer;

/// The shape of a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadConfig {
    /// Width of the features.
    pub inputs: usize,
    /// Width of the hidden layers.
    pub hidden: usize,
    /// p, the dimension of the sphere's space.
    pub bottleneck: usize,
    /// K, the number of prototypes.
    pub prototypes: usize,
    /// Linear layers of the MLP, at least one.
    pub layers: usize,
    /// Batch norm after each hidden linear layer.
    pub batch_norm: bool,
}

impl HeadConfig {
    /// Its part before the prototypes.
    pub fn projector(&self) -> ProjectorConfig {
        let HeadConfig { inputs, hidden, bottleneck: outputs, layers, batch_norm, .. } = *self;
        ProjectorConfig { inputs, hidden, outputs, layers, batch_norm }
    }
}

/// The head.
#[derive(Clone, Debug)]
pub struct Head {
    /// From features to unit vectors.
    pub projector: Projector,
    /// What they are compared with.
    pub prototypes: PrototypeLayer,
}

impl Head {
    /// Adds the parameters of a head to a layout, their names behind `prefix`.
    pub fn new(layout: &mut Layout, prefix: &str, config: &HeadConfig) -> Self {
        let projector = Projector::new(layout, &format!("{prefix}mlp"), &config.projector());
        let (count, p) = (config.prototypes, config.bottleneck);
        let prototypes = PrototypeLayer::new(layout, &format!("{prefix}last_layer"), count, p);
        Self { projector, prototypes }
    }

    /// Features to unit vectors, and those to <w_k, y> for every prototype.
    pub fn forward(
        &self,
        p: &ParamSet,
        features: Tensor,
        peers: &mut dyn Peers,
    ) -> Result<(Projected, Logits), PeerError> {
        let projected = self.projector.forward(p, features, peers)?;
        let logits = self.prototypes.logits(p, &projected.y);
        Ok((projected, logits))
    }

    /// From the gradient of the raw logits (in `logits.raw`) to that of the features; adds those of the parameters.
    pub fn backward(
        &self,
        p: &ParamSet,
        projected: Projected,
        logits: Logits,
        grads: &mut ParamSet,
        peers: &mut dyn Peers,
    ) -> Result<Tensor, PeerError> {
        let dy = self.prototypes.backward(p, &projected.y, logits, grads);
        self.projector.backward(p, projected, &dy, grads, peers)
    }
}
