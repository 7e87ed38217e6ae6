//! Running a graph, plainly and in single precision.
//!
//! This exists to check a file before it is called done: what was exported is read back and computed on an image or two,
//! by code that shares nothing with the network it came from. Operators are written for being right; only the matrix
//! product is written for speed. Shapes and types are checked, and what is not known is refused: an operator, a version
//! of the operators, an attribute.

mod call;
mod elementwise;
mod problem;
mod product;
mod reduce;
mod shapes;
mod value;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use crate::graph::{Dim, Model, Node, ValueInfo};

use call::{Call, Operator};
pub use problem::{Problem, RunError};
pub use value::{Data, NotItsShape, Value};

/// The version of the standard operators that is known here.
pub const OPSET: i64 = 17;

/// The most elements that a value may have where the caller sets no other limit: 2 GiB in single precision.
const MAX_ELEMENTS: usize = 1 << 29;

/// Computes the outputs of a model from its inputs, both by name.
pub fn run(model: &Model<'_>, inputs: BTreeMap<String, Value>) -> Result<BTreeMap<String, Value>, RunError> {
    run_within(model, inputs, MAX_ELEMENTS)
}

/// The same, where no value may have more than `limit` elements.
pub fn run_within(
    model: &Model<'_>,
    inputs: BTreeMap<String, Value>,
    limit: usize,
) -> Result<BTreeMap<String, Value>, RunError> {
    if model.opset != OPSET {
        return Err(RunError::Opset { found: model.opset });
    }
    let graph = &model.graph;
    graph.check()?;
    // Constants are loaded when a node takes them and forgotten behind it, so that a file's weights are not in memory
    // twice.
    let constants: HashMap<&str, _> = graph.initializers.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
    let load = |name: &str| constants.get(name).map(|tensor| Value::of_tensor(tensor, limit));
    let mut lengths = HashMap::new();
    let mut values: HashMap<&str, Value> = HashMap::new();
    if let Some(name) = inputs.keys().find(|&name| !graph.inputs.iter().any(|input| input.name == *name)) {
        return Err(RunError::NoSuchInput { name: name.clone() });
    }
    let mut inputs = inputs;
    for input in &graph.inputs {
        match inputs.remove(&input.name) {
            Some(value) => {
                check_declared(input, &value, &mut lengths, limit)?;
                values.insert(&input.name, value);
            }
            None if constants.contains_key(input.name.as_str()) => {}
            None => return Err(RunError::MissingInput { name: input.name.clone() }),
        }
    }
    let last_use = last_uses(&graph.nodes);
    for (i, node) in graph.nodes.iter().enumerate() {
        let fail = |problem| RunError::Node { node: node.name.clone(), op: node.op.clone(), problem };
        let fetch = |name: &String| match values.get(name.as_str()) {
            _ if name.is_empty() => Ok(None),
            Some(value) => Ok(Some(Cow::Borrowed(value))),
            None => load(name).map(|loaded| loaded.map(Cow::Owned)).transpose(),
        };
        let fetched: Result<_, _> = node.inputs.iter().map(fetch).collect();
        let call = Call { node, inputs: fetched.map_err(fail)?, limit };
        let operator = operator(&node.op).ok_or_else(|| fail(Problem::UnknownOperator))?;
        let results = call.run(operator).map_err(fail)?;
        values.extend(node.outputs.iter().map(String::as_str).zip(results));
        let is_output = |name: &str| graph.outputs.iter().any(|output| output.name == name);
        let done = node.inputs.iter().chain(&node.outputs).map(String::as_str);
        for name in done.filter(|&name| last_use.get(name).is_none_or(|&last| last == i) && !is_output(name)) {
            values.remove(name);
        }
    }
    let mut outputs = BTreeMap::new();
    for output in &graph.outputs {
        let value = match values.remove(output.name.as_str()) {
            Some(value) => value,
            // An output that is an initializer, or listed twice.
            None => match load(&output.name) {
                Some(Ok(value)) => value,
                Some(Err(problem)) => {
                    return Err(RunError::Node { node: output.name.clone(), op: "output".to_owned(), problem });
                }
                None => continue,
            },
        };
        check_declared(output, &value, &mut lengths, limit)?;
        outputs.insert(output.name.clone(), value);
    }
    Ok(outputs)
}

/// For each value, the last node that takes it.
fn last_uses<'a>(nodes: &'a [Node<'_>]) -> HashMap<&'a str, usize> {
    let uses = nodes.iter().enumerate().flat_map(|(i, node)| node.inputs.iter().map(move |name| (name.as_str(), i)));
    uses.collect()
}

/// Checks type and shape of an input or output. Sides of one name have one length, noted in `lengths`.
fn check_declared<'a>(
    declared: &'a ValueInfo,
    value: &Value,
    lengths: &mut HashMap<&'a str, usize>,
    limit: usize,
) -> Result<(), RunError> {
    let mut fits = |(dim, &length): (&'a Dim, &usize)| match dim {
        Dim::Fixed(fixed) => *fixed == length,
        Dim::Named(name) => name.is_empty() || *lengths.entry(name).or_insert(length) == length,
    };
    let shape = value.shape();
    if declared.element == value.element()
        && declared.dims.len() == shape.len()
        && declared.dims.iter().zip(shape).all(&mut fits)
        && value::count(shape, limit).is_ok()
    {
        return Ok(());
    }
    let sides = declared.dims.iter().map(|dim| match dim {
        Dim::Fixed(length) => length.to_string(),
        Dim::Named(name) => name.clone(),
    });
    let expected = format!("{} of shape [{}]", declared.element, sides.collect::<Vec<_>>().join(", "));
    let (name, element, shape) = (declared.name.clone(), value.element(), shape.to_vec());
    Err(RunError::NotAsDeclared { name, expected, element, shape })
}

fn operator(name: &str) -> Option<&'static Operator> {
    let tables = [elementwise::OPERATORS, product::OPERATORS, reduce::OPERATORS, shapes::OPERATORS];
    tables.into_iter().flatten().find(|operator| operator.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_operator_has_been_compared_with_onnxruntime() {
        let mut compared = BTreeSet::new();
        for name in ["elementwise", "shapes", "reductions", "products"] {
            let path = format!("{}/tests/fixtures/{name}.onnx", env!("CARGO_MANIFEST_DIR"));
            let bytes = std::fs::read(path).unwrap();
            compared.extend(crate::read(&bytes).unwrap().graph.nodes.into_iter().map(|node| node.op));
        }
        let tables = [elementwise::OPERATORS, product::OPERATORS, reduce::OPERATORS, shapes::OPERATORS];
        let known: BTreeSet<String> = tables.into_iter().flatten().map(|operator| operator.name.to_owned()).collect();
        assert_eq!(compared, known);
    }
}
