//! The ONNX file format, as far as a vision transformer needs it.
//!
//! - [`Model`], [`Graph`], [`Tensor`], ...: a model in memory.
//! - [`Writer`]: to a file, weights streamed.
//! - [`read()`]: from a file that nobody has checked.
//! - [`run()`]: computes a model plainly, to check a file before it is called done.
//! - [`vit`]: the graph of a vision transformer, from its sizes and its tensors.

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
