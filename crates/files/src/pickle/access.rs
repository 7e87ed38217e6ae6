//! Short ways to what a reader of a pickle asks for. Each gives nothing where the node is of another kind.
//!
//! None of them follows more than a step or two, so that a pickle that goes round in a circle holds none of them up. Whoever
//! walks through a pickle has to see to that: a few hundred nodes can be met in more ways than there are atoms.

use std::borrow::Cow;

use super::node::{Node, NodeId};
use super::{Pickle, machine};

impl Pickle {
    /// The node that stands for the whole pickle.
    pub fn root(&self) -> NodeId {
        self.root
    }

    /// All nodes, also those that are not part of the whole.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(place, node)| (NodeId(place as u32), node))
    }

    /// A node of this pickle; of another pickle's, `None`.
    pub fn node(&self, id: NodeId) -> &Node {
        self.nodes.get(id.0 as usize).unwrap_or(&Node::None)
    }

    /// Whether it is `None`.
    pub fn is_none(&self, id: NodeId) -> bool {
        id == machine::NONE
    }

    /// A text, or a string of Python 2 that is one in UTF-8.
    pub fn text(&self, id: NodeId) -> Option<&str> {
        match self.node(id) {
            Node::Text(text) => Some(text),
            Node::OldString(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// A whole number of at most 64 bits.
    pub fn int(&self, id: NodeId) -> Option<i64> {
        match self.node(id) {
            Node::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// A whole number of at most 128 bits.
    pub fn wide_int(&self, id: NodeId) -> Option<i128> {
        match self.node(id) {
            Node::Int(value) => Some((*value).into()),
            Node::WideInt(bytes) => {
                let sign = if bytes.last()? & 0x80 != 0 { 0xff } else { 0 };
                let mut whole = [sign; size_of::<i128>()];
                whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
                Some(i128::from_le_bytes(whole))
            }
            _ => None,
        }
    }

    /// Bytes: `bytes`, `bytearray`, a string of Python 2, or `bytes` as protocols 0 to 2 write them, which is a text of
    /// Latin-1 and a call that encodes it.
    pub fn bytes(&self, id: NodeId) -> Option<Cow<'_, [u8]>> {
        if let Node::Bytes(bytes) | Node::ByteArray(bytes) | Node::OldString(bytes) = self.node(id) {
            return Some(Cow::Borrowed(bytes));
        }
        match self.call(id)? {
            ("_codecs", "encode", &[text, codec]) if matches!(self.text(codec), Some("latin1" | "latin-1")) => self
                .text(text)?
                .chars()
                .map(|char| u8::try_from(char).ok())
                .collect::<Option<Vec<u8>>>()
                .map(Cow::Owned),
            ("__builtin__" | "builtins", "bytes", []) => Some(Cow::Borrowed(&[])),
            _ => None,
        }
    }

    /// The elements of a list or a tuple.
    pub fn items(&self, id: NodeId) -> Option<&[NodeId]> {
        match self.node(id) {
            Node::List(items) => Some(items),
            Node::Tuple(items) => Some(items),
            _ => None,
        }
    }

    /// The pairs of a dict, an `OrderedDict`, or another object that works like a dict. Of two equal keys the later counts.
    pub fn pairs(&self, id: NodeId) -> Option<Cow<'_, [(NodeId, NodeId)]>> {
        let call = match self.node(id) {
            Node::Dict(pairs) => return Some(Cow::Borrowed(pairs)),
            Node::Call(call) => call,
            _ => return None,
        };
        match self.call(id) {
            // Python 2 gives all pairs to the call.
            Some(("collections", "OrderedDict", &[argument])) => {
                let pair = |&id: &NodeId| match *self.items(id)? {
                    [key, value] => Some((key, value)),
                    _ => None,
                };
                let mut pairs: Vec<_> = self.items(argument)?.iter().map(pair).collect::<Option<_>>()?;
                pairs.extend(&call.pairs);
                Some(Cow::Owned(pairs))
            }
            Some(("collections", "OrderedDict" | "defaultdict", _)) => Some(Cow::Borrowed(&call.pairs)),
            _ if !call.pairs.is_empty() => Some(Cow::Borrowed(&call.pairs)),
            _ => None,
        }
    }

    /// The value of a key in what [`pairs`](Self::pairs) gives.
    pub fn get(&self, id: NodeId, key: &str) -> Option<NodeId> {
        let pairs = self.pairs(id)?;
        pairs.iter().rev().find(|(name, _)| self.text(*name) == Some(key)).map(|&(_, value)| value)
    }

    /// The class or function whose call would give this object, and the arguments: module, name, arguments.
    pub fn call(&self, id: NodeId) -> Option<(&str, &str, &[NodeId])> {
        let Node::Call(call) = self.node(id) else { return None };
        let (module, name) = self.global(call.callable)?;
        Some((module, name, self.items(call.arguments)?))
    }

    /// A class or function: module and name.
    pub fn global(&self, id: NodeId) -> Option<(&str, &str)> {
        match self.node(id) {
            Node::Global(global) => Some((&global.module, &global.name)),
            _ => None,
        }
    }

    /// What an object would be given after the call that makes it, such as a dict of its attributes.
    pub fn state(&self, id: NodeId) -> Option<NodeId> {
        match self.node(id) {
            Node::Call(call) => call.state,
            _ => None,
        }
    }
}
