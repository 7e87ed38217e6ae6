//! Why a graph cannot be run.

use crate::graph::{Element, GraphError};

use super::value::NotItsShape;

/// Why a model cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The graph contradicts itself.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// Operators of a version whose meaning is not known here.
    #[error("the model uses version {found} of the standard operators; only {} can be run", super::OPSET)]
    Opset {
        /// The version.
        found: i64,
    },
    /// An input was not given.
    #[error("the input `{name}` is not given")]
    MissingInput {
        /// Its name.
        name: String,
    },
    /// An input was given that the model does not have.
    #[error("the model has no input `{name}`")]
    NoSuchInput {
        /// Its name.
        name: String,
    },
    /// An input or output is not as the model says.
    #[error("`{name}` should be {expected}, and is {element} of shape {shape:?}")]
    NotAsDeclared {
        /// Its name.
        name: String,
        /// What the model says.
        expected: String,
        /// The type of its elements.
        element: Element,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// An operator fails.
    #[error("node `{node}` ({op}): {problem}")]
    Node {
        /// The node's name.
        node: String,
        /// The operator.
        op: String,
        /// What is wrong.
        problem: Problem,
    },
}

/// Why an operator cannot be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    /// An operator that is not known here.
    #[error("the operator is not known")]
    UnknownOperator,
    /// Too many or too few inputs or outputs.
    #[error("it has {found} {what}, not {least} to {most}")]
    Count {
        /// Inputs or outputs.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// The least that make sense.
        least: usize,
        /// The most.
        most: usize,
    },
    /// An input that has to be there.
    #[error("input {input} is missing")]
    MissingInput {
        /// Its number, from zero.
        input: usize,
    },
    /// An attribute that is not known, and so cannot be heeded.
    #[error("the attribute `{name}` is not known")]
    UnknownAttribute {
        /// Its name.
        name: String,
    },
    /// An attribute of the wrong type or value, or a missing one.
    #[error("the attribute `{name}` should be {expected}")]
    Attribute {
        /// Its name.
        name: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// An input of the wrong type.
    #[error("input {input} should be {expected}")]
    Element {
        /// Its number, from zero.
        input: usize,
        /// The right type.
        expected: Element,
    },
    /// Shapes that do not broadcast to each other.
    #[error("shapes {left:?} and {right:?} do not fit")]
    Broadcast {
        /// One shape.
        left: Vec<usize>,
        /// The other.
        right: Vec<usize>,
    },
    /// A shape that the operator cannot take.
    #[error("shape {shape:?}: {why}")]
    Shape {
        /// The shape.
        shape: Vec<usize>,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Elements that are not those of a shape.
    #[error(transparent)]
    NotItsShape(#[from] NotItsShape),
    /// An axis that is not there.
    #[error("axis {axis} of {rank}")]
    Axis {
        /// The axis.
        axis: i64,
        /// How many there are.
        rank: usize,
    },
    /// An index beyond the end.
    #[error("index {index} of {length}")]
    Index {
        /// The index.
        index: i64,
        /// How many elements there are.
        length: usize,
    },
    /// A number among the inputs that makes no sense where it stands.
    #[error("{value} is no {what}")]
    Number {
        /// The number.
        value: i64,
        /// What it should be.
        what: &'static str,
    },
    /// Whole numbers whose result is none.
    #[error("division by zero, or beyond 64 bits")]
    Arithmetic,
    /// A value with more sides than anything here has.
    #[error("{rank} sides, of at most {limit}")]
    Rank {
        /// How many.
        rank: usize,
        /// The most.
        limit: usize,
    },
    /// A value too large to be computed.
    #[error("shape {shape:?} has more than {limit} elements")]
    TooLarge {
        /// The shape.
        shape: Vec<usize>,
        /// The most elements.
        limit: usize,
    },
    /// The elements of a constant cannot be had.
    #[error("tensor `{name}`: {why}")]
    Unreadable {
        /// The tensor's name.
        name: String,
        /// What went wrong.
        why: String,
    },
}
