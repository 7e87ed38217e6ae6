//! Linear layers.

use std::ops::Range;

use crate::cpu::{linear as cpu, on_cpu};
use crate::rows::Rows;
use crate::tensor::Tensor;

/// A weight [outputs, inputs] (further extents count as inputs) with its bias, or some of its outputs.
#[derive(Clone, Debug)]
pub struct Affine<'a> {
    weight: &'a Tensor,
    bias: Option<&'a Tensor>,
    outputs: Range<usize>,
}

impl<'a> Affine<'a> {
    /// All outputs.
    pub fn new(weight: &'a Tensor, bias: &'a Tensor) -> Self {
        assert_eq!(weight.rows(), bias.len(), "one bias for each output");
        Self { weight, bias: Some(bias), outputs: 0..weight.rows() }
    }

    /// Only these outputs: queries, or keys and values, of a joint projection.
    pub fn part(self, outputs: Range<usize>) -> Self {
        assert!(outputs.end <= self.weight.rows(), "outputs of the weight");
        Self { outputs, ..self }
    }

    fn inputs(&self) -> usize {
        self.weight.columns()
    }

    fn elements(&self) -> Range<usize> {
        self.outputs.start * self.inputs()..self.outputs.end * self.inputs()
    }

    fn output(&self, x: &Tensor) -> Tensor {
        assert_eq!(x.columns(), self.inputs(), "inputs of a linear layer");
        x.device().empty(&[x.rows(), self.outputs.len()])
    }
}

/// `x W^T + b`.
pub fn linear(x: &Tensor, affine: &Affine<'_>) -> Tensor {
    let mut y = affine.output(x);
    on_cpu!(x, T => {
        let bias = affine.bias.map(|b| &T::slice(b)[affine.outputs.clone()]);
        cpu::forward(x.device().as_cpu(), T::slice(x), &T::slice(affine.weight)[affine.elements()], bias, affine.inputs(), T::slice_mut(&mut y));
    });
    y
}

/// `gelu(x W^T + b)`: the pre-activations, which the derivative needs, and their GELU.
pub fn linear_gelu(x: &Tensor, affine: &Affine<'_>) -> (Tensor, Tensor) {
    let (mut pre, mut activated) = (affine.output(x), affine.output(x));
    let bias = affine.bias.expect("a layer with GELU has a bias");
    on_cpu!(x, T => cpu::forward_gelu(
        x.device().as_cpu(),
        T::slice(x),
        &T::slice(affine.weight)[affine.elements()],
        &T::slice(bias)[affine.outputs.clone()],
        affine.inputs(),
        T::slice_mut(&mut pre),
        T::slice_mut(&mut activated),
    ));
    (pre, activated)
}

/// `gelu(x W^T + b)` alone, for a pass without a derivative: less memory, the same bits.
pub fn linear_gelu_only(x: &Tensor, affine: &Affine<'_>) -> Tensor {
    let mut y = affine.output(x);
    let bias = affine.bias.expect("a layer with GELU has a bias");
    on_cpu!(x, T => cpu::forward_gelu_only(
        x.device().as_cpu(),
        T::slice(x),
        &T::slice(affine.weight)[affine.elements()],
        &T::slice(bias)[affine.outputs.clone()],
        affine.inputs(),
        T::slice_mut(&mut y),
    ));
    y
}

/// The residual stream after a branch: `stream`, with `scale (x W^T + b)` added to the rows that took the branch.
pub fn linear_residual(stream: &Tensor, rows: &Rows, scale: f64, x: &Tensor, affine: &Affine<'_>) -> Tensor {
    assert_eq!((stream.rows(), x.rows()), (rows.source_rows(), rows.count()), "rows of a residual branch");
    assert_eq!(stream.columns(), affine.outputs.len(), "a branch is as wide as its stream");
    let branch = linear(x, &Affine { bias: None, ..affine.clone() });
    let mut out = stream.device().empty(stream.shape());
    let bias = affine.bias.expect("a residual projection has a bias");
    on_cpu!(x, T => crate::cpu::residual::add(
        x.device().as_cpu(),
        T::slice(stream),
        rows,
        scale,
        T::slice(&branch),
        &T::slice(bias)[affine.outputs.clone()],
        T::slice_mut(&mut out),
    ));
    out
}

/// `dy W`: the gradient of the layer's input; multiplied by gelu'(pre) where the input was gelu(pre).
pub fn linear_backward_input(dy: &Tensor, affine: &Affine<'_>, through_gelu: Option<&Tensor>) -> Tensor {
    assert_eq!(dy.columns(), affine.outputs.len(), "outputs of a linear layer");
    let mut dx = dy.device().empty(&[dy.rows(), affine.inputs()]);
    on_cpu!(dy, T => cpu::backward_input(
        dy.device().as_cpu(),
        &T::slice(affine.weight)[affine.elements()],
        T::slice(dy),
        affine.inputs(),
        through_gelu.map(T::slice),
        T::slice_mut(&mut dx),
    ));
    dx
}

/// Adds `dy^T x` to the weight's gradient and the column sums of `dy` to the bias's, at the given outputs.
pub fn linear_backward_weight(
    x: &Tensor,
    dy: &Tensor,
    outputs: Range<usize>,
    d_weight: &mut Tensor,
    d_bias: &mut Tensor,
) {
    let inputs = d_weight.columns();
    assert_eq!((x.columns(), dy.columns(), x.rows()), (inputs, outputs.len(), dy.rows()), "shapes of a linear layer");
    on_cpu!(x, T => cpu::backward_weight(
        x.device().as_cpu(),
        T::slice(x),
        T::slice(dy),
        inputs,
        outputs.len(),
        &mut T::slice_mut(d_weight)[outputs.start * inputs..outputs.end * inputs],
        &mut T::slice_mut(d_bias)[outputs],
    ));
}
