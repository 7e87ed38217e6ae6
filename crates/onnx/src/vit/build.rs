//! A graph as it grows: nodes and constants, each under the name of what it gives.

use std::collections::HashSet;
use std::io::{self, Write};

use crate::graph::{Attribute, Element, Graph, Node, Tensor, ValueInfo};

use super::{BuildError, Tensors};

/// A graph that is being built from the tensors of a network.
pub(super) struct Builder<'a> {
    tensors: &'a dyn Tensors,
    graph: Graph<'a>,
    /// Names of the constants that there are.
    constants: HashSet<String>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(tensors: &'a dyn Tensors) -> Self {
        Self { tensors, graph: Graph::default(), constants: HashSet::new() }
    }

    /// The finished graph.
    pub(super) fn graph(self, name: &str) -> Graph<'a> {
        Graph { name: name.to_owned(), ..self.graph }
    }

    pub(super) fn input(&mut self, value: ValueInfo) {
        self.graph.inputs.push(value);
    }

    pub(super) fn output(&mut self, value: ValueInfo) {
        self.graph.outputs.push(value);
    }

    /// An operator of one output, which has the node's name. Gives that name.
    pub(super) fn node<const N: usize>(
        &mut self,
        op: &str,
        name: &str,
        inputs: &[&str],
        attributes: [(&str, Attribute<'a>); N],
    ) -> String {
        self.nodes(op, &[name], inputs, attributes);
        name.to_owned()
    }

    /// An operator of several outputs, which has the name of the first.
    pub(super) fn nodes<const N: usize>(
        &mut self,
        op: &str,
        outputs: &[&str],
        inputs: &[&str],
        attributes: [(&str, Attribute<'a>); N],
    ) {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        self.graph.nodes.push(Node {
            op: op.to_owned(),
            inputs: owned(inputs),
            outputs: owned(outputs),
            name: outputs.first().copied().unwrap_or_default().to_owned(),
            attributes: attributes.into_iter().map(|(name, attribute)| (name.to_owned(), attribute)).collect(),
        });
    }

    /// A constant, unless there is one of its name.
    pub(super) fn constant(&mut self, tensor: Tensor<'a>) -> String {
        let name = tensor.name.clone();
        if self.constants.insert(name.clone()) {
            self.graph.initializers.push(tensor);
        }
        name
    }

    /// A list of whole numbers.
    pub(super) fn ints(&mut self, name: &str, values: &[i64]) -> String {
        self.constant(Tensor::i64(name, &[values.len()], values))
    }

    /// A whole number.
    pub(super) fn int(&mut self, name: &str, value: i64) -> String {
        self.constant(Tensor::i64(name, &[], &[value]))
    }

    /// A number.
    pub(super) fn number(&mut self, name: &str, value: f32) -> String {
        self.constant(Tensor::f32(name, &[], &[value]))
    }

    /// A tensor of the network, as it is.
    pub(super) fn weight(&mut self, name: &str, shape: &[usize]) -> Result<String, BuildError> {
        self.expect(name, shape)?;
        let (tensors, from) = (self.tensors, name.to_owned());
        let write = move |out: &mut dyn Write| write_floats(out, tensors.values(&from)?.iter().copied());
        Ok(self.constant(Tensor::stream(name, Element::F32, shape, write)))
    }

    /// The matrix of a linear layer, `[outputs, inputs]` in the network, transposed so that rows can be multiplied
    /// with it.
    fn matrix(&mut self, name: &str, inputs: usize, outputs: usize) -> Result<String, BuildError> {
        self.expect(name, &[outputs, inputs])?;
        let (tensors, from) = (self.tensors, name.to_owned());
        let write = move |out: &mut dyn Write| {
            let values = tensors.values(&from)?;
            (0..inputs).try_for_each(|i| write_floats(out, values.iter().skip(i).step_by(inputs).copied()))
        };
        Ok(self.constant(Tensor::stream(format!("{name}.transposed"), Element::F32, &[inputs, outputs], write)))
    }

    fn expect(&self, name: &str, expected: &[usize]) -> Result<(), BuildError> {
        match self.tensors.shape(name) {
            None => Err(BuildError::Missing { name: name.to_owned() }),
            Some(found) if found != expected => {
                Err(BuildError::Shape { name: name.to_owned(), found, expected: expected.to_vec() })
            }
            Some(_) => Ok(()),
        }
    }

    /// Outputs of a linear layer, from its weight's shape; for layers whose width nothing else says.
    pub(super) fn outputs_of(&self, layer: &str) -> Result<usize, BuildError> {
        let name = format!("{layer}.weight");
        match self.tensors.shape(&name).as_deref() {
            None => Err(BuildError::Missing { name }),
            Some(&[outputs, _]) => Ok(outputs),
            Some(found) => Err(BuildError::Sizes { what: format!("a linear layer `{layer}` of shape {found:?}") }),
        }
    }

    /// `x W^T + b`.
    pub(super) fn linear(&mut self, layer: &str, x: &str, inputs: usize, outputs: usize) -> Result<String, BuildError> {
        let weight = self.matrix(&format!("{layer}.weight"), inputs, outputs)?;
        let bias = self.weight(&format!("{layer}.bias"), &[outputs])?;
        let product = self.node("MatMul", &format!("{layer}.product"), &[x, &weight], []);
        Ok(self.node("Add", layer, &[&product, &bias], []))
    }

    /// The exact GELU, `0.5 x (1 + erf(x / sqrt 2))`, in the form that runtimes know as one and fuse.
    pub(super) fn gelu(&mut self, name: &str, x: &str) -> String {
        let root = self.number("gelu.root_of_two", std::f32::consts::SQRT_2);
        let (one, half) = (self.number("gelu.one", 1.0), self.number("gelu.half", 0.5));
        let scaled = self.node("Div", &format!("{name}.scaled"), &[x, &root], []);
        let erf = self.node("Erf", &format!("{name}.erf"), &[&scaled], []);
        let shifted = self.node("Add", &format!("{name}.shifted"), &[&erf, &one], []);
        let doubled = self.node("Mul", &format!("{name}.doubled"), &[x, &shifted], []);
        self.node("Mul", name, &[&doubled, &half], [])
    }

    pub(super) fn layer_norm(
        &mut self,
        layer: &str,
        x: String,
        dim: usize,
        epsilon: f32,
    ) -> Result<String, BuildError> {
        let weight = self.weight(&format!("{layer}.weight"), &[dim])?;
        let bias = self.weight(&format!("{layer}.bias"), &[dim])?;
        let attributes = [("axis", Attribute::Int(-1)), ("epsilon", Attribute::Float(epsilon))];
        Ok(self.node("LayerNormalization", layer, &[&x, &weight, &bias], attributes))
    }

    pub(super) fn transpose(&mut self, name: &str, x: &str, perm: &[i64]) -> String {
        self.node("Transpose", name, &[x], [("perm", Attribute::Ints(perm.to_vec()))])
    }

    pub(super) fn concat(&mut self, name: &str, parts: &[&str], axis: i64) -> String {
        self.node("Concat", name, parts, [("axis", Attribute::Int(axis))])
    }

    /// Tokens [1, count, dim] repeated for each image of a batch, whose length is the value `batch`.
    pub(super) fn for_each_image(&mut self, batch: &str, tokens: String, count: usize, dim: usize) -> String {
        let sides = self.ints(&format!("{tokens}.sides"), &[count as i64, dim as i64]);
        let shape = self.concat(&format!("{tokens}.shape"), &[batch, &sides], 0);
        self.node("Expand", &format!("{tokens}.repeated"), &[&tokens, &shape], [])
    }
}

/// Writes numbers, a few thousand at a time.
fn write_floats(out: &mut dyn Write, values: impl Iterator<Item = f32>) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(1 << 14);
    for value in values {
        bytes.extend(value.to_le_bytes());
        if bytes.len() == 1 << 14 {
            out.write_all(&bytes)?;
            bytes.clear();
        }
    }
    out.write_all(&bytes)
}
