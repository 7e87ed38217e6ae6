//! A model: read, written again, and run where it is small. Also the test of crate `onnx` that replays the corpus.

use std::collections::BTreeMap;

use onnx::{Data, Dim, Element, Model, Value, Writer};

/// Elements that a value may have, and nodes that a graph may have, to be run: products of such take milliseconds.
const ELEMENTS: usize = 1 << 10;
const NODES: usize = 128;

/// Bytes of a file that is written again. What is written may have more parts than what was read, as no name is left out,
/// and a reader takes only so many.
const WRITTEN_AGAIN: usize = 1 << 16;

/// Reads a file and does with it what there is to do.
pub fn parse(bytes: &[u8]) {
    let Ok(model) = onnx::read(bytes).map_err(|error| error.to_string()) else { return };
    if bytes.len() <= WRITTEN_AGAIN
        && let Ok(writer) = Writer::new(&model)
    {
        let written = writer.to_bytes().expect("bytes in memory");
        let again = onnx::read(&written).expect("what we write, we read");
        let twice = Writer::new(&again).and_then(|writer| writer.to_bytes()).expect("and write once more");
        assert!(twice == written, "what is written depends on more than the model");
    }
    if model.graph.nodes.len() <= NODES
        && let Some(inputs) = inputs(&model)
    {
        _ = onnx::run_within(&model, inputs, ELEMENTS).map_err(|error| error.to_string());
    }
}

/// Something for every input, a batch being two images; none where an input is large.
fn inputs(model: &Model<'_>) -> Option<BTreeMap<String, Value>> {
    let input = |info: &onnx::ValueInfo| {
        let side = |dim: &Dim| if let Dim::Fixed(side) = dim { *side } else { 2 };
        let shape: Vec<usize> = info.dims.iter().map(side).collect();
        let elements = shape.iter().try_fold(1usize, |product, &side| product.checked_mul(side))?;
        let values = (elements <= ELEMENTS).then(|| (0..elements).map(|i| i as f32 / 8.0 - 3.0))?;
        let data = match info.element {
            Element::F32 => Data::F32(values.collect()),
            Element::I64 => Data::I64(values.map(|value| value as i64).collect()),
        };
        Some((info.name.clone(), Value::new(&shape, data).ok()?))
    };
    model.graph.inputs.iter().map(input).collect()
}
