//! Files that are not what they should be: each is an error with a name, none a panic or a full memory.

mod common;

use onnx::{ReadProblem, Writer, read};

/// A field of bytes, as protobuf has it.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut length = content.len();
    let mut bytes = vec![number << 3 | 2];
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    [bytes, content.to_vec()].concat()
}

/// A field that is a whole number below 128.
fn number(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

/// A file with this content in its graph.
fn with_graph(graph: &[u8]) -> Vec<u8> {
    [field(7, graph), field(8, &number(2, 17))].concat()
}

fn problem(bytes: &[u8]) -> ReadProblem {
    read(bytes).unwrap_err().problem
}

#[test]
fn a_file_is_read_though_it_has_fields_that_are_not_known() {
    let unknown = [field(15, b"x"), vec![0x79, 1, 2, 3, 4, 5, 6, 7, 8], vec![0x7d, 1, 2, 3, 4], number(15, 3)].concat();
    let node = [field(4, b"Relu"), unknown.clone()].concat();
    // Field 15 of a graph is known, and refused: fields of another number stand in for it.
    let graph = [field(1, &node), field(10, b"about it")].concat();
    let bytes = [with_graph(&graph), unknown].concat();
    let model = read(&bytes).unwrap();
    assert_eq!((model.opset, model.graph.nodes[0].op.as_str()), (17, "Relu"));
}

#[test]
fn what_is_not_supported_has_a_name() {
    let cases = [
        (field(1, &[field(4, b"Gelu"), field(7, b"com.microsoft")].concat()), "an operator of the set `com.microsoft`"),
        (field(1, &[field(4, b"If"), field(5, &[field(1, b"then"), vec![0xa0, 1, 5]].concat())].concat()), "`then`"),
        (field(5, &field(13, b"\x0a\x08location")), "another file"),
        (field(5, &number(14, 1)), "another file"),
        (field(5, &field(3, b"")), "in pieces"),
        (field(15, b""), "sparse"),
    ];
    for (graph, expected) in cases {
        let message = read(&with_graph(&graph)).unwrap_err().to_string();
        assert!(message.contains(expected) && message.contains("not supported"), "{message}");
    }
    let half = [number(2, 10), field(8, b"w")].concat();
    assert_eq!(problem(&with_graph(&field(5, &half))), ReadProblem::ElementType { code: 10 });
}

#[test]
fn what_should_be_there_once_is_there_once() {
    let not_one = |bytes: &[u8], expected: &str| match problem(bytes) {
        ReadProblem::NotOne { what } => assert_eq!(what, expected),
        other => panic!("{other}"),
    };
    not_one(&[], "graph");
    not_one(&field(7, b""), "version of the standard operators");
    not_one(&[with_graph(&[]), field(7, b"")].concat(), "graph");
    not_one(&[with_graph(&[]), field(8, &number(2, 17))].concat(), "version of the standard operators");
    not_one(&with_graph(&field(1, b"")), "operator");
    not_one(&with_graph(&field(11, &field(1, b"x"))), "type");
    not_one(&with_graph(&field(11, &field(2, b""))), "tensor type");
    not_one(&with_graph(&field(11, &field(2, &field(1, &number(1, 1))))), "shape");
    not_one(&with_graph(&field(1, &[field(4, b"Relu"), field(5, b"")].concat())), "type");
    let both = [number(2, 1), field(4, &[0; 4]), field(9, &[0; 4])].concat();
    not_one(&with_graph(&field(5, &both)), "list of elements of its type");
    let attribute = || field(5, &[field(1, b"axis"), vec![0xa0, 1, 2]].concat());
    let twice = [field(4, b"Softmax"), attribute(), attribute()].concat();
    assert_eq!(problem(&with_graph(&field(1, &twice))), ReadProblem::Twice { name: "axis".to_owned() });
}

#[test]
fn a_tensor_has_the_elements_of_its_shape() {
    let tensor = |parts: &[Vec<u8>]| with_graph(&field(5, &parts.concat()));
    let load = |bytes: &[u8]| read(bytes).map(|model| model.graph.initializers[0].load().unwrap().to_vec());
    let floats = [1.0f32.to_le_bytes(), 2.0f32.to_le_bytes()].concat();
    let (one, two) = (&floats[..4], &floats[4..]);
    // The same two numbers as bytes, packed, packed in two pieces, and one by one.
    let single = |bytes: &[u8]| [&[0x25][..], bytes].concat();
    for data in [
        field(9, &floats),
        field(4, &floats),
        [field(4, one), field(4, two)].concat(),
        [single(one), single(two)].concat(),
        [field(4, one), single(two)].concat(),
    ] {
        assert_eq!(load(&tensor(&[number(1, 2), number(2, 1), data])).unwrap(), floats);
    }
    for data in [field(7, &[3, 0x80, 0x01]), [number(7, 3), vec![0x38, 0x80, 0x01]].concat()] {
        let bytes = tensor(&[field(1, &[2, 1]), number(2, 7), data]);
        assert_eq!(load(&bytes).unwrap(), [3i64.to_le_bytes(), 128i64.to_le_bytes()].concat());
    }
    let sized = |dims: &[u8], data: &[u8]| problem(&tensor(&[field(1, dims), number(2, 1), field(9, data)]));
    assert!(matches!(sized(&[2], &[0; 7]), ReadProblem::TensorSize { bytes: 7, .. }));
    assert!(matches!(sized(&[], &[0; 8]), ReadProblem::TensorSize { bytes: 8, .. }));
    // Products of sides that overflow to the right number, and negative sides.
    let side = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20];
    assert!(matches!(sized(&[side, side].concat(), &[]), ReadProblem::TensorSize { bytes: 0, .. }));
    let minus_one = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert_eq!(sized(&minus_one, &[]), ReadProblem::NoSize { size: -1 });
}

#[test]
fn many_small_parts_do_not_fill_the_memory() {
    let node = field(1, &field(4, b"a"));
    let graph = node.repeat(1 << 17);
    assert!(matches!(problem(&with_graph(&graph)), ReadProblem::TooManyParts { .. }));
    let ints = field(5, &[number(2, 7), field(7, &vec![1; 1 << 18])].concat());
    assert!(matches!(problem(&with_graph(&ints)), ReadProblem::TooManyParts { .. }));
}

#[test]
fn no_beginning_of_a_file_is_a_file_and_no_changed_byte_makes_it_panic() {
    let (vit, tensors, head) = common::tiny();
    let bytes = Writer::new(&common::model(&vit, &tensors, Some(&head))).unwrap().to_bytes().unwrap();
    for length in (0..bytes.len()).step_by(17) {
        // Behind the graph, a file that ends between two entries of its metadata is whole.
        let last_fields = bytes.len() - 100;
        assert!(read(&bytes[..length]).is_err() || length > last_fields, "{length}");
    }
    let mut changed = bytes.clone();
    for at in (0..bytes.len()).step_by(13) {
        changed[at] ^= 0x81;
        _ = read(&changed).map(|model| Writer::new(&model).map(|writer| writer.file_size()));
        changed[at] = bytes[at];
    }
}
