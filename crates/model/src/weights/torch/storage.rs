//! The storage of a tensor: what a pickle says of the bytes that it does not hold itself.

use files::pickle::{Node, NodeId, Pickle};

use super::super::values::Element;

/// A storage as a pickle names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StorageId {
    /// Its key among the storages of the file.
    pub key: String,
    /// Type of its elements.
    pub element: Kind,
    /// Elements that it is said to have.
    pub count: u64,
    /// Elements of the storage before this one, where it is a part of another (in old files).
    pub first: u64,
}

/// The type of elements, and their size in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub element: Element,
    pub size: u64,
}

impl Kind {
    /// By the name of a class of storages, or of a type of elements; none of one that is not known here.
    fn of_name(name: &str) -> Option<Self> {
        let other = |name: &str| Element::Other(name.to_owned());
        let (element, size) = match name {
            "FloatStorage" | "float32" => (Element::F32, 4),
            "DoubleStorage" | "float64" => (Element::F64, 8),
            "HalfStorage" | "float16" => (Element::F16, 2),
            "BFloat16Storage" | "bfloat16" => (Element::Bf16, 2),
            "LongStorage" | "int64" => (other("I64"), 8),
            "IntStorage" | "int32" => (other("I32"), 4),
            "ShortStorage" | "int16" => (other("I16"), 2),
            "CharStorage" | "int8" => (other("I8"), 1),
            "ByteStorage" | "uint8" | "UntypedStorage" => (other("U8"), 1),
            "BoolStorage" | "bool" => (other("BOOL"), 1),
            _ => return None,
        };
        Some(Self { element, size })
    }

    /// By a class or a type in a pickle.
    pub fn of(pickle: &Pickle, id: NodeId) -> Option<Self> {
        let (module, name) = pickle.global(id)?;
        // `torch`, `torch.cuda`, `torch.storage`.
        (module == "torch" || module.starts_with("torch.")).then(|| Self::of_name(name))?
    }
}

impl StorageId {
    /// The storage that a node stands for.
    pub fn of(pickle: &Pickle, id: NodeId) -> Option<Self> {
        let Node::Persistent(id) = pickle.node(id) else { return None };
        let items = pickle.items(*id)?;
        let [kind, class, key, _device, count, rest @ ..] = items else { return None };
        if pickle.text(*kind)? != "storage" {
            return None;
        }
        let first = match rest.first().filter(|id| !pickle.is_none(**id)) {
            None => 0,
            // A view in an old file: its own key, where it begins and how long it is.
            Some(&view) => u64::try_from(pickle.int(*pickle.items(view)?.get(1)?)?).ok()?,
        };
        let count = u64::try_from(pickle.int(*count)?).ok()?;
        Some(Self { key: key_text(pickle, *key)?, element: Kind::of(pickle, *class)?, count, first })
    }
}

/// A key, which in old files may be a number.
pub(super) fn key_text(pickle: &Pickle, id: NodeId) -> Option<String> {
    pickle.text(id).map(str::to_owned).or_else(|| Some(pickle.int(id)?.to_string()))
}
