//! A model in memory: a graph of operators, what goes in and comes out, and its weights.
//!
//! Weights are hundreds of megabytes. A [`Tensor`] therefore need not hold its elements: they may be a part of the file
//! that was read, or a stream that yields them when the file that is written has come to them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Write};

/// A model: what an ONNX file holds.
#[derive(Debug)]
pub struct Model<'a> {
    /// What is computed.
    pub graph: Graph<'a>,
    /// What the producer has to say about it.
    pub metadata: BTreeMap<String, String>,
    /// The program that made the file.
    pub producer_name: String,
    /// Its version.
    pub producer_version: String,
    /// The version of the standard operators, which decides what each of them means.
    pub opset: i64,
}

/// Operators, each after those whose results it takes.
#[derive(Debug, Default)]
pub struct Graph<'a> {
    /// Its name.
    pub name: String,
    /// What has to be given.
    pub inputs: Vec<ValueInfo>,
    /// What comes out.
    pub outputs: Vec<ValueInfo>,
    /// Weights and constants.
    pub initializers: Vec<Tensor<'a>>,
    /// The operators, in the order in which they can be computed.
    pub nodes: Vec<Node<'a>>,
}

/// An input or output of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueInfo {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub element: Element,
    /// Its shape; empty for a scalar.
    pub dims: Vec<Dim>,
}

/// One side of an input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    /// Always this long.
    Fixed(usize),
    /// As long as whoever runs the model likes, and equally long wherever the name stands. The empty name stands for
    /// nothing: each such side has its own length.
    Named(String),
}

/// The type of a tensor's elements. ONNX knows more; a vision transformer needs these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Single precision.
    F32,
    /// Indices and shapes.
    I64,
}

impl Element {
    /// Bytes of one.
    pub fn size(self) -> usize {
        match self {
            Element::F32 => 4,
            Element::I64 => 8,
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Element::F32 => "f32",
            Element::I64 => "i64",
        })
    }
}

/// A constant: weights, or an argument of an operator.
#[derive(Debug)]
pub struct Tensor<'a> {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub element: Element,
    /// Its shape; empty for a scalar.
    pub shape: Vec<usize>,
    /// Its elements.
    pub content: Content<'a>,
}

/// Writes the elements of one tensor.
type WriteElements<'a> = dyn Fn(&mut dyn Write) -> io::Result<()> + 'a;

/// Where the elements of a tensor come from: little-endian, row-major.
pub enum Content<'a> {
    /// They are in memory.
    Bytes(Cow<'a, [u8]>),
    /// They are read from a device, or computed, when their turn comes.
    Stream(Box<WriteElements<'a>>),
}

impl fmt::Debug for Content<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Content::Stream(_) => f.write_str("stream"),
        }
    }
}

impl<'a> Tensor<'a> {
    /// A tensor of these numbers.
    pub fn f32(name: impl Into<String>, shape: &[usize], values: &[f32]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { name: name.into(), element: Element::F32, shape: shape.to_vec(), content: Content::Bytes(bytes.into()) }
    }

    /// A tensor of these whole numbers.
    pub fn i64(name: impl Into<String>, shape: &[usize], values: &[i64]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { name: name.into(), element: Element::I64, shape: shape.to_vec(), content: Content::Bytes(bytes.into()) }
    }

    /// A tensor whose elements `write` writes, which must be as many bytes as the shape has.
    pub fn stream(
        name: impl Into<String>,
        element: Element,
        shape: &[usize],
        write: impl Fn(&mut dyn Write) -> io::Result<()> + 'a,
    ) -> Self {
        Self { name: name.into(), element, shape: shape.to_vec(), content: Content::Stream(Box::new(write)) }
    }

    /// Bytes of its elements, by its shape; none where they cannot be counted.
    pub fn size(&self) -> Option<usize> {
        self.shape.iter().try_fold(self.element.size(), |bytes, &side| bytes.checked_mul(side))
    }

    /// Its elements, in memory.
    pub fn load(&self) -> io::Result<Cow<'_, [u8]>> {
        match &self.content {
            Content::Bytes(bytes) => Ok(Cow::Borrowed(bytes)),
            Content::Stream(write) => {
                let mut bytes = Vec::new();
                write(&mut bytes)?;
                Ok(Cow::Owned(bytes))
            }
        }
    }
}

/// One operator.
#[derive(Debug)]
pub struct Node<'a> {
    /// Which one, of the standard operators.
    pub op: String,
    /// The values it takes; an empty name stands for an optional one that is left out.
    pub inputs: Vec<String>,
    /// The values it gives.
    pub outputs: Vec<String>,
    /// What to call it in a message.
    pub name: String,
    /// Its settings, by name.
    pub attributes: BTreeMap<String, Attribute<'a>>,
}

/// A setting of an operator.
#[derive(Debug)]
pub enum Attribute<'a> {
    /// A whole number.
    Int(i64),
    /// Several.
    Ints(Vec<i64>),
    /// A number.
    Float(f32),
    /// A word.
    String(String),
    /// A constant.
    Tensor(Tensor<'a>),
}

/// What is wrong with a graph whatever its operators mean.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// A name that stands for two values.
    #[error("two values of the graph are called `{name}`")]
    DefinedTwice {
        /// The name.
        name: String,
    },
    /// An operator takes what nothing before it gives.
    #[error("node `{node}` takes `{input}`, which nothing before it gives")]
    Undefined {
        /// The operator's name.
        node: String,
        /// What it takes.
        input: String,
    },
    /// Nothing gives an output of the graph.
    #[error("the graph has the output `{name}`, which nothing gives")]
    NoSuchOutput {
        /// The output.
        name: String,
    },
}

impl Graph<'_> {
    /// Checks that every value has one origin, and that it is there before it is used.
    pub fn check(&self) -> Result<(), GraphError> {
        let mut known: BTreeSet<&str> = BTreeSet::new();
        for tensor in &self.initializers {
            if !known.insert(&tensor.name) {
                return Err(GraphError::DefinedTwice { name: tensor.name.clone() });
            }
        }
        // An input may have the name of a constant, which then is its value where none is given.
        let mut given: BTreeSet<&str> = BTreeSet::new();
        for input in &self.inputs {
            if !given.insert(&input.name) {
                return Err(GraphError::DefinedTwice { name: input.name.clone() });
            }
        }
        known.append(&mut given);
        for node in &self.nodes {
            for input in node.inputs.iter().filter(|input| !input.is_empty()) {
                if !known.contains(input.as_str()) {
                    return Err(GraphError::Undefined { node: node.name.clone(), input: input.clone() });
                }
            }
            for output in node.outputs.iter().filter(|output| !output.is_empty()) {
                if !known.insert(output) {
                    return Err(GraphError::DefinedTwice { name: output.clone() });
                }
            }
        }
        match self.outputs.iter().find(|output| !known.contains(output.name.as_str())) {
            Some(output) => Err(GraphError::NoSuchOutput { name: output.name.clone() }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, inputs: &[&str], outputs: &[&str]) -> Node<'static> {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let (op, attributes) = ("Max".to_owned(), BTreeMap::new());
        Node { op, inputs: names(inputs), outputs: names(outputs), name: name.to_owned(), attributes }
    }

    fn value(name: &str) -> ValueInfo {
        ValueInfo { name: name.to_owned(), element: Element::F32, dims: vec![] }
    }

    fn graph(nodes: Vec<Node<'static>>) -> Graph<'static> {
        let weight = Tensor::f32("w", &[], &[1.0]);
        let (inputs, outputs) = (vec![value("x"), value("w")], vec![value("y")]);
        Graph { name: "g".to_owned(), inputs, outputs, initializers: vec![weight], nodes }
    }

    #[test]
    fn a_value_has_one_origin_and_is_there_before_it_is_used() {
        let first = || node("first", &["x", "", "w"], &["h", ""]);
        assert_eq!(graph(vec![first(), node("second", &["h"], &["y", ""])]).check(), Ok(()));
        let late = graph(vec![node("second", &["h"], &["y"]), first()]).check();
        assert_eq!(late, Err(GraphError::Undefined { node: "second".to_owned(), input: "h".to_owned() }));
        let twice = |name: &str| Err(GraphError::DefinedTwice { name: name.to_owned() });
        assert_eq!(graph(vec![first(), first()]).check(), twice("h"));
        assert_eq!(graph(vec![node("first", &["x"], &["x"])]).check(), twice("x"));
        assert_eq!(graph(vec![node("first", &["x"], &["w"])]).check(), twice("w"));
        let mut same = graph(vec![]);
        same.initializers.push(Tensor::i64("w", &[1], &[2]));
        assert_eq!(same.check(), twice("w"));
        let mut same = graph(vec![]);
        same.inputs.push(value("x"));
        assert_eq!(same.check(), twice("x"));
        assert_eq!(graph(vec![first()]).check(), Err(GraphError::NoSuchOutput { name: "y".to_owned() }));
    }

    #[test]
    fn elements_are_loaded_from_memory_and_from_a_stream() {
        let stream = Tensor::stream("s", Element::F32, &[2], |out| out.write_all(&[0, 0, 128, 63, 0, 0, 0, 64]));
        assert_eq!(stream.load().unwrap(), Tensor::f32("t", &[2], &[1.0, 2.0]).load().unwrap());
        assert_eq!(Tensor::i64("i", &[1], &[-2]).load().unwrap().as_ref(), (-2i64).to_le_bytes());
        assert_eq!(Tensor::stream("s", Element::I64, &[usize::MAX, 2], |_| Ok(())).size(), None);
    }
}
