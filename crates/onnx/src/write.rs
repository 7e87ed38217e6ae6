//! Writing ONNX files, of weights that may still be elsewhere.
//!
//! The bytes follow from the model alone: fields come in the order of their numbers, lists in the order of the model,
//! attributes and metadata sorted by name.

use std::io::{self, Write};

use crate::encode::Message;
use crate::graph::{Attribute, Content, Dim, Element, Graph, GraphError, Model, Node, Tensor, ValueInfo};
use crate::schema;

/// The version of the file format. Every reader of operator set 17 knows it.
const IR_VERSION: u64 = 8;

/// The most bytes that a protobuf message may have: readers count them in 31 bits.
pub const MAX_FILE: u64 = (1 << 31) - 1;

/// Why a model cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The graph contradicts itself.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A tensor whose elements are not those of its shape.
    #[error("tensor `{name}` cannot be saved: shape {shape:?} of {element} does not have {bytes} bytes")]
    Size {
        /// Its name.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
        /// The type of its elements.
        element: Element,
        /// The bytes that there are.
        bytes: usize,
    },
    /// A tensor so large that its bytes cannot be counted.
    #[error("tensor `{name}` cannot be saved: shape {shape:?} has more bytes than can be counted")]
    Uncountable {
        /// Its name.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// More than one file can hold.
    #[error(
        "the model has {bytes} bytes, and one ONNX file holds at most {MAX_FILE}: leave something out, \
         or save the weights as safetensors"
    )]
    TooLarge {
        /// Bytes of the whole file.
        bytes: u64,
    },
    /// A stream failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A file about to be written: its size is known, the weights are still where they were.
#[derive(Debug)]
pub struct Writer<'a> {
    message: Message<'a>,
}

impl<'a> Writer<'a> {
    /// Describes the file of a model.
    pub fn new(model: &'a Model<'a>) -> Result<Self, WriteError> {
        model.graph.check()?;
        let message = encode_model(model)?;
        match message.len() {
            bytes if bytes > MAX_FILE => Err(WriteError::TooLarge { bytes }),
            _ => Ok(Self { message }),
        }
    }

    /// Bytes of the whole file.
    pub fn file_size(&self) -> u64 {
        self.message.len()
    }

    /// Writes the file. A stream that writes more or fewer bytes than its tensor has is an error.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut done = 0;
        for &(at, tensor, size) in &self.message.weights {
            out.write_all(&self.message.bytes[done..at])?;
            done = at;
            match &tensor.content {
                Content::Bytes(bytes) => out.write_all(bytes)?,
                Content::Stream(write) => {
                    let mut exact = Exact { out, left: size };
                    write(&mut exact)?;
                    if exact.left > 0 {
                        let (name, left) = (&tensor.name, exact.left);
                        return Err(io::Error::other(format!("tensor `{name}` ended {left} bytes before its end")));
                    }
                }
            }
        }
        out.write_all(&self.message.bytes[done..])
    }

    /// The file in memory.
    pub fn to_bytes(&self) -> Result<Vec<u8>, WriteError> {
        let mut bytes = Vec::with_capacity(self.file_size() as usize);
        self.write_to(&mut bytes)?;
        Ok(bytes)
    }
}

fn encode_model<'a>(model: &'a Model<'a>) -> Result<Message<'a>, WriteError> {
    let mut message = Message::default();
    message.varint(schema::model::IR_VERSION, IR_VERSION);
    message.text(schema::model::PRODUCER_NAME, &model.producer_name);
    message.text(schema::model::PRODUCER_VERSION, &model.producer_version);
    message.message(schema::model::GRAPH, encode_graph(&model.graph)?);
    // The standard operators are those of the domain without a name, which is left out.
    let mut opset = Message::default();
    opset.int(schema::opset::VERSION, model.opset);
    message.message(schema::model::OPSET_IMPORT, opset);
    for (key, value) in &model.metadata {
        let mut entry = Message::default();
        entry.text(schema::entry::KEY, key);
        entry.text(schema::entry::VALUE, value);
        message.message(schema::model::METADATA_PROPS, entry);
    }
    Ok(message)
}

fn encode_graph<'a>(graph: &'a Graph<'a>) -> Result<Message<'a>, WriteError> {
    let mut message = Message::default();
    for node in &graph.nodes {
        message.message(schema::graph::NODE, encode_node(node)?);
    }
    message.text(schema::graph::NAME, &graph.name);
    for tensor in &graph.initializers {
        message.message(schema::graph::INITIALIZER, encode_tensor(tensor)?);
    }
    for input in &graph.inputs {
        message.message(schema::graph::INPUT, encode_value_info(input));
    }
    for output in &graph.outputs {
        message.message(schema::graph::OUTPUT, encode_value_info(output));
    }
    Ok(message)
}

fn encode_node<'a>(node: &'a Node<'a>) -> Result<Message<'a>, WriteError> {
    let mut message = Message::default();
    for input in &node.inputs {
        message.text(schema::node::INPUT, input);
    }
    for output in &node.outputs {
        message.text(schema::node::OUTPUT, output);
    }
    message.text(schema::node::NAME, &node.name);
    message.text(schema::node::OP_TYPE, &node.op);
    for (name, attribute) in &node.attributes {
        message.message(schema::node::ATTRIBUTE, encode_attribute(name, attribute)?);
    }
    Ok(message)
}

fn encode_attribute<'a>(name: &str, attribute: &'a Attribute<'a>) -> Result<Message<'a>, WriteError> {
    use schema::attribute::{F, I, INTS, NAME, S, T, TYPE};
    use schema::attribute::{TYPE_FLOAT, TYPE_INT, TYPE_INTS, TYPE_STRING, TYPE_TENSOR};
    let mut message = Message::default();
    message.text(NAME, name);
    let kind = match attribute {
        Attribute::Float(value) => {
            message.float(F, *value);
            TYPE_FLOAT
        }
        Attribute::Int(value) => {
            message.int(I, *value);
            TYPE_INT
        }
        Attribute::String(value) => {
            message.text(S, value);
            TYPE_STRING
        }
        Attribute::Tensor(tensor) => {
            message.message(T, encode_tensor(tensor)?);
            TYPE_TENSOR
        }
        Attribute::Ints(values) => {
            values.iter().for_each(|&value| message.int(INTS, value));
            TYPE_INTS
        }
    };
    message.varint(TYPE, kind);
    Ok(message)
}

fn encode_tensor<'a>(tensor: &'a Tensor<'a>) -> Result<Message<'a>, WriteError> {
    let (name, shape) = (|| tensor.name.clone(), || tensor.shape.clone());
    let size = tensor.size().ok_or_else(|| WriteError::Uncountable { name: name(), shape: shape() })?;
    // How long a stream is shows when it is written.
    if let Content::Bytes(bytes) = &tensor.content
        && bytes.len() != size
    {
        let (element, bytes) = (tensor.element, bytes.len());
        return Err(WriteError::Size { name: name(), shape: shape(), element, bytes });
    }
    let mut message = Message::default();
    for &side in &tensor.shape {
        message.varint(schema::tensor::DIMS, side as u64);
    }
    message.varint(schema::tensor::DATA_TYPE, element_code(tensor.element));
    message.text(schema::tensor::NAME, &tensor.name);
    message.weights(schema::tensor::RAW_DATA, tensor, size as u64);
    Ok(message)
}

fn encode_value_info(value: &ValueInfo) -> Message<'static> {
    let mut shape = Message::default();
    for dim in &value.dims {
        let mut side = Message::default();
        match dim {
            Dim::Fixed(length) => side.varint(schema::shape::DIM_VALUE, *length as u64),
            Dim::Named(name) if name.is_empty() => {}
            Dim::Named(name) => side.text(schema::shape::DIM_PARAM, name),
        }
        shape.message(schema::shape::DIM, side);
    }
    let mut tensor = Message::default();
    tensor.varint(schema::value_type::ELEM_TYPE, element_code(value.element));
    tensor.message(schema::value_type::SHAPE, shape);
    let mut of_type = Message::default();
    of_type.message(schema::value_type::TENSOR, tensor);
    let mut message = Message::default();
    message.text(schema::value_info::NAME, &value.name);
    message.message(schema::value_info::TYPE, of_type);
    message
}

fn element_code(element: Element) -> u64 {
    match element {
        Element::F32 => schema::tensor::TYPE_FLOAT,
        Element::I64 => schema::tensor::TYPE_INT64,
    }
}

/// Takes so many bytes and no more.
struct Exact<'a> {
    out: &'a mut dyn Write,
    left: u64,
}

impl Write for Exact<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left {
            return Err(io::Error::other("a tensor has more bytes than its shape"));
        }
        let written = self.out.write(bytes)?;
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn model(initializers: Vec<Tensor<'_>>) -> Model<'_> {
        let dims = vec![Dim::Named("n".to_owned()), Dim::Fixed(300)];
        let value = |name: &str| ValueInfo { name: name.to_owned(), element: Element::F32, dims: dims.clone() };
        let node = Node {
            op: "Softmax".to_owned(),
            inputs: vec!["x".to_owned()],
            outputs: vec!["y".to_owned()],
            name: "s".to_owned(),
            attributes: BTreeMap::from([("axis".to_owned(), Attribute::Int(-1))]),
        };
        let (inputs, outputs, nodes) = (vec![value("x")], vec![value("y")], vec![node]);
        Model {
            graph: Graph { name: "g".to_owned(), inputs, outputs, initializers, nodes },
            metadata: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
            producer_name: "p".to_owned(),
            producer_version: "1".to_owned(),
            opset: 17,
        }
    }

    #[test]
    fn the_file_is_this_one_byte_for_byte() {
        let stream = Tensor::stream("w", Element::F32, &[1], |out| {
            out.write_all(&[0, 0])?;
            out.write_all(&[128, 63])
        });
        let model = model(vec![stream, Tensor::i64("i", &[], &[3])]);
        let value = |name: u8| {
            let shape = [0x12, 0x0a, 0x0a, 3, 0x12, 1, b'n', 0x0a, 3, 0x08, 0xac, 0x02];
            [&[0x0a, 1, name, 0x12, 16, 0x0a, 14, 0x08, 1][..], &shape].concat()
        };
        let axis = [&[0x0a, 4][..], b"axis", &[0x18], &[0xff; 9], &[0x01, 0xa0, 0x01, 2]].concat();
        let node = [&b"\x0a\x01x\x12\x01y\x1a\x01s\x22\x07Softmax\x2a\x14"[..], &axis].concat();
        let weight = [0x08, 1, 0x10, 1, 0x42, 1, b'w', 0x4a, 4, 0, 0, 128, 63];
        let index = [0x10, 7, 0x42, 1, b'i', 0x4a, 8, 3, 0, 0, 0, 0, 0, 0, 0];
        let field = |tag: u8, bytes: &[u8]| [&[tag, bytes.len() as u8][..], bytes].concat();
        let graph = [
            field(0x0a, &node),
            field(0x12, b"g"),
            field(0x2a, &weight),
            field(0x2a, &index),
            field(0x5a, &value(b'x')),
            field(0x62, &value(b'y')),
        ];
        let expected = [
            &[0x08, 8, 0x12, 1, b'p', 0x1a, 1, b'1'][..],
            &field(0x3a, &graph.concat()),
            &[0x42, 2, 0x10, 17, 0x72, 6, 0x0a, 1, b'k', 0x12, 1, b'v'],
        ];
        let writer = Writer::new(&model).unwrap();
        let bytes = writer.to_bytes().unwrap();
        assert_eq!(bytes, expected.concat());
        assert_eq!(writer.file_size(), bytes.len() as u64);
    }

    #[test]
    fn what_no_reader_takes_is_refused_before_a_byte_is_written() {
        let quarter = || Tensor::stream("a", Element::F32, &[1 << 27], |_| panic!("nothing is to be written"));
        let tensors = || ["a", "b", "c", "d"].map(|name| Tensor { name: name.to_owned(), ..quarter() });
        let refused = |tensors: Vec<Tensor<'_>>| Writer::new(&model(tensors)).unwrap_err();
        let all = refused(tensors().into());
        assert!(matches!(all, WriteError::TooLarge { bytes } if bytes > 1 << 31), "{all}");
        let three = model(tensors().into_iter().take(3).collect());
        assert!(Writer::new(&three).unwrap().file_size() > 3 << 29);
        let wrong = refused(vec![Tensor::f32("a", &[3], &[0.0; 2])]);
        assert_eq!(wrong.to_string(), "tensor `a` cannot be saved: shape [3] of f32 does not have 8 bytes");
        let endless = Tensor { shape: vec![usize::MAX, 2], ..quarter() };
        assert!(matches!(refused(vec![endless]), WriteError::Uncountable { .. }));
        let twice = refused(vec![quarter(), quarter()]);
        assert!(matches!(twice, WriteError::Graph(GraphError::DefinedTwice { .. })));
    }

    #[test]
    fn a_stream_must_have_the_length_of_its_tensor() {
        let write = |bytes: &'static [u8]| {
            let tensor = Tensor::stream("w", Element::F32, &[1], move |out| out.write_all(bytes));
            let model = model(vec![tensor]);
            Writer::new(&model).unwrap().to_bytes().map_err(|error| error.to_string()).map(|_| ())
        };
        assert_eq!(write(b"abcd"), Ok(()));
        assert_eq!(write(b"abc").unwrap_err(), "tensor `w` ended 1 bytes before its end");
        assert!(write(b"abcde").unwrap_err().contains("more bytes than its shape"));
    }
}
