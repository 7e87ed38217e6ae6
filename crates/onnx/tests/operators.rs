//! Every operator against onnxruntime, on models that the onnx package has written: `tools/oracle/onnx_fixtures.py`. And
//! what is refused rather than computed.

use std::collections::BTreeMap;

use onnx::{
    Attribute, Data, Dim, Element, Graph, Model, Node, Problem, RunError, Tensor, Value, ValueInfo, Writer, read, run,
    run_within,
};
use serde_json::Value as Json;

fn fixture(file: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn values(json: &Json) -> BTreeMap<String, Value> {
    let value = |entry: &Json| {
        let numbers = entry["values"].as_array().unwrap();
        let shape: Vec<usize> =
            entry["shape"].as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as usize).collect();
        match entry["type"].as_str().unwrap() {
            "f32" => Value::f32(&shape, numbers.iter().map(|x| x.as_f64().unwrap() as f32).collect()).unwrap(),
            _ => Value::i64(&shape, numbers.iter().map(|x| x.as_i64().unwrap()).collect()).unwrap(),
        }
    };
    json.as_object().unwrap().iter().map(|(name, entry)| (name.clone(), value(entry))).collect()
}

/// Difference relative to the size of the number, or of one where that is larger.
fn assert_close(name: &str, found: &Value, expected: &Value) {
    assert_eq!((found.shape(), found.element()), (expected.shape(), expected.element()), "{name}");
    match (found.data(), expected.data()) {
        (Data::F32(found), Data::F32(expected)) => {
            for (a, b) in found.iter().zip(expected) {
                assert!((a - b).abs() <= 2e-6 * b.abs().max(1.0), "{name}: {a}, and onnxruntime {b}");
            }
        }
        (found, expected) => assert_eq!(found, expected, "{name}"),
    }
}

fn compare(name: &str) {
    let (bytes, json) = (fixture(&format!("{name}.onnx")), fixture(&format!("{name}.json")));
    let json: Json = serde_json::from_slice(&json).unwrap();
    let (inputs, expected) = (values(&json["inputs"]), values(&json["outputs"]));
    let model = read(&bytes).unwrap();
    let found = run(&model, inputs.clone()).unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (output, expected) in &expected {
        assert_close(output, &found[output], expected);
    }
    // Written by us and read again, it is the same model.
    let ours = Writer::new(&model).unwrap().to_bytes().unwrap();
    let again = read(&ours).unwrap();
    assert_eq!(Writer::new(&again).unwrap().to_bytes().unwrap(), ours);
    assert_eq!((again.opset, &again.producer_name), (17, &model.producer_name));
    assert_eq!((&again.graph.inputs, &again.graph.outputs), (&model.graph.inputs, &model.graph.outputs));
    assert_eq!(run(&again, inputs).unwrap(), found);
}

#[test]
fn operators_on_single_elements_give_what_onnxruntime_gives() {
    compare("elementwise");
}

#[test]
fn operators_that_move_elements_give_what_onnxruntime_gives() {
    compare("shapes");
}

#[test]
fn reductions_give_what_onnxruntime_gives() {
    compare("reductions");
}

#[test]
fn products_give_what_onnxruntime_gives() {
    compare("products");
}

/// A model of one node that takes `x` [batch, 2] and the given constants.
fn one_node<'a>(op: &str, constants: Vec<Tensor<'a>>, attributes: Vec<(&str, Attribute<'a>)>) -> Model<'a> {
    let info = |name: &str, dims: Vec<Dim>| ValueInfo { name: name.to_owned(), element: Element::F32, dims };
    let batch = || vec![Dim::Named("batch".to_owned()), Dim::Fixed(2)];
    let inputs = ["x"].into_iter().chain(constants.iter().map(|tensor| tensor.name.as_str()));
    let node = Node {
        op: op.to_owned(),
        inputs: inputs.map(str::to_owned).collect(),
        outputs: vec!["y".to_owned()],
        name: "it".to_owned(),
        attributes: attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
    };
    let graph = Graph {
        name: "one".to_owned(),
        inputs: vec![info("x", batch())],
        outputs: vec![info("y", batch())],
        initializers: constants,
        nodes: vec![node],
    };
    let (producer_name, producer_version) = (String::new(), String::new());
    Model { graph, metadata: BTreeMap::new(), producer_name, producer_version, opset: 17 }
}

fn x(shape: &[usize]) -> BTreeMap<String, Value> {
    BTreeMap::from([("x".to_owned(), Value::f32(shape, vec![1.0; shape.iter().product()]).unwrap())])
}

fn problem(model: &Model<'_>) -> Problem {
    match run_within(model, x(&[3, 2]), 1000) {
        Err(RunError::Node { problem, .. }) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_not_known_is_refused() {
    assert!(run(&one_node("Relu", vec![], vec![]), x(&[3, 2])).is_ok());
    assert_eq!(problem(&one_node("Gelu", vec![], vec![])), Problem::UnknownOperator);
    let alpha = vec![("alpha", Attribute::Float(0.5))];
    assert_eq!(problem(&one_node("Relu", vec![], alpha)), Problem::UnknownAttribute { name: "alpha".to_owned() });
    let wrong = vec![("axis", Attribute::Float(1.0))];
    assert!(matches!(problem(&one_node("Softmax", vec![], wrong)), Problem::Attribute { name: "axis", .. }));
    let two = vec![Tensor::f32("a", &[1], &[1.0]), Tensor::f32("b", &[1], &[1.0])];
    assert!(matches!(problem(&one_node("Add", two, vec![])), Problem::Count { what: "inputs", found: 3, .. }));
    let newer = Model { opset: 18, ..one_node("Relu", vec![], vec![]) };
    assert!(matches!(run(&newer, x(&[3, 2])), Err(RunError::Opset { found: 18 })));
    let error = run(&one_node("Gelu", vec![], vec![]), x(&[3, 2])).unwrap_err();
    assert_eq!(error.to_string(), "node `it` (Gelu): the operator is not known");
}

#[test]
fn inputs_and_outputs_are_what_the_model_says() {
    let model = one_node("Relu", vec![], vec![]);
    let error = run(&model, x(&[3, 4])).unwrap_err();
    assert_eq!(error.to_string(), "`x` should be f32 of shape [batch, 2], and is f32 of shape [3, 4]");
    let whole = BTreeMap::from([("x".to_owned(), Value::i64(&[1, 2], vec![1, 2]).unwrap())]);
    assert!(matches!(run(&model, whole), Err(RunError::NotAsDeclared { element: Element::I64, .. })));
    assert!(matches!(run(&model, BTreeMap::new()), Err(RunError::MissingInput { .. })));
    let other = BTreeMap::from([("z".to_owned(), Value::f32(&[], vec![1.0]).unwrap())]);
    assert!(matches!(run(&model, other), Err(RunError::NoSuchInput { .. })));
    // The output has two rows where the input has three, under one name.
    let rows = vec![Tensor::i64("rows", &[1], &[0]), Tensor::i64("end", &[1], &[2])];
    assert!(matches!(run(&one_node("Slice", rows, vec![]), x(&[3, 2])), Err(RunError::NotAsDeclared { .. })));
}

#[test]
fn shapes_and_types_that_do_not_fit_are_refused() {
    let ints = |values: &[i64]| vec![Tensor::i64("c", &[values.len()], values)];
    let with = |op: &str, constants| problem(&one_node(op, constants, vec![]));
    assert!(matches!(with("Add", vec![Tensor::f32("c", &[3], &[0.0; 3])]), Problem::Broadcast { .. }));
    assert!(matches!(with("Add", ints(&[1])), Problem::Element { input: 1, expected: Element::F32 }));
    assert!(matches!(with("MatMul", vec![Tensor::f32("c", &[3, 2], &[0.0; 6])]), Problem::Broadcast { .. }));
    assert!(matches!(with("Reshape", ints(&[4, -1])), Problem::NotItsShape(_)));
    assert!(matches!(with("Reshape", ints(&[-1, -1])), Problem::Number { value: -1, .. }));
    assert!(matches!(with("Squeeze", ints(&[0])), Problem::NotItsShape(_)));
    assert!(matches!(with("Unsqueeze", ints(&[0, 0])), Problem::Shape { .. }));
    assert!(matches!(with("Gather", ints(&[-4])), Problem::Index { index: -4, length: 3 }));
    assert!(matches!(with("Expand", ints(&[1 << 20, 1, 1])), Problem::TooLarge { .. }));
    assert!(matches!(with("Expand", ints(&[1 << 40, 1 << 40, 0])), Problem::Broadcast { .. }));
    assert!(matches!(with("Unsqueeze", ints(&[1, 2, 3, 4, 5, 6, 7, 8])), Problem::Rank { rank: 10, .. }));
    let axis = vec![("axis", Attribute::Int(2))];
    assert!(matches!(problem(&one_node("Softmax", vec![], axis)), Problem::Axis { axis: 2, rank: 2 }));
    for step in [0, i64::MIN] {
        let lists = [("starts", 0), ("ends", i64::MIN), ("axes", 0), ("steps", step)];
        let lists = lists.map(|(name, value)| Tensor::i64(name, &[1], &[value]));
        assert!(matches!(with("Slice", lists.into()), Problem::Number { .. }));
    }
    let zero = Tensor::i64("x", &[1], &[0]);
    let mut division = one_node("Div", vec![], vec![]);
    division.graph.inputs.clear();
    division.graph.initializers.push(zero);
    division.graph.nodes[0].inputs = vec!["x".to_owned(), "x".to_owned()];
    let divided = run(&division, BTreeMap::new());
    assert!(matches!(divided, Err(RunError::Node { problem: Problem::Arithmetic, .. })));
}
