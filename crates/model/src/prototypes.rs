//! The prototypes of a head: K vectors w_k = g_k v_k / |v_k| that unit vectors are compared with.

use tensor::ops::{self, Logits};
use tensor::{ParamId, ParamSet, Tensor};

use crate::layout::{Init, Layout};

/// Weight-normalised prototypes.
#[derive(Clone, Debug)]
pub struct PrototypeLayer {
    count: usize,
    magnitude: ParamId,
    direction: ParamId,
}

impl PrototypeLayer {
    /// Adds `count` prototypes in `p` dimensions to a layout, under the names that DINO's last layer has behind `name`.
    pub fn new(layout: &mut Layout, name: &str, count: usize, p: usize) -> Self {
        let magnitude = layout.add(format!("{name}.weight_g"), &[count, 1], Init::Constant(1.0));
        let uniform = Init::Uniform { bound: 1.0 / (p as f64).sqrt() };
        let direction = layout.add(format!("{name}.weight_v"), &[count, p], uniform);
        Self { count, magnitude, direction }
    }

    /// K, how many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// g, the length of each prototype [K, 1].
    pub fn magnitude(&self) -> ParamId {
        self.magnitude
    }

    /// v, the direction of each prototype [K, p], of any length.
    pub fn direction(&self) -> ParamId {
        self.direction
    }

    /// <w_k, y> for every prototype.
    pub fn logits(&self, p: &ParamSet, y: &Tensor) -> Logits {
        ops::prototype_logits(y, &p[self.magnitude], &p[self.direction])
    }

    /// From the gradient of the raw logits (in `logits.raw`) to that of the unit vectors; adds those of g and v.
    pub fn backward(&self, p: &ParamSet, y: &Tensor, logits: Logits, grads: &mut ParamSet) -> Tensor {
        let (g, v) = (&p[self.magnitude], &p[self.direction]);
        let (dg, dv) = grads.pair_mut(self.magnitude, self.direction);
        ops::prototype_logits_backward(y, g, v, logits, dg, dv)
    }
}
