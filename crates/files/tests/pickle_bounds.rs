//! Pickles that are out to take memory: each ends as a pickle or as an error within 100 MiB.
//!
//! One test alone in its program, because it counts the memory of the whole of it.

mod counting;

use std::io::{BufReader, Read};

use files::pickle::{Limits, Node, Pickle, Problem};

const MIB: usize = 1 << 20;

/// Instructions that are repeated, without being in memory.
struct Repeated {
    start: Vec<u8>,
    again: Vec<u8>,
    times: u64,
    end: Vec<u8>,
}

impl Repeated {
    fn new(start: &[u8], again: &[u8], times: u64, end: &[u8]) -> Self {
        // A large block at once, or most of the time goes into reading.
        let block = ((64 << 10) / again.len()).max(1);
        let times = times.div_ceil(block as u64);
        Self { start: start.to_vec(), again: again.repeat(block), times, end: end.to_vec() }
    }

    fn reader(&self) -> impl Read + '_ {
        let again = (0..self.times).map(|_| &self.again[..]);
        Blocks { blocks: std::iter::once(&self.start[..]).chain(again).chain([&self.end[..]]), block: &[] }
    }
}

struct Blocks<'a, I> {
    blocks: I,
    block: &'a [u8],
}

impl<'a, I: Iterator<Item = &'a [u8]>> Read for Blocks<'a, I> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.block.is_empty() {
            let Some(block) = self.blocks.next() else { return Ok(0) };
            self.block = block;
        }
        self.block.read(buffer)
    }
}

/// Reads a pickle: what came of it, and the most memory that it took.
fn read(input: impl Read, limits: &Limits) -> (Result<Pickle, Problem>, usize) {
    let mut reader = BufReader::with_capacity(64 << 10, input);
    counting::most_of(|| Pickle::read(&mut reader, limits).map_err(|error| error.problem))
}

/// What stops a pickle of 100 million bytes or more, and below which use of memory.
fn stops(start: &[u8], again: &[u8], end: &[u8]) -> Problem {
    let file = Repeated::new(start, again, 100_000_000 / again.len() as u64 + 1, end);
    let (read, most) = read(file.reader(), &Limits::default());
    let name = String::from_utf8_lossy(&again[..again.len().min(40)]).into_owned();
    println!("{name:?}: {} MiB", most.div_ceil(MIB));
    assert!(most < 100 * MIB, "{name:?}: {most} bytes");
    match read {
        Err(problem @ (Problem::TooManyBytes { .. } | Problem::TooManyNodes { .. })) => problem,
        Err(other) => panic!("{name:?}: {other}"),
        Ok(_) => panic!("{name:?} was read"),
    }
}

#[test]
fn no_pickle_takes_more_than_100_mib() {
    // 100 MB of instructions of one byte, or of a few, that each add something.
    for again in ["N", "(", "2", "]", "}", ")", "N\u{85}", "]\u{94}", "](", "\u{94}", "]]a0", "](NNNNNe0"] {
        let again: Vec<u8> = again.chars().map(|char| char as u8).collect();
        stops(b"N", &again, b".");
    }
    for again in
        [&b"K\x01"[..], b"U\x01a", b"X\x01\0\0\0\xff", b"I1\n", b"L99999999999999999999L\n", b"Va\n", b"S'a'\n"]
    {
        stops(b"", again, b".");
    }
    assert!(matches!(stops(b"", b"K\x010", b"N."), Problem::TooManyNodes { .. }), "also of what is dropped again");
    stops(b"c\n\n", b")R", b".");
    stops(b"c\n\n)R", b"Na", b".");
    stops(b"", b"ca\nb\n", b".");
    stops(b"", b"(ca\nb\no", b".");
    stops(b"", b"(ia\nb\n", b".");
    stops(b"", b"Pa\n", b".");
    stops(b"]", b"NaNaNa", b".");
    stops(b"}", b"NNsNNs", b".");
    stops(b"c\n\n)R", b"NNs", b".");
    stops(b"\x8f", b"(NNN\x90", b".");
    let numbered: Vec<u8> = (0..3_000_000u32).flat_map(|index| [&b"r"[..], &index.to_le_bytes()].concat()).collect();
    stops(b"N", &numbered, b".");
    drop(numbered);

    // Names that are copied: a text of 1 MiB that is the name of a class, again and again.
    let text = [&b"X\0\0\x10\0"[..], &vec![b'a'; MIB], b"q\0"].concat();
    stops(&text, b"h\0h\0\x93", b".");
    // Long strings, of every kind, and those that grow as they are decoded.
    for (head, byte, tail) in [
        (&b"T\0\0\x10\0"[..], b'a', &b""[..]),
        (b"B\0\0\x10\0", b'a', b""),
        (b"X\0\0\x10\0", b'a', b""),
        (b"X\0\0\x10\0", 0xff, b""),
        (b"\x8b\0\0\x10\0", 0x7f, b""),
        (b"V", 0xe9, b"\n"),
        (b"S'", b'a', b"'\n"),
        (b"P", b'a', b"\n"),
    ] {
        let length = if tail.is_empty() { MIB } else { MIB - 3 };
        stops(b"", &[head, &vec![byte; length], tail].concat(), b".");
    }
    // Nodes and long strings together, in either order.
    let nodes = [b"]0".repeat(600_000), b"N".to_vec()].concat();
    stops(&nodes, &[&b"B\0\0\x10\0"[..], &vec![0; MIB]].concat(), b".");
    drop(nodes);
    let strings = [&b"B\0\0\x10\0"[..], &vec![0; MIB]].concat().repeat(45);
    stops(&strings, b"]", b".");
    drop(strings);

    // One string that says to be far longer than the file.
    for head in [&b"\x8d"[..], b"\x8e", b"\x96"] {
        let bytes = [head, &(1u64 << 60).to_le_bytes(), b"abc"].concat();
        let (read, most) = read(&bytes[..], &Limits::default());
        assert!(matches!(read, Err(Problem::TooManyBytes { .. })) && most < MIB, "{most} bytes");
    }
    for head in [&b"X"[..], b"B", b"T", b"\x8b"] {
        let bytes = [head, &(60u32 << 20).to_le_bytes(), b"abc"].concat();
        let (read, most) = read(&bytes[..], &Limits::default());
        assert!(matches!(read, Err(Problem::End)) && most < MIB, "{most} bytes");
    }
    let line = Repeated::new(b"V", b"aaaaaaaa", 100_000_000, b"\n.");
    let (endless, most) = read(line.reader(), &Limits::default());
    assert!(matches!(endless, Err(Problem::LineTooLong)) && most < 8 * MIB, "{most} bytes");

    // A list of ten, of which each is the same list of ten, of which each..., a hundred times. It is small, and stays so.
    let mut laughs = b"]q\0".to_vec();
    for level in 1..=100u8 {
        laughs.extend([b"](".to_vec(), [b'h', level - 1].repeat(10), vec![b'e', b'q', level]].concat());
    }
    let (pickle, most) = read(&[&laughs[..], b"."].concat()[..], &Limits::default());
    let pickle = pickle.unwrap();
    assert!(most < MIB, "{most} bytes");
    assert_eq!(pickle.nodes().len(), 3 + 101);
    assert_eq!(pickle.items(pickle.root()).unwrap().len(), 10);

    // A million lists, each in the next: read without recursion, and dropped without it.
    let deep = [&b"]".repeat(1_000_000)[..], &b"a".repeat(999_999), b"."].concat();
    let (pickle, most) = read(&deep[..], &Limits::default());
    let pickle = pickle.unwrap();
    let (mut depth, mut id) = (1, pickle.root());
    while let Node::List(items) = pickle.node(id)
        && let [inner] = items[..]
    {
        (depth, id) = (depth + 1, inner);
    }
    assert_eq!(depth, 1_000_000);
    assert!(most < 100 * MIB, "{most} bytes");
    drop((deep, pickle));
    let marks = [&b"(".repeat(1_000_000)[..], &b"t".repeat(1_000_000), b"."].concat();
    assert!(read(&marks[..], &Limits::default()).0.is_ok());

    // Other limits hold too.
    let limits = Limits { nodes: 1000, bytes: 10_000 };
    assert!(matches!(read(&b"]".repeat(1000)[..], &limits).0, Err(Problem::TooManyBytes { limit: 10_000 })));
    let limits = Limits { nodes: 10, bytes: 10_000 };
    assert!(matches!(read(&b"]".repeat(1000)[..], &limits).0, Err(Problem::TooManyNodes { limit: 10 })));
    let limits = Limits { nodes: 0, bytes: 0 };
    assert!(matches!(read(&b"N."[..], &limits).0, Err(Problem::TooManyNodes { limit: 0 })));
}
