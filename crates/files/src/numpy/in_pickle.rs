//! Numbers inside pickles: lists of Python's numbers, NumPy's scalars, and NumPy's arrays.
//!
//! An array in a pickle is a call of one of NumPy's functions with the shape, the type and the bytes. The functions are known
//! here by their names, and nothing is called.

use std::borrow::Cow;

use super::element::Element;
use crate::pickle::{Node, NodeId, Pickle};

/// The whole numbers of a list, a tuple or an array of one dimension, or a single one; none where it is anything else. `limit`
/// is the most numbers that are taken: a few objects of a pickle can stand for very many.
pub fn integers(pickle: &Pickle, id: NodeId, limit: usize) -> Option<Vec<i64>> {
    all(pickle, id, limit, integer, Element::integer)
}

/// The same of floats; whole numbers are taken as such.
pub fn floats(pickle: &Pickle, id: NodeId, limit: usize) -> Option<Vec<f64>> {
    all(pickle, id, limit, float, Element::float)
}

fn all<T>(
    pickle: &Pickle,
    id: NodeId,
    limit: usize,
    one: fn(&Pickle, NodeId) -> Option<T>,
    of_bytes: fn(&Element, &[u8]) -> Option<T>,
) -> Option<Vec<T>> {
    if let Some(items) = pickle.items(id) {
        return (items.len() <= limit).then(|| items.iter().map(|&item| one(pickle, item)).collect()).flatten();
    }
    if let Some((element, bytes)) = array(pickle, id) {
        let count = bytes.len() / element.size();
        return (count <= limit)
            .then(|| bytes.chunks(element.size()).map(|bytes| of_bytes(&element, bytes)).collect())
            .flatten();
    }
    (limit > 0).then(|| one(pickle, id).map(|value| vec![value])).flatten()
}

fn integer(pickle: &Pickle, id: NodeId) -> Option<i64> {
    pickle.int(id).or_else(|| {
        let (element, bytes) = scalar(pickle, id)?;
        element.integer(&bytes)
    })
}

fn float(pickle: &Pickle, id: NodeId) -> Option<f64> {
    match pickle.node(id) {
        Node::Float(value) => Some(*value),
        Node::Int(value) => Some(*value as f64),
        _ => {
            let (element, bytes) = scalar(pickle, id)?;
            element.float(&bytes)
        }
    }
}

/// Whether a module is where this version of NumPy, or an earlier one, has a function.
fn is_of(module: &str, place: &str) -> bool {
    ["numpy.core.", "numpy._core."].iter().any(|lead| module.strip_prefix(lead) == Some(place))
}

/// `scalar(dtype, bytes)`.
fn scalar(pickle: &Pickle, id: NodeId) -> Option<(Element, Cow<'_, [u8]>)> {
    match pickle.call(id)? {
        (module, "scalar", &[dtype, bytes]) if is_of(module, "multiarray") => {
            Some((element(pickle, dtype)?, pickle.bytes(bytes)?))
        }
        _ => None,
    }
}

/// The elements of an array of one dimension.
fn array(pickle: &Pickle, id: NodeId) -> Option<(Element, Cow<'_, [u8]>)> {
    let (shape, dtype, bytes) = match pickle.call(id)? {
        // Protocols below 5: made empty, and filled by its state (version, shape, dtype, is_fortran, bytes).
        (module, "_reconstruct", _) if is_of(module, "multiarray") => match *pickle.items(pickle.state(id)?)? {
            [_, shape, dtype, _, bytes] => (shape, dtype, bytes),
            _ => return None,
        },
        // Protocol 5: the bytes, which may be shared with others.
        (module, "_frombuffer", &[bytes, dtype, shape, _]) if is_of(module, "numeric") => (shape, dtype, bytes),
        _ => return None,
    };
    let (element, bytes) = (element(pickle, dtype)?, pickle.bytes(bytes)?);
    match *pickle.items(shape)? {
        [length] => {
            let length = usize::try_from(pickle.int(length)?).ok()?;
            (length.checked_mul(element.size())? == bytes.len()).then_some((element, bytes))
        }
        _ => None,
    }
}

/// `dtype('i8', False, True)` with the state (3, '<', ...), whose second part is the order of bytes.
fn element(pickle: &Pickle, id: NodeId) -> Option<Element> {
    match pickle.call(id)? {
        ("numpy", "dtype", &[name, ..]) => {
            let element = Element::of(pickle.text(name)?)?;
            match pickle.state(id) {
                None => Some(element),
                Some(state) => Some(element.ordered(pickle.text(*pickle.items(state)?.get(1)?)?)),
            }
        }
        _ => None,
    }
}
