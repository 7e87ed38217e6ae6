//! DINO's projection head: an MLP to a bottleneck, unit length, and weight-normalised prototypes.

use tensor::ops::{self, BatchStatistics, GeluSaved, Logits};
use tensor::{ParamId, ParamSet, Tensor};

use crate::layers::Linear;
use crate::layout::{Init, Layout};

const NORMALIZE_EPSILON: f64 = 1e-12;
const BATCH_NORM_EPSILON: f64 = 1e-5;

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

/// The head.
#[derive(Clone, Debug)]
pub struct DinoHead {
    config: HeadConfig,
    hidden: Vec<Hidden>,
    last: Linear,
    magnitude: ParamId,
    direction: ParamId,
}

#[derive(Clone, Debug)]
struct Hidden {
    linear: Linear,
    batch_norm: Option<(ParamId, ParamId)>,
}

/// Unit vectors y [rows, p], and what the derivative needs.
#[derive(Debug)]
pub struct Embedded {
    /// The unit vectors.
    pub y: Tensor,
    norms: Tensor,
    features: Tensor,
    hidden: Vec<HiddenSaved>,
}

#[derive(Debug)]
struct HiddenSaved {
    activation: GeluSaved,
    /// What the batch norm was applied to, and its statistics.
    batch_norm: Option<(Tensor, BatchStatistics)>,
}

impl DinoHead {
    /// Adds the parameters of a head to a layout, their names behind `prefix`.
    pub fn new(layout: &mut Layout, prefix: &str, config: HeadConfig) -> Self {
        // Names count the modules of the reference's MLP: Linear, (BatchNorm,) GELU, ...
        let stride = if config.batch_norm { 3 } else { 2 };
        let hidden_layers = config.layers.saturating_sub(1);
        let mut inputs = config.inputs;
        let mut hidden = Vec::new();
        for i in 0..hidden_layers {
            let linear = Linear::new(layout, &format!("{prefix}mlp.{}", i * stride), inputs, config.hidden);
            let batch_norm = config.batch_norm.then(|| {
                let name = format!("{prefix}mlp.{}", i * stride + 1);
                let weight = layout.add(format!("{name}.weight"), &[config.hidden], Init::Constant(1.0));
                (weight, layout.add(format!("{name}.bias"), &[config.hidden], Init::Constant(0.0)))
            });
            hidden.push(Hidden { linear, batch_norm });
            inputs = config.hidden;
        }
        // A head of one layer is a bare linear layer in the reference, without a number in its name.
        let name =
            if hidden_layers == 0 { format!("{prefix}mlp") } else { format!("{prefix}mlp.{}", hidden_layers * stride) };
        let last = Linear::new(layout, &name, inputs, config.bottleneck);
        let magnitude =
            layout.add(format!("{prefix}last_layer.weight_g"), &[config.prototypes, 1], Init::Constant(1.0));
        let direction = layout.add(
            format!("{prefix}last_layer.weight_v"),
            &[config.prototypes, config.bottleneck],
            Init::Uniform { bound: 1.0 / (config.bottleneck as f64).sqrt() },
        );
        Self { config, hidden, last, magnitude, direction }
    }

    /// Its shape.
    pub fn config(&self) -> &HeadConfig {
        &self.config
    }

    /// g, the length of each prototype [K, 1].
    pub fn magnitude(&self) -> ParamId {
        self.magnitude
    }

    /// Features to unit vectors.
    pub fn embed(&self, p: &ParamSet, features: Tensor) -> Embedded {
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
                Some((weight, bias)) => {
                    let linear = ops::linear(input, &affine);
                    let (pre, statistics) = ops::batch_norm(&linear, &p[weight], &p[bias], BATCH_NORM_EPSILON);
                    let activated = ops::gelu(&pre);
                    let batch_norm = Some((linear, statistics));
                    (activated, HiddenSaved { activation: GeluSaved::new(pre), batch_norm })
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
        Embedded { y, norms, features, hidden }
    }

    /// <w_k, y> for every prototype.
    pub fn logits(&self, p: &ParamSet, embedded: &Embedded) -> Logits {
        ops::prototype_logits(&embedded.y, &p[self.magnitude], &p[self.direction])
    }

    /// From the gradient of the raw logits (in `logits.raw`) to that of the features; adds those of the parameters.
    pub fn backward(&self, p: &ParamSet, embedded: Embedded, logits: Logits, grads: &mut ParamSet) -> Tensor {
        let (g, v) = (&p[self.magnitude], &p[self.direction]);
        let (dg, dv) = grads.pair_mut(self.magnitude, self.direction);
        let dy = ops::prototype_logits_backward(&embedded.y, g, v, logits, dg, dv);
        let mut d_output = ops::l2_normalize_backward(&embedded.y, &embedded.norms, NORMALIZE_EPSILON, &dy);
        let mut above = &self.last;
        for (layer, saved) in self.hidden.iter().zip(embedded.hidden).rev() {
            let mut d_pre = above.backward_through_gelu(&d_output, p, saved.activation, grads);
            if let (Some((weight, bias)), Some((linear, statistics))) = (layer.batch_norm, &saved.batch_norm) {
                let (d_weight, d_bias) = grads.pair_mut(weight, bias);
                d_pre = ops::batch_norm_backward(
                    linear,
                    statistics,
                    &p[weight],
                    BATCH_NORM_EPSILON,
                    &d_pre,
                    d_weight,
                    d_bias,
                );
            }
            d_output = d_pre;
            above = &layer.linear;
        }
        above.backward_weight(&embedded.features, &d_output, grads);
        above.backward_input(&d_output, p)
    }
}
