//! A linear layer and a LayerNorm by the places of their parameters.

use tensor::ops::{self, Affine, GeluSaved, Norm, RowStatistics};
use tensor::{ParamId, ParamSet, Rows, Tensor};

use crate::layout::{Init, Layout};

/// y = x W^T + b.
#[derive(Clone, Debug)]
pub(crate) struct Linear {
    pub weight: ParamId,
    pub bias: ParamId,
    pub outputs: usize,
}

impl Linear {
    pub fn new(layout: &mut Layout, name: &str, inputs: usize, outputs: usize) -> Self {
        let weight = layout.add(format!("{name}.weight"), &[outputs, inputs], Init::Normal { deviation: 0.02 });
        let bias = layout.add(format!("{name}.bias"), &[outputs], Init::Constant(0.0));
        Self { weight, bias, outputs }
    }

    pub fn affine<'a>(&self, p: &'a ParamSet) -> Affine<'a> {
        Affine::new(&p[self.weight], &p[self.bias])
    }

    /// Adds the gradients of weight and bias.
    pub fn backward_weight(&self, x: &Tensor, dy: &Tensor, grads: &mut ParamSet) {
        self.backward_weight_part(x, dy, 0..self.outputs, grads);
    }

    /// The same for some of the outputs.
    pub fn backward_weight_part(&self, x: &Tensor, dy: &Tensor, part: std::ops::Range<usize>, grads: &mut ParamSet) {
        let (weight, bias) = grads.pair_mut(self.weight, self.bias);
        ops::linear_backward_weight(x, dy, part, weight, bias);
    }

    /// The gradient of the input.
    pub fn backward_input(&self, dy: &Tensor, p: &ParamSet) -> Tensor {
        ops::linear_backward_input(dy, &self.affine(p))
    }

    /// Adds the gradients of weight and bias of a layer whose input is a GELU; returns that of what the GELU was applied
    /// to.
    pub fn backward_through_gelu(&self, dy: &Tensor, p: &ParamSet, input: GeluSaved, grads: &mut ParamSet) -> Tensor {
        let (d_pre, input) = ops::linear_backward_through_gelu(dy, &self.affine(p), input);
        self.backward_weight(&input, dy, grads);
        d_pre
    }
}

/// The linear layer that a residual branch ends with, and its LayerScale where it has one: y = gamma (x W^T + b).
///
/// A factor for each output is one for each row of weight and bias. So the layer is run with gamma W and gamma b, which are
/// made for each pass, and the stream of tokens, which is far larger, is gone over no more often than without.
#[derive(Clone, Debug)]
pub(crate) struct BranchEnd {
    pub linear: Linear,
    gamma: Option<ParamId>,
}

/// Weight and bias as they act.
#[derive(Debug)]
pub(crate) enum Effective<'a> {
    Learnt(&'a Tensor, &'a Tensor),
    Scaled(Tensor, Tensor),
}

impl Effective<'_> {
    pub fn affine(&self) -> Affine<'_> {
        match self {
            Effective::Learnt(weight, bias) => Affine::new(weight, bias),
            Effective::Scaled(weight, bias) => Affine::new(weight, bias),
        }
    }
}

/// What a factor of LayerScale begins with, as in DINOv2.
const LAYER_SCALE_START: f64 = 1e-5;

impl BranchEnd {
    /// `scale` names the factors, where there are any.
    pub fn new(layout: &mut Layout, name: &str, scale: Option<&str>, inputs: usize, outputs: usize) -> Self {
        let linear = Linear::new(layout, name, inputs, outputs);
        let gamma = scale.map(|name| layout.add(name, &[outputs], Init::Constant(LAYER_SCALE_START)));
        Self { linear, gamma }
    }

    pub fn effective<'a>(&self, p: &'a ParamSet) -> Effective<'a> {
        let (weight, bias) = (&p[self.linear.weight], &p[self.linear.bias]);
        match self.gamma {
            None => Effective::Learnt(weight, bias),
            Some(gamma) => Effective::Scaled(ops::scale_rows(weight, &p[gamma]), ops::scale_rows(bias, &p[gamma])),
        }
    }

    /// Adds the gradients of all parameters.
    pub fn backward_weight(&self, p: &ParamSet, x: &Tensor, dy: &Tensor, grads: &mut ParamSet) {
        let Some(gamma) = self.gamma else { return self.linear.backward_weight(x, dy, grads) };
        let Linear { weight, bias, outputs } = self.linear;
        let (mut d_weight, mut d_bias) = (p[weight].zeros_like(), p[bias].zeros_like());
        ops::linear_backward_weight(x, dy, 0..outputs, &mut d_weight, &mut d_bias);
        for (id, d) in [(weight, d_weight), (bias, d_bias)] {
            let (dx, d_gamma) = grads.pair_mut(id, gamma);
            ops::scale_rows_backward(&p[id], &p[gamma], &d, dx, d_gamma);
        }
    }

    /// The gradient of the input.
    pub fn backward_input(&self, dy: &Tensor, p: &ParamSet) -> Tensor {
        ops::linear_backward_input(dy, &self.effective(p).affine())
    }

    /// Adds the gradients of all parameters of a layer whose input is a GELU; returns that of what the GELU was applied to.
    pub fn backward_through_gelu(&self, dy: &Tensor, p: &ParamSet, input: GeluSaved, grads: &mut ParamSet) -> Tensor {
        let (d_pre, input) = ops::linear_backward_through_gelu(dy, &self.effective(p).affine(), input);
        self.backward_weight(p, &input, dy, grads);
        d_pre
    }
}

/// LayerNorm.
#[derive(Clone, Debug)]
pub(crate) struct LayerNorm {
    pub weight: ParamId,
    pub bias: ParamId,
    epsilon: f64,
}

impl LayerNorm {
    pub fn new(layout: &mut Layout, name: &str, dim: usize, epsilon: f64) -> Self {
        let weight = layout.add(format!("{name}.weight"), &[dim], Init::Constant(1.0));
        let bias = layout.add(format!("{name}.bias"), &[dim], Init::Constant(0.0));
        Self { weight, bias, epsilon }
    }

    fn of<'a>(&self, p: &'a ParamSet, rows: &'a Rows) -> Norm<'a> {
        Norm { rows, weight: &p[self.weight], bias: &p[self.bias], epsilon: self.epsilon }
    }

    pub fn forward(&self, p: &ParamSet, x: &Tensor, rows: &Rows) -> (Tensor, RowStatistics) {
        ops::layer_norm(x, &self.of(p, rows))
    }

    /// Of the stream after a branch that ends in a linear layer: `scale (x W^T + b)` is added to the branch's rows.
    pub fn after_branch(
        &self,
        p: &ParamSet,
        stream: &Tensor,
        branch: &ResidualBranch,
        (layer, x): (&BranchEnd, &Tensor),
        rows: &Rows,
    ) -> NormSaved {
        let (norm, layer) = (self.of(p, rows), layer.effective(p));
        let (x, normed, statistics) =
            ops::linear_residual_norm(stream, &branch.rows, branch.scale, x, &layer.affine(), &norm);
        NormSaved { x, normed, statistics }
    }

    /// Adds the gradient of the named rows of `x` to `dx`, and those of the parameters to theirs.
    pub fn backward(
        &self,
        p: &ParamSet,
        x: &Tensor,
        rows: &Rows,
        statistics: &RowStatistics,
        dy: &Tensor,
        dx: &mut Tensor,
        grads: &mut ParamSet,
    ) {
        let (d_weight, d_bias) = grads.pair_mut(self.weight, self.bias);
        ops::layer_norm_backward(x, rows, statistics, &p[self.weight], dy, dx, d_weight, d_bias);
    }

    /// From the gradient of the linear layer that read the normalised rows to that of `x`, which is added to `dx`; adds
    /// those of all parameters.
    pub fn backward_with_reader(
        &self,
        reader: &Linear,
        p: &ParamSet,
        saved: &NormSaved,
        rows: &Rows,
        dy: &Tensor,
        dx: &mut Tensor,
        grads: &mut ParamSet,
    ) {
        reader.backward_weight(&saved.normed, dy, grads);
        let d_normed = reader.backward_input(dy, p);
        self.backward(p, &saved.x, rows, &saved.statistics, &d_normed, dx, grads);
    }
}

/// The rows that take a residual branch, and what the branch is multiplied by.
#[derive(Clone, Debug)]
pub(crate) struct ResidualBranch {
    pub rows: Rows,
    pub scale: f64,
}

impl ResidualBranch {
    pub fn new(rows: &Rows, choice: Option<(&[bool], f64)>) -> Self {
        match choice {
            Some((taken, scale)) => Self { rows: rows.keep(taken), scale },
            None => Self { rows: rows.clone(), scale: 1.0 },
        }
    }
}

/// What the derivative of a LayerNorm and of the layer that read it needs.
#[derive(Debug)]
pub(crate) struct NormSaved {
    /// The input.
    pub x: Tensor,
    /// The named rows, normalised.
    pub normed: Tensor,
    pub statistics: RowStatistics,
}
