//! A projection head's MLP: from features to unit vectors.

use tensor::ops::{self, GeluSaved};
use tensor::{ParamSet, Tensor};

use crate::layers::Linear;
use crate::layout::{Init, Layout};
use crate::peers::{Alone, PeerError, Peers};
use crate::shared_norm::{SharedNorm, SharedNormSaved};

const NORMALIZE_EPSILON: f64 = 1e-12;

/// The shape of a projector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectorConfig {
    /// Width of the features.
    pub inputs: usize,
    /// Width of the hidden layers.
    pub hidden: usize,
    /// p, the dimension of the sphere's space.
    pub outputs: usize,
    /// Linear layers, at least one.
    pub layers: usize,
    /// Batch norm after each hidden linear layer, over the rows of all processes.
    pub batch_norm: bool,
}

/// Linear layers with GELU between them, and unit length at the end.
#[derive(Clone, Debug)]
pub struct Projector {
    hidden: Vec<Hidden>,
    last: Linear,
}

#[derive(Clone, Debug)]
struct Hidden {
    linear: Linear,
    batch_norm: Option<SharedNorm>,
}

/// Unit vectors y [rows, p], and what the derivative needs.
#[derive(Debug)]
pub struct Projected {
    /// The unit vectors.
    pub y: Tensor,
    norms: Tensor,
    features: Tensor,
    hidden: Vec<HiddenSaved>,
}

#[derive(Debug)]
struct HiddenSaved {
    activation: GeluSaved,
    batch_norm: Option<SharedNormSaved>,
}

impl Projector {
    /// Adds the parameters of a projector to a layout, their names beginning with `name`, as DINO's head calls its MLP.
    pub fn new(layout: &mut Layout, name: &str, config: &ProjectorConfig) -> Self {
        // Names count the modules of the reference's MLP: Linear, (BatchNorm,) GELU, ...
        let stride = if config.batch_norm { 3 } else { 2 };
        let hidden_layers = config.layers.saturating_sub(1);
        let mut inputs = config.inputs;
        let mut hidden = Vec::new();
        for i in 0..hidden_layers {
            let linear = Linear::new(layout, &format!("{name}.{}", i * stride), inputs, config.hidden);
            let batch_norm = config.batch_norm.then(|| {
                let name = format!("{name}.{}", i * stride + 1);
                let weight = layout.add(format!("{name}.weight"), &[config.hidden], Init::Constant(1.0));
                let bias = layout.add(format!("{name}.bias"), &[config.hidden], Init::Constant(0.0));
                SharedNorm { weight, bias }
            });
            hidden.push(Hidden { linear, batch_norm });
            inputs = config.hidden;
        }
        // A projector of one layer is a bare linear layer in the reference, without a number in its name.
        let last = match hidden_layers {
            0 => Linear::new(layout, name, inputs, config.outputs),
            n => Linear::new(layout, &format!("{name}.{}", n * stride), inputs, config.outputs),
        };
        Self { hidden, last }
    }

    /// Features to unit vectors.
    pub fn forward(&self, p: &ParamSet, features: Tensor, peers: &mut dyn Peers) -> Result<Projected, PeerError> {
        let mut hidden: Vec<HiddenSaved> = Vec::with_capacity(self.hidden.len());
        let mut x = None;
        for layer in &self.hidden {
            let affine = layer.linear.affine(p);
            let input = x.as_ref().unwrap_or(&features);
            let (activated, saved) = match layer.batch_norm {
                None => {
                    let (activated, activation) = ops::linear_gelu(input, &affine);
                    (activated, HiddenSaved { activation, batch_norm: None })
                }
                Some(norm) => {
                    let (pre, saved) = norm.forward(p, ops::linear(input, &affine), peers)?;
                    let activated = ops::gelu(&pre);
                    (activated, HiddenSaved { activation: GeluSaved::new(pre), batch_norm: Some(saved) })
                }
            };
            if let (Some(layer), Some(x)) = (hidden.last_mut(), x) {
                layer.activation.keep(x);
            }
            hidden.push(saved);
            x = Some(activated);
        }
        let bottleneck = ops::linear(x.as_ref().unwrap_or(&features), &self.last.affine(p));
        if let (Some(layer), Some(x)) = (hidden.last_mut(), x) {
            layer.activation.keep(x);
        }
        let (y, norms) = ops::l2_normalize(&bottleneck, NORMALIZE_EPSILON);
        Ok(Projected { y, norms, features, hidden })
    }

    /// The same of rows that are a whole batch, keeping nothing.
    pub fn infer(&self, p: &ParamSet, features: &Tensor) -> Tensor {
        self.infer_with(p, features, &mut Alone).expect("who is alone waits for nobody")
    }

    /// The same of rows that are a part of a batch, keeping nothing.
    pub fn infer_with(&self, p: &ParamSet, features: &Tensor, peers: &mut dyn Peers) -> Result<Tensor, PeerError> {
        let mut x = None;
        for layer in &self.hidden {
            let (affine, input) = (layer.linear.affine(p), x.as_ref().unwrap_or(features));
            x = Some(match layer.batch_norm {
                None => ops::linear_gelu_only(input, &affine),
                Some(norm) => ops::gelu(&norm.forward(p, ops::linear(input, &affine), peers)?.0),
            });
        }
        let bottleneck = ops::linear(x.as_ref().unwrap_or(features), &self.last.affine(p));
        Ok(ops::l2_normalize(&bottleneck, NORMALIZE_EPSILON).0)
    }

    /// Whether what a row becomes depends on the other rows of its batch.
    pub fn sees_whole_batch(&self) -> bool {
        self.hidden.iter().any(|layer| layer.batch_norm.is_some())
    }

    /// Takes part in a [`Self::forward`] or a [`Self::backward`] of the other processes without a row of its own.
    pub fn stand_by(&self, peers: &mut dyn Peers) -> Result<(), PeerError> {
        self.hidden.iter().filter(|layer| layer.batch_norm.is_some()).try_for_each(|_| SharedNorm::stand_by(peers))
    }

    /// From the gradient of the unit vectors to that of the features; adds those of the parameters.
    pub fn backward(
        &self,
        p: &ParamSet,
        projected: Projected,
        dy: &Tensor,
        grads: &mut ParamSet,
        peers: &mut dyn Peers,
    ) -> Result<Tensor, PeerError> {
        let Projected { y, norms, features, hidden } = projected;
        let mut d_output = ops::l2_normalize_backward(&y, &norms, NORMALIZE_EPSILON, dy);
        let mut above = &self.last;
        for (layer, saved) in self.hidden.iter().zip(hidden).rev() {
            let mut d_pre = above.backward_through_gelu(&d_output, p, saved.activation, grads);
            if let (Some(norm), Some(saved)) = (layer.batch_norm, &saved.batch_norm) {
                d_pre = norm.backward(p, saved, &d_pre, grads, peers)?;
            }
            d_output = d_pre;
            above = &layer.linear;
        }
        above.backward_weight(&features, &d_output, grads);
        Ok(above.backward_input(&d_output, p))
    }
}
