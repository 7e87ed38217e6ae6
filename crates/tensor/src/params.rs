//! One vector of the parameter space, tensor by tensor.

use std::ops::{Index, IndexMut};

use crate::device::Device;
use crate::tensor::Tensor;

/// Names one parameter of a network; the same in the student, the teacher, the gradient and the moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParamId(pub usize);

/// A value for every parameter of a network: its weights, or their gradient, or an optimiser's moment of them.
///
/// A device that computes in a smaller type than it stores keeps its compute copy in here.
#[derive(Debug)]
pub struct ParamSet {
    tensors: Vec<Tensor>,
}

impl ParamSet {
    /// Zeros of the given shapes, in the order of their [`ParamId`]s.
    pub fn zeros<'a>(device: &Device, shapes: impl IntoIterator<Item = &'a [usize]>) -> Self {
        Self { tensors: shapes.into_iter().map(|s| device.zeros_exact(s)).collect() }
    }

    /// The same, to be written before it is read: what it holds is anything.
    pub fn empty<'a>(device: &Device, shapes: impl IntoIterator<Item = &'a [usize]>) -> Self {
        Self { tensors: shapes.into_iter().map(|s| device.empty_exact(s)).collect() }
    }

    /// A set of the same shapes, all zero.
    pub fn zeros_like(&self) -> Self {
        Self { tensors: self.tensors.iter().map(|t| t.device().zeros_exact(t.shape())).collect() }
    }

    /// A copy.
    pub fn duplicate(&self) -> Self {
        Self { tensors: self.tensors.iter().map(Tensor::duplicate).collect() }
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The tensors in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.iter()
    }

    /// The tensors in the order of their ids.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensors in the order of their ids, to be written.
    pub fn tensors_mut(&mut self) -> &mut [Tensor] {
        &mut self.tensors
    }

    /// Sets every element of every tensor to zero.
    pub fn clear(&mut self) {
        crate::ops::clear(&mut self.tensors);
    }

    /// Two different tensors, both to be written.
    ///
    /// # Panics
    /// When the two ids are the same.
    pub fn pair_mut(&mut self, a: ParamId, b: ParamId) -> (&mut Tensor, &mut Tensor) {
        let [a, b] = self.several_mut([a, b]);
        (a, b)
    }

    /// Several different tensors, all to be written.
    ///
    /// # Panics
    /// When two ids are the same.
    pub fn several_mut<const N: usize>(&mut self, ids: [ParamId; N]) -> [&mut Tensor; N] {
        self.tensors.get_disjoint_mut(ids.map(|id| id.0)).expect("different parameters of this set")
    }
}

impl Index<ParamId> for ParamSet {
    type Output = Tensor;
    fn index(&self, id: ParamId) -> &Tensor {
        &self.tensors[id.0]
    }
}

impl IndexMut<ParamId> for ParamSet {
    fn index_mut(&mut self, id: ParamId) -> &mut Tensor {
        &mut self.tensors[id.0]
    }
}
