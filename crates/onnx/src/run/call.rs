//! An operator at work: its inputs and attributes, asked for by type.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use crate::graph::{Attribute, Element, Node};

use super::problem::Problem;
use super::value::{self, Value};

/// An operator that can be run.
pub(crate) struct Operator {
    /// Its name in the standard.
    pub(crate) name: &'static str,
    /// How many inputs it may have.
    pub(crate) inputs: RangeInclusive<usize>,
    /// The attributes that are heeded; any other is refused.
    pub(crate) attributes: &'static [&'static str],
    /// What it does.
    pub(crate) run: Run,
}

/// What an operator does.
pub(crate) enum Run {
    /// It gives one value.
    One(fn(&Call<'_>) -> Result<Value, Problem>),
    /// It gives as many as the node has outputs.
    Many(fn(&Call<'_>) -> Result<Vec<Value>, Problem>),
}

/// An operator of one output.
pub(crate) const fn operator(
    name: &'static str,
    inputs: RangeInclusive<usize>,
    attributes: &'static [&'static str],
    run: fn(&Call<'_>) -> Result<Value, Problem>,
) -> Operator {
    Operator { name, inputs, attributes, run: Run::One(run) }
}

/// A node about to be computed.
pub(crate) struct Call<'a> {
    pub(crate) node: &'a Node<'a>,
    /// Its inputs; none where an optional one is left out.
    pub(crate) inputs: Vec<Option<Cow<'a, Value>>>,
    /// The most elements that a value may have.
    pub(crate) limit: usize,
}

impl Call<'_> {
    /// Runs an operator, if the node fits it.
    pub(crate) fn run(&self, operator: &Operator) -> Result<Vec<Value>, Problem> {
        let (least, most) = (*operator.inputs.start(), *operator.inputs.end());
        let found = self.inputs.len();
        if !operator.inputs.contains(&found) {
            return Err(Problem::Count { what: "inputs", found, least, most });
        }
        let known = |name: &&String| !operator.attributes.contains(&name.as_str());
        if let Some(name) = self.node.attributes.keys().find(known) {
            return Err(Problem::UnknownAttribute { name: name.clone() });
        }
        match operator.run {
            Run::Many(run) => run(self),
            Run::One(run) => match self.node.outputs.len() {
                1 => Ok(vec![run(self)?]),
                found => Err(Problem::Count { what: "outputs", found, least: 1, most: 1 }),
            },
        }
    }

    /// An input that may be left out.
    pub(crate) fn optional(&self, input: usize) -> Option<&Value> {
        self.inputs.get(input)?.as_deref()
    }

    /// An input.
    pub(crate) fn input(&self, input: usize) -> Result<&Value, Problem> {
        self.optional(input).ok_or(Problem::MissingInput { input })
    }

    /// Shape and elements of an input in single precision.
    pub(crate) fn f32(&self, input: usize) -> Result<(&[usize], &[f32]), Problem> {
        let value = self.input(input)?;
        let values = value.as_f32().ok_or(Problem::Element { input, expected: Element::F32 })?;
        Ok((value.shape(), values))
    }

    /// An input that is a list of whole numbers.
    pub(crate) fn ints(&self, input: usize) -> Result<&[i64], Problem> {
        let value = self.input(input)?;
        let values = value.as_i64().ok_or(Problem::Element { input, expected: Element::I64 })?;
        match value.shape() {
            [_] => Ok(values),
            shape => Err(Problem::Shape { shape: shape.to_vec(), why: "this should be a list" }),
        }
    }

    /// A list of whole numbers that may be left out.
    pub(crate) fn optional_ints(&self, input: usize) -> Result<Option<&[i64]>, Problem> {
        self.optional(input).map(|_| self.ints(input)).transpose()
    }

    /// An attribute that is a whole number.
    pub(crate) fn int(&self, name: &'static str, default: i64) -> Result<i64, Problem> {
        match self.node.attributes.get(name) {
            None => Ok(default),
            Some(Attribute::Int(value)) => Ok(*value),
            Some(_) => Err(Problem::Attribute { name, expected: "a whole number" }),
        }
    }

    /// An attribute that is yes (1) or no (0).
    pub(crate) fn flag(&self, name: &'static str, default: bool) -> Result<bool, Problem> {
        match self.int(name, default.into())? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Problem::Attribute { name, expected: "0 or 1" }),
        }
    }

    /// An attribute that is a number.
    pub(crate) fn float(&self, name: &'static str, default: f32) -> Result<f32, Problem> {
        match self.node.attributes.get(name) {
            None => Ok(default),
            Some(Attribute::Float(value)) => Ok(*value),
            Some(_) => Err(Problem::Attribute { name, expected: "a number" }),
        }
    }

    /// An attribute that is a list of whole numbers.
    pub(crate) fn list(&self, name: &'static str) -> Result<Option<&[i64]>, Problem> {
        match self.node.attributes.get(name) {
            None => Ok(None),
            Some(Attribute::Ints(values)) => Ok(Some(values)),
            Some(_) => Err(Problem::Attribute { name, expected: "a list of whole numbers" }),
        }
    }

    /// The elements of a shape, if they are not too many.
    pub(crate) fn count(&self, shape: &[usize]) -> Result<usize, Problem> {
        value::count(shape, self.limit)
    }
}

/// A whole number of the graph as a length.
pub(crate) fn length(value: i64) -> Result<usize, Problem> {
    usize::try_from(value).map_err(|_| Problem::Number { value, what: "length" })
}
