//! Pickles of every protocol against what Python finds in them: fixtures/pickle.json, by tools/oracle/pickle_fixtures.py.

use std::collections::HashMap;

use files::pickle::{Limits, Node, NodeId, Pickle, PickleError, Problem};
use serde_json::{Value, json};

fn read(bytes: &[u8]) -> Result<Pickle, PickleError> {
    Pickle::read(&mut &bytes[..], &Limits::default())
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A pickle and its content, as Python has it.
struct Case {
    name: String,
    pickle: Vec<u8>,
    content: Value,
}

fn cases() -> Vec<Case> {
    let cases: Value = serde_json::from_str(include_str!("fixtures/pickle.json")).unwrap();
    let mut all = Vec::new();
    for case in cases.as_array().unwrap() {
        let protocols = case["protocols"].as_array().unwrap();
        for (place, pickle) in case["pickles"].as_array().unwrap().iter().enumerate() {
            let protocol = protocols.get(place).map_or(String::new(), |protocol| format!(", protocol {protocol}"));
            let name = format!("{}{protocol}", case["name"].as_str().unwrap());
            all.push(Case { name, pickle: unhex(pickle.as_str().unwrap()), content: case["content"].clone() });
        }
    }
    all
}

fn case(name: &str) -> Pickle {
    let case = cases().into_iter().find(|case| case.name == name).unwrap();
    read(&case.pickle).unwrap()
}

/// Writes a pickle as the fixtures do.
struct Writer<'a> {
    pickle: &'a Pickle,
    met: HashMap<NodeId, usize>,
}

impl Writer<'_> {
    fn all(&mut self, ids: &[NodeId]) -> Vec<Value> {
        ids.iter().map(|&id| self.content(id)).collect()
    }

    fn pairs(&mut self, pairs: &[(NodeId, NodeId)]) -> Vec<[Value; 2]> {
        pairs.iter().map(|&(key, value)| [self.content(key), self.content(value)]).collect()
    }

    /// As in a set of Python, which has an order that means nothing.
    fn sorted(&mut self, ids: &[NodeId]) -> Vec<Value> {
        let mut all = self.all(ids);
        all.sort_by_key(Value::to_string);
        all
    }

    /// As in a dict of Python, where the value of a later key replaces that of an equal one.
    fn dict(&mut self, pairs: &[(NodeId, NodeId)]) -> Vec<[Value; 2]> {
        let mut dict: Vec<[Value; 2]> = Vec::new();
        for [key, value] in self.pairs(pairs) {
            match dict.iter_mut().find(|[known, _]| *known == key) {
                Some([_, known]) => *known = value,
                None => dict.push([key, value]),
            }
        }
        dict
    }

    fn content(&mut self, id: NodeId) -> Value {
        let pickle = self.pickle;
        match pickle.node(id) {
            Node::None => return json!(["none"]),
            Node::Bool(value) => return json!(["bool", value]),
            Node::Int(value) => {
                // As few bytes as hold it and its sign.
                let bits = 64 - (value ^ (value >> 63)).leading_zeros() as usize;
                return json!(["int", hex(&value.to_le_bytes().as_slice()[..(bits / 8 + 1).min(8)])]);
            }
            Node::WideInt(bytes) => return json!(["int", hex(bytes)]),
            Node::Float(value) if value.is_nan() => return json!(["float", "nan"]),
            Node::Float(value) => return json!(["float", hex(&value.to_be_bytes())]),
            Node::Text(text) => return json!(["text", &**text]),
            Node::Bytes(bytes) | Node::OldString(bytes) => return json!(["bytes", hex(bytes)]),
            Node::ByteArray(bytes) => return json!(["bytearray", hex(bytes)]),
            Node::Global(global) => return json!(["global", &*global.module, &*global.name]),
            Node::Tuple(elements) if elements.is_empty() => return json!(["tuple", []]),
            _ => {}
        }
        let number = self.met.len();
        if let Some(number) = self.met.get(&id) {
            return json!(["same", number]);
        }
        self.met.insert(id, number);
        match pickle.node(id) {
            Node::Tuple(elements) => json!(["tuple", self.all(elements)]),
            Node::List(elements) => json!(["list", self.all(elements)]),
            Node::Set(elements) => json!(["set", self.sorted(elements)]),
            Node::FrozenSet(elements) => json!(["frozenset", self.sorted(elements)]),
            Node::Dict(pairs) => json!(["dict", self.dict(pairs)]),
            Node::Persistent(name) => json!(["persistent", self.content(*name)]),
            Node::Call(call) => {
                let arguments = pickle.items(call.arguments).unwrap();
                let mut content = json!({ "callable": self.content(call.callable), "arguments": self.all(arguments) });
                if let Some(keywords) = call.keywords {
                    content["keywords"] = self.content(keywords);
                }
                if let Some(state) = call.state {
                    content["state"] = self.content(state);
                }
                content["items"] = json!(self.all(&call.items));
                content["pairs"] = json!(self.pairs(&call.pairs));
                json!(["call", content])
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn every_protocol_gives_what_python_reads() {
    let cases = cases();
    assert!(cases.len() > 90, "{}", cases.len());
    for Case { name, pickle: bytes, content } in cases {
        let pickle = read(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(pickle.length(), bytes.len() as u64, "{name}");
        let found = Writer { pickle: &pickle, met: HashMap::new() }.content(pickle.root());
        assert_eq!(found, content, "{name}");
    }
}

#[test]
fn a_pickle_that_ends_early_is_an_error_at_every_byte() {
    for Case { name, pickle, .. } in cases() {
        for length in 0..pickle.len() {
            let error = read(&pickle[..length]).expect_err(&name);
            assert!(matches!(error.problem, Problem::End), "{name}, {length} bytes: {error}");
            assert!(error.at <= length as u64, "{name}, {length} bytes: {error}");
        }
    }
}

#[test]
fn a_changed_byte_gives_a_pickle_or_an_error() {
    for Case { mut pickle, .. } in cases() {
        for place in 0..pickle.len() {
            let before = pickle[place];
            for change in [1, 0x80, before, before ^ 0xff, before ^ b'.', before ^ b'R', before ^ b'(', before ^ b'0'] {
                pickle[place] = before ^ change;
                files::fuzz::pickle(&pickle);
            }
            pickle[place] = before;
        }
    }
}

#[test]
fn a_call_of_the_shell_is_a_node_and_nothing_else() {
    for protocol in 0..=5 {
        let pickle = case(&format!("harmful, protocol {protocol}"));
        let items = pickle.items(pickle.root()).unwrap();
        let (module, name, arguments) = pickle.call(items[0]).unwrap();
        assert_eq!((module, name), ("posix", "system"));
        assert_eq!(pickle.text(arguments[0]), Some("touch harmed"));
        assert_eq!(pickle.text(items[1]), Some("behind it"));
    }
    assert!(!std::path::Path::new("harmed").exists());
}

#[test]
fn pickles_may_follow_each_other() {
    let all = cases();
    let stream: Vec<u8> = all.iter().flat_map(|case| case.pickle.clone()).collect();
    let mut rest = std::io::BufReader::with_capacity(7, &stream[..]);
    for Case { name, pickle, .. } in &all {
        let read = Pickle::read(&mut rest, &Limits::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(read.length(), pickle.len() as u64, "{name}");
    }
    assert!(matches!(Pickle::read(&mut rest, &Limits::default()).unwrap_err().problem, Problem::End));
}

#[test]
fn the_mark_of_a_legacy_file_of_pytorch_is_known_in_every_protocol() {
    for protocol in 0..=5 {
        let pickle = case(&format!("ints, protocol {protocol}"));
        let magic = pickle.items(pickle.root()).unwrap()[1];
        assert_eq!(pickle.wide_int(magic), Some(0x1950_a86a_20f9_469c_fc6c));
        assert_eq!(pickle.int(magic), None);
    }
}

#[test]
fn a_namespace_has_its_arguments_in_its_state() {
    for protocol in 0..=5 {
        let pickle = case(&format!("namespace, protocol {protocol}"));
        let args = pickle.get(pickle.root(), "args").unwrap();
        let state = pickle.state(args).unwrap();
        assert_eq!(pickle.get(state, "arch").and_then(|arch| pickle.text(arch)), Some("vit_small"));
        assert!(pickle.is_none(pickle.get(state, "data").unwrap()));
        assert_eq!(pickle.get(state, "epoch"), None);
        assert_eq!(pickle.get(pickle.root(), "epoch").and_then(|epoch| pickle.int(epoch)), Some(3));
    }
}

#[test]
fn an_ordered_dict_has_its_pairs_however_it_was_written() {
    for name in ["collections, protocol 0", "collections, protocol 2", "collections, protocol 5"] {
        let pickle = case(name);
        let items = pickle.items(pickle.root()).unwrap();
        let keys: Vec<_> = pickle.pairs(items[0]).unwrap().iter().map(|&(key, _)| pickle.text(key).unwrap()).collect();
        assert_eq!(keys, ["b", "a"], "{name}");
        assert_eq!(pickle.pairs(items[1]).unwrap().len(), 0, "{name}");
        assert_eq!(pickle.pairs(items[2]).unwrap().len(), 1, "{name}");
        assert_eq!(pickle.pairs(items[3]), None, "{name}: a deque");
    }
    let pickle = case("an OrderedDict of python 2");
    assert_eq!(pickle.get(pickle.root(), "b").and_then(|b| pickle.int(b)), Some(2));
}

#[test]
fn bytes_are_found_however_they_were_written() {
    for protocol in 0..=5 {
        let pickle = case(&format!("bytes, protocol {protocol}"));
        let items = pickle.items(pickle.root()).unwrap();
        assert_eq!(pickle.bytes(items[0]).as_deref(), Some(&b"bytes"[..]));
        let all: Vec<u8> = (0..=255).step_by(5).collect();
        assert_eq!(pickle.bytes(items[1]).as_deref(), Some(&all[..]));
        let pickle = case(&format!("scalars, protocol {protocol}"));
        let items = pickle.items(pickle.root()).unwrap();
        assert_eq!(pickle.bytes(items[4]).as_deref(), Some(&[][..]));
        assert_eq!(pickle.bytes(items[3]), None, "a text");
    }
}

#[test]
fn of_two_equal_keys_the_later_counts() {
    let pickle = read(b"}(U\x01aK\x01U\x01aK\x02u.").unwrap();
    assert_eq!(pickle.get(pickle.root(), "a").and_then(|a| pickle.int(a)), Some(2));
}

#[test]
fn half_a_surrogate_pair_is_replaced() {
    let pickle = read(b"X\x05\0\0\0a\xed\xa0\x80b.").unwrap();
    assert_eq!(pickle.text(pickle.root()), Some("a\u{fffd}\u{fffd}\u{fffd}b"));
}

#[test]
fn each_way_to_be_wrong_has_its_own_error_at_its_place() {
    let error = |bytes: &[u8]| read(bytes).unwrap_err();
    let mismatch = |bytes: &[u8]| match error(bytes).problem {
        Problem::Mismatch { instruction, found, .. } => (instruction, found),
        other => panic!("{other:?}"),
    };
    assert!(matches!(error(b"\x80\x06N."), PickleError { at: 0, problem: Problem::Protocol(6) }));
    assert!(matches!(error(b"N\xff."), PickleError { at: 1, problem: Problem::UnknownInstruction(0xff) }));
    assert!(matches!(error(b"N\x82\x01."), PickleError { at: 1, problem: Problem::Extension }));
    assert!(matches!(error(b"\x83\x01\0.").problem, Problem::Extension));
    assert!(matches!(error(b"\x84\x01\0\0\0.").problem, Problem::Extension));
    assert!(matches!(error(b"\x97.").problem, Problem::OutOfBand));
    assert!(matches!(error(b"\x98.").problem, Problem::OutOfBand));
    for bytes in [&b"."[..], b"0", b"2", b"q\0", b"a", b"Na", b"s", b"NNs", b"R", b"NR", b"b", b"Nb", b"Q", b"\x93"] {
        assert!(matches!(error(bytes).problem, Problem::EmptyStack), "{bytes:?}");
    }
    // What lies below a mark is out of reach.
    for bytes in [&b"N(."[..], b"](Na", b"](q\0", b"N(\x85", b"c\n\n)(R", b"]((e", b"((o"] {
        assert!(matches!(error(bytes).problem, Problem::EmptyStack), "{bytes:?}");
    }
    for bytes in [&b"t"[..], b"1", b"Nl", b"Nd", b"]e", b"}u", b"\x8f\x90", b"\x91", b"o", b"ia\nb\n"] {
        assert!(matches!(error(bytes).problem, Problem::NoMark), "{bytes:?}");
    }
    assert!(matches!(error(b"Nq\x01h\x02"), PickleError { at: 3, problem: Problem::NoSuchMemo(2) }));
    assert!(matches!(error(b"T\xff\xff\xff\xff").problem, Problem::NegativeLength(-1)));
    assert!(matches!(error(b"\x8b\0\0\0\x80").problem, Problem::NegativeLength(i32::MIN)));
    for bytes in
        [&b"Ix\n"[..], b"L1.5L\n", b"F\n", b"S'\n", b"V\\u1\n", b"Np-1\n", b"g\n", b"c\xff\na\n", b"(Nd", b"}(Nu"]
    {
        assert!(matches!(error(bytes).problem, Problem::Malformed(_)), "{bytes:?}");
    }
    assert_eq!(mismatch(b")Na"), ("APPENDS", "a tuple"));
    assert_eq!(mismatch(b"](N\x90"), ("ADDITEMS", "a list"));
    assert_eq!(mismatch(b"]NNs"), ("SETITEMS", "a list"));
    assert_eq!(mismatch(b"NNR"), ("REDUCE", "None"));
    assert_eq!(mismatch(b"K\x01X\0\0\0\0\x93"), ("STACK_GLOBAL", "an int"));
    assert_eq!(mismatch(b"}Nb"), ("BUILD", "a dict"));
    assert_eq!(mismatch(b"c\n\n)RNbNb"), ("BUILD", "an object"));
}
