//! Linear layers.

use std::ops::Range;

use crate::cpu::{Real, linear as cpu, on_device};
use crate::cuda::linear as gpu;
use crate::ops::residual::assert_stream;
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

    pub(super) fn on_gpu(&self) -> gpu::Layer<'a> {
        let (first, outputs) = (self.outputs.start, self.outputs.len());
        gpu::Layer { weight: self.weight, bias: self.bias, first, outputs }
    }

    fn output(&self, x: &Tensor) -> Tensor {
        assert_eq!(x.columns(), self.inputs(), "inputs of a linear layer");
        x.device().empty(&[x.rows(), self.outputs.len()])
    }
}

/// `x W^T + b`.
pub fn linear(x: &Tensor, affine: &Affine<'_>) -> Tensor {
    let mut y = affine.output(x);
    on_device!(x, T => {
        let bias = affine.bias.map(|b| &T::slice(b)[affine.outputs.clone()]);
        cpu::forward(x.device().as_cpu(), T::slice(x), &T::slice(affine.weight)[affine.elements()], bias, affine.inputs(), T::slice_mut(&mut y));
    }, cuda => gpu::forward(cuda, x, affine.on_gpu(), &mut y));
    y
}

/// What the derivative of a GELU needs: what it was applied to, and for the gradient of the weights that read it, its
/// result. A GPU recomputes the result from the former, which costs it less than the memory.
#[derive(Debug)]
pub struct GeluSaved {
    pre: Tensor,
    /// The bias that `pre` lacks, where the device adds it on the way.
    bias: Option<Tensor>,
    activated: Option<Tensor>,
}

impl GeluSaved {
    /// From pre-activations that were made apart, by a normalisation for instance.
    pub fn new(pre: Tensor) -> Self {
        Self { pre, bias: None, activated: None }
    }

    /// Hands over the activations after their last use in the forward pass.
    pub fn keep(&mut self, activated: Tensor) {
        self.activated = (!activated.device().is_gpu()).then_some(activated);
    }
}

/// `gelu(x W^T + b)`, and what its derivative needs.
pub fn linear_gelu(x: &Tensor, affine: &Affine<'_>) -> (Tensor, GeluSaved) {
    let (mut pre, mut activated) = (affine.output(x), affine.output(x));
    let bias = affine.bias.expect("a layer with GELU has a bias");
    let missing = on_device!(x, T => {
        cpu::forward_gelu(
            x.device().as_cpu(),
            T::slice(x),
            &T::slice(affine.weight)[affine.elements()],
            &T::slice(bias)[affine.outputs.clone()],
            affine.inputs(),
            T::slice_mut(&mut pre),
            T::slice_mut(&mut activated),
        );
        None
    }, cuda => gpu::forward_gelu(cuda, x, affine.on_gpu(), &mut pre, &mut activated).map(Tensor::duplicate));
    (activated, GeluSaved { pre, bias: missing, activated: None })
}

/// `gelu(x W^T + b)` alone, for a pass without a derivative: less memory, the same bits.
pub fn linear_gelu_only(x: &Tensor, affine: &Affine<'_>) -> Tensor {
    let mut y = affine.output(x);
    let bias = affine.bias.expect("a layer with GELU has a bias");
    on_device!(x, T => cpu::forward_gelu_only(
        x.device().as_cpu(),
        T::slice(x),
        &T::slice(affine.weight)[affine.elements()],
        &T::slice(bias)[affine.outputs.clone()],
        affine.inputs(),
        T::slice_mut(&mut y),
    ), cuda => {
        let mut pre = affine.output(x);
        gpu::forward_gelu(cuda, x, affine.on_gpu(), &mut pre, &mut y);
    });
    y
}

/// The residual stream after a branch: `stream`, with `scale (x W^T + b)` added to the rows that took the branch.
pub fn linear_residual(stream: &Tensor, rows: &Rows, scale: f64, x: &Tensor, affine: &Affine<'_>) -> Tensor {
    let (mut out, bias) = residual_output(stream, rows, x, affine);
    on_device!(x, T => {
        let branch = linear(x, &Affine { bias: None, ..affine.clone() });
        let bias = &T::slice(bias)[affine.outputs.clone()];
        let cpu = x.device().as_cpu();
        crate::cpu::residual::add(cpu, T::slice(stream), rows, scale, T::slice(&branch), bias, T::slice_mut(&mut out));
    }, cuda => gpu::residual(cuda, stream, rows, scale, x, affine.on_gpu(), &mut out));
    out
}

/// Room for the stream after a branch, and the branch's bias.
pub(super) fn residual_output<'a>(
    stream: &Tensor,
    rows: &Rows,
    x: &Tensor,
    affine: &Affine<'a>,
) -> (Tensor, &'a Tensor) {
    assert_stream(stream);
    assert_eq!((stream.rows(), x.rows()), (rows.source_rows(), rows.count()), "rows of a residual branch");
    assert_eq!(stream.columns(), affine.outputs.len(), "a branch is as wide as its stream");
    (stream.device().empty_residual(stream.shape()), affine.bias.expect("a residual projection has a bias"))
}

/// `dy W`: the gradient of the layer's input.
pub fn linear_backward_input(dy: &Tensor, affine: &Affine<'_>) -> Tensor {
    let mut dx = input_gradient(dy, affine);
    on_device!(
        dy,
        T => backward_input::<T>(dy, affine, None, &mut dx),
        cuda => gpu::backward_input(cuda, dy, affine.on_gpu(), &mut dx),
    );
    dx
}

/// The gradient of what the GELU before the layer was applied to, and the GELU's result: the layer's input.
pub fn linear_backward_through_gelu(dy: &Tensor, affine: &Affine<'_>, saved: GeluSaved) -> (Tensor, Tensor) {
    let mut d_pre = input_gradient(dy, affine);
    let GeluSaved { mut pre, bias, activated } = saved;
    on_device!(dy, T => backward_input::<T>(dy, affine, Some(&pre), &mut d_pre), cuda => {
        gpu::backward_input(cuda, dy, affine.on_gpu(), &mut d_pre);
        gpu::gelu_backward(cuda, &mut pre, bias.as_ref(), &mut d_pre);
    });
    let activated = match activated {
        Some(activated) => activated,
        None if dy.device().is_gpu() => pre,
        None => super::gelu(&pre),
    };
    (d_pre, activated)
}

fn input_gradient(dy: &Tensor, affine: &Affine<'_>) -> Tensor {
    assert_eq!(dy.columns(), affine.outputs.len(), "outputs of a linear layer");
    dy.device().empty(&[dy.rows(), affine.inputs()])
}

fn backward_input<T: Real>(dy: &Tensor, affine: &Affine<'_>, through_gelu: Option<&Tensor>, dx: &mut Tensor) {
    cpu::backward_input(
        dy.device().as_cpu(),
        &T::slice(affine.weight)[affine.elements()],
        T::slice(dy),
        affine.inputs(),
        through_gelu.map(T::slice),
        T::slice_mut(dx),
    );
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
    on_device!(x, T => cpu::backward_weight(
        x.device().as_cpu(),
        T::slice(x),
        T::slice(dy),
        inputs,
        outputs.len(),
        &mut T::slice_mut(d_weight)[outputs.start * inputs..outputs.end * inputs],
        &mut T::slice_mut(d_bias)[outputs],
    ), cuda => gpu::backward_weight(cuda, x, dy, outputs, d_weight, d_bias));
}
