//! The ONNX file format, as far as a vision transformer needs it.
//!
//! - [`Model`], [`Graph`], [`Tensor`], ...: a model in memory.
//! - [`Writer`]: to a file, weights streamed.
//! - [`read()`]: from a file that nobody has checked.
//! - [`run()`]: computes a model plainly, to check a file before it is called done.
//! - [`vit`]: the graph of a vision transformer, from its sizes and its tensors.
//!
//! A model that doubles what it is given, on its way through a file:
//!
//! ```
//! use std::collections::BTreeMap;
//! use onnx::{Dim, Element, Graph, Model, Node, OPSET, Tensor, Value, ValueInfo, Writer};
//!
//! let pair = |name: &str| ValueInfo { name: name.into(), element: Element::F32, dims: vec![Dim::Fixed(2)] };
//! let double = Node {
//!     op: "Mul".into(),
//!     inputs: vec!["x".into(), "two".into()],
//!     outputs: vec!["y".into()],
//!     name: "double".into(),
//!     attributes: BTreeMap::new(),
//! };
//! let graph = Graph {
//!     name: "doubling".into(),
//!     inputs: vec![pair("x")],
//!     outputs: vec![pair("y")],
//!     initializers: vec![Tensor::f32("two", &[], &[2.0])],
//!     nodes: vec![double],
//! };
//! let (producer_name, producer_version, metadata) = ("docs".into(), "1".into(), BTreeMap::new());
//! let model = Model { graph, metadata, producer_name, producer_version, opset: OPSET };
//! let file = Writer::new(&model)?.to_bytes()?;
//!
//! let read = onnx::read(&file)?;
//! let outputs = onnx::run(&read, BTreeMap::from([("x".to_owned(), Value::f32(&[2], vec![1.0, 3.0])?)]))?;
//! assert_eq!(outputs["y"].as_f32(), Some(&[2.0, 6.0][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod decode;
mod encode;
mod graph;
mod read;
mod run;
mod schema;
pub mod vit;
mod write;

pub use decode::{ReadError, ReadProblem};
pub use graph::{Attribute, Content, Dim, Element, Graph, GraphError, Model, Node, Tensor, ValueInfo};
pub use read::read;
pub use run::{Data, NotItsShape, OPSET, Problem, RunError, Value, run, run_within};
pub use write::{MAX_FILE, WriteError, Writer};
