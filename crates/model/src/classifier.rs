//! A linear layer on features: the head of a supervised training.

use tensor::ops;
use tensor::{ParamSet, Tensor};

use crate::layers::Linear;
use crate::layout::Layout;

/// Logits of classes, linear in the features.
#[derive(Clone, Debug)]
pub struct Classifier {
    linear: Linear,
}

impl Classifier {
    /// Adds its weight and bias to a layout, their names behind `name`.
    pub fn new(layout: &mut Layout, name: &str, inputs: usize, classes: usize) -> Self {
        Self { linear: Linear::new(layout, name, inputs, classes) }
    }

    /// Logits [rows, classes] of features [rows, inputs].
    pub fn forward(&self, p: &ParamSet, features: &Tensor) -> Tensor {
        ops::linear(features, &self.linear.affine(p))
    }

    /// From the gradient of the logits to that of the features; adds those of weight and bias.
    pub fn backward(&self, p: &ParamSet, features: &Tensor, d_logits: &Tensor, grads: &mut ParamSet) -> Tensor {
        self.linear.backward_weight(features, d_logits, grads);
        self.linear.backward_input(d_logits, p)
    }
}
