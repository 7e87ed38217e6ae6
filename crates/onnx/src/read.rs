//! Reading ONNX files that nobody has checked.
//!
//! Weights stay where they are, as parts of the bytes that are read. Everything else is small in an honest file; its
//! memory is bounded by a number of parts, as a file of two bytes a node could otherwise fill the memory with nodes.
//! Fields that are not known are skipped. Nothing in the file leads to another file, and messages inside messages are
//! followed only as deep as a graph without subgraphs goes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::decode::{Field, Fields, FloatBytes, ReadError, ReadProblem};
use crate::graph::{Attribute, Content, Dim, Element, Graph, Model, Node, Tensor, ValueInfo};
use crate::schema;

/// The most names, numbers and messages that a file may have, weights not counted. A ViT of 40 blocks has 20,000.
const MAX_PARTS: usize = 1 << 17;

/// Reads a model. Its weights remain in `bytes`.
pub fn read(bytes: &[u8]) -> Result<Model<'_>, ReadError> {
    Reader { parts_left: MAX_PARTS }.model(Fields::of_file(bytes, "ModelProto"))
}

struct Reader {
    parts_left: usize,
}

impl Reader {
    fn model<'a>(&mut self, mut fields: Fields<'a>) -> Result<Model<'a>, ReadError> {
        let (mut producer_name, mut producer_version) = (String::new(), String::new());
        let (mut graph, mut opset, mut metadata) = (None, None, BTreeMap::new());
        while let Some(field) = fields.next()? {
            match field.number {
                schema::model::PRODUCER_NAME => producer_name = self.name(&field)?,
                schema::model::PRODUCER_VERSION => producer_version = self.name(&field)?,
                schema::model::GRAPH => {
                    let fields = self.message(&field, "GraphProto")?;
                    once(&mut graph, self.graph(fields)?, "graph", &field)?;
                }
                schema::model::OPSET_IMPORT => {
                    let fields = self.message(&field, "OperatorSetIdProto")?;
                    if let Some(version) = standard_opset(fields)? {
                        once(&mut opset, version, "version of the standard operators", &field)?;
                    }
                }
                schema::model::METADATA_PROPS => {
                    let fields = self.message(&field, "StringStringEntryProto")?;
                    let (key, value) = self.entry(fields)?;
                    insert(&mut metadata, key, value, &field)?;
                }
                _ => {}
            }
        }
        let graph = found(graph, "graph", &fields)?;
        let opset = found(opset, "version of the standard operators", &fields)?;
        Ok(Model { graph, metadata, producer_name, producer_version, opset })
    }

    fn entry(&mut self, mut fields: Fields<'_>) -> Result<(String, String), ReadError> {
        let (mut key, mut value) = (String::new(), String::new());
        while let Some(field) = fields.next()? {
            match field.number {
                schema::entry::KEY => key = self.name(&field)?,
                schema::entry::VALUE => value = self.name(&field)?,
                _ => {}
            }
        }
        Ok((key, value))
    }

    fn graph<'a>(&mut self, mut fields: Fields<'a>) -> Result<Graph<'a>, ReadError> {
        let mut graph = Graph::default();
        while let Some(field) = fields.next()? {
            match field.number {
                schema::graph::NODE => {
                    let fields = self.message(&field, "NodeProto")?;
                    graph.nodes.push(self.node(fields)?);
                }
                schema::graph::NAME => graph.name = self.name(&field)?,
                schema::graph::INITIALIZER => {
                    let fields = self.message(&field, "TensorProto")?;
                    graph.initializers.push(self.tensor(fields)?);
                }
                schema::graph::INPUT => {
                    let fields = self.message(&field, "ValueInfoProto")?;
                    graph.inputs.push(self.value_info(fields)?);
                }
                schema::graph::OUTPUT => {
                    let fields = self.message(&field, "ValueInfoProto")?;
                    graph.outputs.push(self.value_info(fields)?);
                }
                schema::graph::SPARSE_INITIALIZER => return Err(field.error(unsupported("a sparse tensor"))),
                _ => {}
            }
        }
        Ok(graph)
    }

    fn node<'a>(&mut self, mut fields: Fields<'a>) -> Result<Node<'a>, ReadError> {
        let (mut op, mut name) = (String::new(), String::new());
        let (mut inputs, mut outputs, mut attributes) = (Vec::new(), Vec::new(), BTreeMap::new());
        while let Some(field) = fields.next()? {
            match field.number {
                schema::node::INPUT => inputs.push(self.name(&field)?),
                schema::node::OUTPUT => outputs.push(self.name(&field)?),
                schema::node::NAME => name = self.name(&field)?,
                schema::node::OP_TYPE => op = self.name(&field)?,
                schema::node::ATTRIBUTE => {
                    let fields = self.message(&field, "AttributeProto")?;
                    let (name, attribute) = self.attribute(fields)?;
                    insert(&mut attributes, name, attribute, &field)?;
                }
                schema::node::DOMAIN if !is_standard(field.text()?) => {
                    return Err(field.error(unsupported(format!("an operator of the set `{}`", field.text()?))));
                }
                _ => {}
            }
        }
        if op.is_empty() {
            return Err(fields.error(ReadProblem::NotOne { what: "operator" }));
        }
        Ok(Node { op, inputs, outputs, name, attributes })
    }

    fn attribute<'a>(&mut self, mut fields: Fields<'a>) -> Result<(String, Attribute<'a>), ReadError> {
        use schema::attribute::{F, I, INTS, NAME, S, T, TYPE};
        use schema::attribute::{TYPE_FLOAT, TYPE_INT, TYPE_INTS, TYPE_STRING, TYPE_TENSOR};
        let (mut name, mut kind, mut float, mut int) = (String::new(), None, 0.0, 0);
        let (mut word, mut ints, mut tensor) = (String::new(), Vec::new(), None);
        while let Some(field) = fields.next()? {
            match field.number {
                NAME => name = self.name(&field)?,
                F => float = field.float()?,
                I => int = field.int()?,
                S => word = self.name(&field)?,
                T => {
                    let fields = self.message(&field, "TensorProto")?;
                    once(&mut tensor, self.tensor(fields)?, "tensor", &field)?;
                }
                INTS => field.ints(|value| {
                    self.take_part()?;
                    ints.push(value);
                    Ok(())
                })?,
                TYPE => kind = Some(field.varint()?),
                _ => {}
            }
        }
        let attribute = match found(kind, "type", &fields)? {
            TYPE_FLOAT => Attribute::Float(float),
            TYPE_INT => Attribute::Int(int),
            TYPE_STRING => Attribute::String(word),
            TYPE_TENSOR => Attribute::Tensor(found(tensor, "tensor", &fields)?),
            TYPE_INTS => Attribute::Ints(ints),
            other => return Err(fields.error(unsupported(format!("attribute `{name}` of type {other}")))),
        };
        Ok((name, attribute))
    }

    fn tensor<'a>(&mut self, mut fields: Fields<'a>) -> Result<Tensor<'a>, ReadError> {
        let (mut name, mut shape, mut code) = (String::new(), Vec::new(), 0);
        let (mut raw, mut floats, mut ints) = (None, None, Vec::new());
        while let Some(field) = fields.next()? {
            match field.number {
                schema::tensor::NAME => name = self.name(&field)?,
                schema::tensor::DATA_TYPE => code = field.varint()?,
                schema::tensor::DIMS => field.ints(|side| {
                    self.take_part()?;
                    shape.push(usize::try_from(side).map_err(|_| ReadProblem::NoSize { size: side })?);
                    Ok(())
                })?,
                schema::tensor::RAW_DATA => raw = Some(field.bytes()?),
                schema::tensor::FLOAT_DATA => append(&mut floats, field.float_bytes()?),
                schema::tensor::INT64_DATA => field.ints(|value| {
                    self.take_part()?;
                    ints.extend(value.to_le_bytes());
                    Ok(())
                })?,
                schema::tensor::SEGMENT => return Err(field.error(unsupported("a tensor in pieces"))),
                schema::tensor::EXTERNAL_DATA => return Err(field.error(unsupported("a tensor in another file"))),
                schema::tensor::DATA_LOCATION if field.varint()? != schema::tensor::LOCATION_DEFAULT => {
                    return Err(field.error(unsupported("a tensor in another file")));
                }
                _ => {}
            }
        }
        let element = element(code).map_err(|problem| fields.error(problem))?;
        let bytes = match (raw, floats, element) {
            (Some(raw), None, _) if ints.is_empty() => Cow::Borrowed(raw),
            (None, Some(floats), Element::F32) if ints.is_empty() => floats,
            (None, None, Element::I64) => Cow::Owned(ints),
            (None, None, Element::F32) if ints.is_empty() => Cow::Owned(Vec::new()),
            _ => return Err(fields.error(ReadProblem::NotOne { what: "list of elements of its type" })),
        };
        let tensor = Tensor { name, element, shape, content: Content::Bytes(Cow::Borrowed(&[])) };
        if tensor.size() != Some(bytes.len()) {
            let (name, shape, bytes) = (tensor.name, tensor.shape, bytes.len());
            return Err(fields.error(ReadProblem::TensorSize { name, shape, bytes }));
        }
        Ok(Tensor { content: Content::Bytes(bytes), ..tensor })
    }

    fn value_info(&mut self, mut fields: Fields<'_>) -> Result<ValueInfo, ReadError> {
        let (mut name, mut of_type) = (String::new(), None);
        while let Some(field) = fields.next()? {
            match field.number {
                schema::value_info::NAME => name = self.name(&field)?,
                schema::value_info::TYPE => {
                    let fields = self.message(&field, "TypeProto")?;
                    once(&mut of_type, self.tensor_type(fields)?, "type", &field)?;
                }
                _ => {}
            }
        }
        let (element, dims) = found(of_type, "type", &fields)?;
        Ok(ValueInfo { name, element, dims })
    }

    fn tensor_type(&mut self, mut fields: Fields<'_>) -> Result<(Element, Vec<Dim>), ReadError> {
        let mut tensor = None;
        while let Some(field) = fields.next()? {
            if field.number == schema::value_type::TENSOR {
                once(&mut tensor, self.message(&field, "TypeProto.Tensor")?, "tensor type", &field)?;
            }
        }
        let mut fields = found(tensor, "tensor type", &fields)?;
        let (mut code, mut dims) = (0, None);
        while let Some(field) = fields.next()? {
            match field.number {
                schema::value_type::ELEM_TYPE => code = field.varint()?,
                schema::value_type::SHAPE => {
                    let fields = self.message(&field, "TensorShapeProto")?;
                    once(&mut dims, self.dims(fields)?, "shape", &field)?;
                }
                _ => {}
            }
        }
        let element = element(code).map_err(|problem| fields.error(problem))?;
        Ok((element, found(dims, "shape", &fields)?))
    }

    fn dims(&mut self, mut fields: Fields<'_>) -> Result<Vec<Dim>, ReadError> {
        let mut dims = Vec::new();
        while let Some(field) = fields.next()? {
            if field.number != schema::shape::DIM {
                continue;
            }
            let (mut side, mut dim) = (self.message(&field, "TensorShapeProto.Dimension")?, Dim::Named(String::new()));
            while let Some(field) = side.next()? {
                match field.number {
                    schema::shape::DIM_VALUE => {
                        let size = field.int()?;
                        let length = usize::try_from(size).map_err(|_| field.error(ReadProblem::NoSize { size }))?;
                        dim = Dim::Fixed(length);
                    }
                    schema::shape::DIM_PARAM => dim = Dim::Named(self.name(&field)?),
                    _ => {}
                }
            }
            dims.push(dim);
        }
        Ok(dims)
    }

    fn message<'a>(&mut self, field: &Field<'a>, name: &'static str) -> Result<Fields<'a>, ReadError> {
        self.take_part().map_err(|problem| field.error(problem))?;
        field.message(name)
    }

    fn name(&mut self, field: &Field<'_>) -> Result<String, ReadError> {
        self.take_part().map_err(|problem| field.error(problem))?;
        Ok(field.text()?.to_owned())
    }

    fn take_part(&mut self) -> Result<(), ReadProblem> {
        self.parts_left = self.parts_left.checked_sub(1).ok_or(ReadProblem::TooManyParts { limit: MAX_PARTS })?;
        Ok(())
    }
}

/// The version of an operator set, where it is the standard one.
fn standard_opset(mut fields: Fields<'_>) -> Result<Option<i64>, ReadError> {
    let (mut standard, mut version) = (true, 0);
    while let Some(field) = fields.next()? {
        match field.number {
            schema::opset::DOMAIN => standard = is_standard(field.text()?),
            schema::opset::VERSION => version = field.int()?,
            _ => {}
        }
    }
    Ok(standard.then_some(version))
}

/// Whether a set of operators is the standard one, which has two names.
fn is_standard(domain: &str) -> bool {
    matches!(domain, "" | "ai.onnx")
}

fn element(code: u64) -> Result<Element, ReadProblem> {
    match code {
        schema::tensor::TYPE_FLOAT => Ok(Element::F32),
        schema::tensor::TYPE_INT64 => Ok(Element::I64),
        code => Err(ReadProblem::ElementType { code }),
    }
}

/// Numbers behind those that there are; as long as they lie in one piece, nothing is copied.
fn append<'a>(floats: &mut Option<Cow<'a, [u8]>>, more: FloatBytes<'a>) {
    match (floats, more) {
        (Some(floats), FloatBytes::Packed(bytes)) => floats.to_mut().extend(bytes),
        (Some(floats), FloatBytes::One(bytes)) => floats.to_mut().extend(bytes),
        (none, FloatBytes::Packed(bytes)) => *none = Some(Cow::Borrowed(bytes)),
        (none, FloatBytes::One(bytes)) => *none = Some(Cow::Owned(bytes.to_vec())),
    }
}

fn unsupported(what: impl Into<String>) -> ReadProblem {
    ReadProblem::Unsupported { what: what.into() }
}

/// Puts a value where none is yet.
fn once<T>(place: &mut Option<T>, value: T, what: &'static str, field: &Field<'_>) -> Result<(), ReadError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(field.error(ReadProblem::NotOne { what })),
    }
}

/// A value that must be there at the end of a message.
fn found<T>(value: Option<T>, what: &'static str, fields: &Fields<'_>) -> Result<T, ReadError> {
    value.ok_or_else(|| fields.error(ReadProblem::NotOne { what }))
}

fn insert<T>(map: &mut BTreeMap<String, T>, name: String, value: T, field: &Field<'_>) -> Result<(), ReadError> {
    if map.contains_key(&name) {
        return Err(field.error(ReadProblem::Twice { name }));
    }
    map.insert(name, value);
    Ok(())
}
