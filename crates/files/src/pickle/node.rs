//! What a pickle is made of.

/// A node of a [`Pickle`](super::Pickle), by its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(super) u32);

/// One object of a pickle. Those inside it are nodes of their own, and more than one may hold the same: what Python shares
/// is shared here, and what goes round in a circle there does so here.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number that does not fit into 64 bits: two's complement, lowest byte first, no byte more than it needs.
    WideInt(Box<[u8]>),
    /// A floating-point number.
    Float(f64),
    /// A text. U+FFFD stands for what is none in UTF-8: Python lets a text hold half of a surrogate pair.
    Text(Box<str>),
    /// A string of Python 2, which did not tell texts from bytes.
    OldString(Box<[u8]>),
    /// `bytes`.
    Bytes(Box<[u8]>),
    /// `bytearray`.
    ByteArray(Box<[u8]>),
    /// A tuple.
    Tuple(Box<[NodeId]>),
    /// A list.
    List(Vec<NodeId>),
    /// A set, in the order of the file.
    Set(Vec<NodeId>),
    /// A frozen set, in the order of the file.
    FrozenSet(Box<[NodeId]>),
    /// A dict, in the order of the file. Of two equal keys the later one counts.
    Dict(Vec<(NodeId, NodeId)>),
    /// A class or function, by its name alone.
    Global(Box<Global>),
    /// What a call would give. Nothing was called.
    Call(Box<Call>),
    /// Something outside the pickle, by the name that its writer gave it: in a file of PyTorch, the bytes of a tensor.
    Persistent(NodeId),
}

/// A class or function, as the file names it. Python 2, and pickles below protocol 3, write `__builtin__` for `builtins` and
/// `copy_reg` for `copyreg`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Its module.
    pub module: Box<str>,
    /// Its name there.
    pub name: Box<str>,
}

/// An object that Python would make by a call, and what it would do to it then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What would be called: a [`Node::Global`] in all but strange files.
    pub callable: NodeId,
    /// With these arguments: a [`Node::Tuple`].
    pub arguments: NodeId,
    /// And these named ones, mostly none: a [`Node::Dict`] in all but strange files.
    pub keywords: Option<NodeId>,
    /// What would be given to the object's `__setstate__`, or become its attributes.
    pub state: Option<NodeId>,
    /// What would be appended: the object is something like a list, or a set.
    pub items: Vec<NodeId>,
    /// What would be set, `object[key] = value`: the object is something like a dict, such as an `OrderedDict`.
    pub pairs: Vec<(NodeId, NodeId)>,
}

impl Node {
    /// What it is, in words.
    pub fn kind(&self) -> &'static str {
        match self {
            Node::None => "None",
            Node::Bool(_) => "a bool",
            Node::Int(_) | Node::WideInt(_) => "an int",
            Node::Float(_) => "a float",
            Node::Text(_) | Node::OldString(_) => "a string",
            Node::Bytes(_) => "bytes",
            Node::ByteArray(_) => "a bytearray",
            Node::Tuple(_) => "a tuple",
            Node::List(_) => "a list",
            Node::Set(_) => "a set",
            Node::FrozenSet(_) => "a frozenset",
            Node::Dict(_) => "a dict",
            Node::Global(_) => "a class or function",
            Node::Call(_) => "an object",
            Node::Persistent(_) => "an object outside the pickle",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_nodes_are_32_mib() {
        assert_eq!(size_of::<Node>(), 32);
    }
}
