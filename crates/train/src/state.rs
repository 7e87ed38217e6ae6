//! What a checkpoint holds: all that a step changes, so that a resumed run is the unbroken one, bit for bit.
//!
//! A training names its tensors and a few values ([`State`]); on a resume it asks for them by the same names
//! ([`SavedState`]).

use std::borrow::Cow;

use model::Layout;
use serde_json::{Map, Value};
use tensor::ops::squared_norms;
use tensor::{DType, Device, ParamId, ParamSet, Tensor};

use crate::error::{StepError, TrainFailure};
use crate::reduce::Share;
use crate::run::{Checkpoint, Checkpoints, Element, TensorRef, Written};

/// What is to be saved, by name.
#[derive(Debug, Default)]
pub struct State<'a> {
    tensors: Vec<(String, &'a Tensor)>,
    values: Map<String, Value>,
    /// Sets of parameters, and tensors of their own, each with its name.
    sets: Vec<(String, &'a ParamSet)>,
    single: Vec<(String, &'a Tensor)>,
}

impl<'a> State<'a> {
    /// A value for each parameter, each under `prefix` and its own name.
    pub fn set(&mut self, prefix: &str, layout: &Layout, set: &'a ParamSet) {
        let named = layout.specs().iter().zip(set.iter());
        self.tensors.extend(named.map(|(spec, tensor)| (format!("{prefix}/{}", spec.name), tensor)));
        self.sets.push((prefix.to_owned(), set));
    }

    /// One tensor.
    pub fn tensor(&mut self, name: &str, tensor: &'a Tensor) {
        self.tensors.push((name.to_owned(), tensor));
        self.single.push((name.to_owned(), tensor));
    }

    /// Anything that is no tensor.
    pub fn value(&mut self, key: &str, value: impl Into<Value>) {
        self.values.insert(key.to_owned(), value.into());
    }

    /// The name of something that is not finite. A gradient was finite at every step, but an update may still have left the
    /// range of numbers.
    pub(crate) fn not_finite(&self) -> Option<String> {
        let is_bad_set = |set: &ParamSet| squared_norms(set).iter().any(|square| !square.is_finite());
        let is_bad = |tensor: &Tensor| tensor.to_f64().iter().any(|x| !x.is_finite());
        let set = self.sets.iter().find(|(_, set)| is_bad_set(set)).map(|(name, _)| name);
        set.or_else(|| self.single.iter().find(|(_, tensor)| is_bad(tensor)).map(|(name, _)| name)).cloned()
    }

    /// Writes the checkpoint of a step.
    pub(crate) fn write(self, checkpoints: &Checkpoints, step: u64, device: &Device) -> Result<Written, TrainFailure> {
        let bytes: Vec<Cow<'_, [u8]>> = self.tensors.iter().map(|(_, t)| t.to_le_bytes()).collect();
        // A device that has failed gives zeros, which must not take the place of a good checkpoint.
        device.finish().map_err(StepError::from)?;
        let tensors: Vec<TensorRef<'_>> = self
            .tensors
            .iter()
            .zip(&bytes)
            .map(|((name, t), bytes)| TensorRef { name, shape: t.shape(), element: element(t.dtype()), bytes })
            .collect();
        Ok(checkpoints.write(step, &tensors, &Value::Object(self.values).to_string())?)
    }
}

/// A checkpoint that does not hold what a training asks it for, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct StateError {
    what: String,
}

impl StateError {
    fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }
}

/// What was saved, by name.
#[derive(Debug)]
pub struct SavedState<'a> {
    checkpoint: &'a Checkpoint,
    values: Value,
}

impl<'a> SavedState<'a> {
    pub(crate) fn of(checkpoint: &'a Checkpoint) -> Result<Self, StateError> {
        let values = serde_json::from_str(checkpoint.state());
        let values = values.map_err(|e| StateError::new(format!("has a broken state: {e}")))?;
        Ok(Self { checkpoint, values })
    }

    /// The counterpart of [`State::set`].
    pub fn set(&self, prefix: &str, layout: &Layout, into: &mut ParamSet) -> Result<(), StateError> {
        let mut specs = layout.specs().iter().enumerate();
        specs.try_for_each(|(i, spec)| self.tensor(&format!("{prefix}/{}", spec.name), &mut into[ParamId(i)]))
    }

    /// The same of a share of each parameter.
    pub fn shares(&self, prefix: &str, layout: &Layout, share: Share, into: &mut ParamSet) -> Result<(), StateError> {
        let mut specs = layout.specs().iter().zip(into.tensors_mut());
        specs.try_for_each(|(spec, into)| self.part(&format!("{prefix}/{}", spec.name), &spec.shape, share, into))
    }

    /// The counterpart of [`State::tensor`].
    pub fn tensor(&self, name: &str, into: &mut Tensor) -> Result<(), StateError> {
        let shape = into.shape().to_vec();
        self.part(name, &shape, Share::WHOLE, into)
    }

    /// A share of a tensor that was saved as a whole of this shape.
    fn part(&self, name: &str, shape: &[usize], share: Share, into: &mut Tensor) -> Result<(), StateError> {
        let found = self.checkpoint.tensor(name).ok_or_else(|| StateError::new(format!("has no tensor {name}")))?;
        let expected = element(into.dtype());
        if found.shape == shape && found.element == expected {
            let (size, elements) = (into.dtype().size(), share.of_elements(shape.iter().product()));
            let bytes = found.bytes.get(elements.start * size..elements.end * size);
            if bytes.is_some_and(|bytes| into.copy_from_le_bytes(bytes)) {
                return Ok(());
            }
        }
        Err(StateError::new(format!("has {name} as {:?} {:?}, not {expected:?} {shape:?}", found.element, found.shape)))
    }

    /// Whether a value was saved under this key.
    pub fn has(&self, key: &str) -> bool {
        self.values.get(key).is_some()
    }

    /// A whole number that was saved as a value.
    pub fn number(&self, key: &str) -> Result<u64, StateError> {
        self.values.get(key).and_then(Value::as_u64).ok_or_else(|| missing(key))
    }

    /// A list of whole numbers that was saved as a value.
    pub fn all_numbers(&self, key: &str) -> Result<Vec<u64>, StateError> {
        let list = self.values.get(key).and_then(Value::as_array);
        list.and_then(|list| list.iter().map(Value::as_u64).collect()).ok_or_else(|| missing(key))
    }

    /// The same, if there are as many as expected.
    pub fn numbers(&self, key: &str, count: usize) -> Result<Vec<u64>, StateError> {
        let numbers = self.all_numbers(key)?;
        match numbers.len() {
            found if found == count => Ok(numbers),
            found => Err(StateError::new(format!("has {found} {}, not {count}", key.replace('_', " ")))),
        }
    }
}

fn missing(key: &str) -> StateError {
    StateError::new(format!("has no {}", key.replace('_', " ")))
}

fn element(dtype: DType) -> Element {
    match dtype {
        DType::F32 => Element::F32,
        DType::F64 => Element::F64,
        DType::Bf16 => unreachable!("parameters, moments and centres are never rounded to bfloat16"),
    }
}
