//! The tensors that a pickle describes, under the names that they have through its dicts.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use files::pickle::{Node, NodeId, Pickle};

use super::super::file::{Place, TensorInfo};
use super::storage::{Kind, StorageId, key_text};

/// How deep dicts may be nested; in checkpoints they are a handful.
const MAX_DEPTH: usize = 32;

/// How many objects that hold others are looked at. One that several others hold is looked at for each of them.
const MAX_VISITS: usize = 1 << 20;

/// How many elements of containers are looked at in all.
const MAX_LOOKS: usize = 1 << 23;

/// More tensors than any checkpoint has, and more axes than any of them.
const MAX_TENSORS: usize = 1 << 16;
const MAX_AXES: usize = 8;

const TOO_MUCH: &str = "its pickle holds more than any checkpoint does";

/// Bytes that all names may have together.
const MAX_NAMES: usize = 32 << 20;

/// The parts of a module that add nothing to the names of what they hold.
const MODULE: [&str; 3] = ["_parameters", "_buffers", "_modules"];

/// A tensor, and the storage that it is a view of.
#[derive(Clone, Debug)]
pub(super) struct Described {
    pub name: String,
    pub storage: StorageId,
    /// Elements before its first one.
    offset: u64,
    shape: Vec<u64>,
    strides: Vec<u64>,
}

/// Where the bytes of a storage are, and their CRC-32 where it is known.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub bytes: std::ops::Range<u64>,
    pub crc32: Option<u32>,
}

/// All tensors of a pickle in its order. Of two of one name, the later.
pub(super) fn describe(pickle: &Pickle) -> Result<Vec<Described>, String> {
    let mut found: Vec<Described> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut walk = Walk { pickle, open: vec![(pickle.root(), String::new(), 0)], looked_at: 0, pushed: 0, names: 0 };
    while let Some((id, name, depth)) = walk.open.pop() {
        let Some(tensor) = tensor(pickle, id, &name)? else {
            walk.open_inside(id, &name, depth)?;
            continue;
        };
        match places.entry(tensor.name.clone()) {
            Entry::Occupied(place) => found[*place.get()] = tensor,
            Entry::Vacant(_) if found.len() == MAX_TENSORS => return Err(TOO_MUCH.to_owned()),
            Entry::Vacant(place) => {
                place.insert(found.len());
                found.push(tensor);
            }
        }
    }
    Ok(found)
}

/// A walk through the objects of a pickle, which may hold each other in circles and by many ways.
struct Walk<'a> {
    pickle: &'a Pickle,
    /// What is still to be looked at, its name and how deep it lies; the next one last.
    open: Vec<(NodeId, String, usize)>,
    looked_at: usize,
    pushed: usize,
    names: usize,
}

impl Walk<'_> {
    /// Opens what an object holds: the values of a dict, the elements of a list, the attributes of an object.
    fn open_inside(&mut self, id: NodeId, name: &str, depth: usize) -> Result<(), String> {
        let (pickle, first) = (self.pickle, self.open.len());
        if let Some(items) = pickle.items(id) {
            for (i, &item) in items.iter().enumerate() {
                self.push(item, || join(name, &i.to_string()), depth)?;
            }
        } else {
            let holder = pickle.pairs(id).map(|_| id).or_else(|| pickle.state(id));
            let pairs = holder.and_then(|holder| pickle.pairs(holder));
            for (key, value) in pairs.iter().flat_map(|pairs| pairs.iter()) {
                let Some(key) = key_text(pickle, *key) else { continue };
                let adds_nothing = MODULE.contains(&key.as_str());
                self.push(*value, || if adds_nothing { name.to_owned() } else { join(name, &key) }, depth)?;
            }
        }
        self.open[first..].reverse();
        Ok(())
    }

    fn push(&mut self, id: NodeId, name: impl FnOnce() -> String, depth: usize) -> Result<(), String> {
        self.looked_at += 1;
        if self.looked_at > MAX_LOOKS {
            return Err(TOO_MUCH.to_owned());
        }
        let holds_something =
            matches!(self.pickle.node(id), Node::Dict(_) | Node::List(_) | Node::Tuple(_) | Node::Call(_));
        if !holds_something {
            return Ok(());
        }
        let name = name();
        self.pushed += 1;
        self.names += name.len();
        if self.pushed > MAX_VISITS || self.names > MAX_NAMES || depth >= MAX_DEPTH {
            return Err(TOO_MUCH.to_owned());
        }
        self.open.push((id, name, depth + 1));
        Ok(())
    }
}

fn join(name: &str, part: &str) -> String {
    if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") }
}

/// The tensor that an object is; none where it is something else, or of a kind that holds no weights.
fn tensor(pickle: &Pickle, mut id: NodeId, name: &str) -> Result<Option<Described>, String> {
    // A parameter is a tensor in a wrapping or two.
    for _ in 0..4 {
        let Some((module, function, arguments)) = pickle.call(id) else { return Ok(None) };
        match (module, function, arguments) {
            ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state", [inner, ..])
            | ("torch.nn.parameter", "Parameter", [inner, ..]) => id = *inner,
            ("torch._tensor", "_rebuild_from_type_v2", [function, _, arguments, ..]) => {
                let (Some(("torch._utils", function)), Some(arguments)) =
                    (pickle.global(*function), pickle.items(*arguments))
                else {
                    return Ok(None);
                };
                return rebuild(pickle, function, arguments, name);
            }
            ("torch._utils", function, arguments) => return rebuild(pickle, function, arguments, name),
            _ => return Ok(None),
        }
    }
    Ok(None)
}

/// The tensor that one of PyTorch's functions would make.
fn rebuild(pickle: &Pickle, function: &str, arguments: &[NodeId], name: &str) -> Result<Option<Described>, String> {
    if !matches!(function, "_rebuild_tensor" | "_rebuild_tensor_v2" | "_rebuild_tensor_v3") {
        return Ok(None);
    }
    let [storage, offset, shape, strides, rest @ ..] = arguments else { return Ok(None) };
    // Of a kind that this program does not know: no weights.
    let Some(mut storage) = StorageId::of(pickle, *storage) else { return Ok(None) };
    if function == "_rebuild_tensor_v3" {
        // The storage is untyped bytes, and the type of elements comes with the tensor.
        let Some(kind) = rest.get(2).and_then(|&id| Kind::of(pickle, id)) else { return Ok(None) };
        storage = StorageId { count: storage.count / kind.size, element: kind, ..storage };
    }
    let number = |id: NodeId| pickle.int(id).and_then(|number| u64::try_from(number).ok());
    let axes = |id: NodeId| pickle.items(id).filter(|items| items.len() <= MAX_AXES);
    let numbers = |id: NodeId| axes(id)?.iter().map(|&id| number(id)).collect::<Option<Vec<u64>>>();
    let read = (number(*offset), numbers(*shape), numbers(*strides));
    let (Some(offset), Some(shape), Some(strides)) = read else {
        return Err(format!("tensor `{}` has no shape", text::excerpt(name)));
    };
    if shape.len() != strides.len() {
        return Err(format!("tensor `{}` has a stride for another number of axes", text::excerpt(name)));
    }
    Ok(Some(Described { name: name.to_owned(), storage, offset, shape, strides }))
}

impl Described {
    /// The tensor in its file, if it lies within its storage, which is there.
    pub fn located(&self, stored: &Stored) -> Result<TensorInfo, String> {
        let Kind { element, size } = &self.storage.element;
        let fail = |what: &str| format!("tensor `{}` {what}", text::excerpt(&self.name));
        let there = (stored.bytes.end - stored.bytes.start) / size;
        let count = self.shape.iter().try_fold(1u64, |count, &side| count.checked_mul(side));
        // A view may repeat elements, which no weights do: as many as there are bound what is taken for it.
        let count = count.filter(|&count| count <= there).ok_or_else(|| fail("has more elements than the file"))?;
        let mut last = self.storage.first.checked_add(self.offset);
        for (&side, &stride) in self.shape.iter().zip(&self.strides).filter(|_| count > 0) {
            last = last.and_then(|last| last.checked_add((side - 1).checked_mul(stride)?));
        }
        let first = self.storage.first.saturating_add(self.offset);
        let end = match count {
            0 => Some(first),
            _ => last.and_then(|last| last.checked_add(1)),
        };
        let end = end.filter(|&end| end <= there).ok_or_else(|| fail("reaches beyond its storage"))?;
        let bytes = stored.bytes.start + first * size..stored.bytes.start + end * size;
        let crc32 = stored.crc32.filter(|_| bytes == stored.bytes);
        let narrow = |numbers: &[u64]| numbers.iter().map(|&number| number as usize).collect::<Vec<usize>>();
        let strides = (!self.is_in_rows(count)).then(|| narrow(&self.strides));
        let place = Place { file: 0, bytes, strides, crc32 };
        Ok(TensorInfo { name: self.name.clone(), element: element.clone(), shape: narrow(&self.shape), place })
    }

    /// Whether its elements lie row by row without gaps.
    fn is_in_rows(&self, count: u64) -> bool {
        let mut expected = 1;
        count == 0
            || self.shape.iter().zip(&self.strides).rev().all(|(&side, &stride)| {
                let fits = side == 1 || stride == expected;
                expected *= side;
                fits
            })
    }
}

/// The keys of the storages that these tensors are in.
pub(super) fn keys(tensors: &[Described]) -> BTreeSet<&str> {
    tensors.iter().map(|tensor| tensor.storage.key.as_str()).collect()
}
