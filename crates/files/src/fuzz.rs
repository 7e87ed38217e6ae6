//! Parsers of untrusted bytes, for a fuzzer to call. Each has to come back, whatever the bytes are, without a panic and
//! without taking much more memory than they have.

use std::io::Cursor;

use crate::numpy;
use crate::pickle::{Limits, Pickle};
use crate::zip::Archive;

/// What is looked at of pickles that follow each other.
const PICKLES: usize = 8;

/// What is looked at of the nodes of a pickle. Each may lead to all others.
const NODES: usize = 500;

/// Pickles, one behind the other, and every short way to what is in them.
pub fn pickle(bytes: &[u8]) {
    let mut rest = bytes;
    for _ in 0..PICKLES {
        let before = rest.len();
        let pickle = match Pickle::read(&mut rest, &Limits::default()) {
            Ok(pickle) => pickle,
            Err(error) => {
                assert!(error.at <= before as u64, "{error}");
                return;
            }
        };
        assert_eq!(pickle.length(), (before - rest.len()) as u64, "what was taken, and what it says");
        for (id, _) in pickle.nodes().take(NODES) {
            _ = (pickle.text(id), pickle.int(id), pickle.wide_int(id), pickle.bytes(id), pickle.items(id));
            _ = (pickle.pairs(id), pickle.get(id, "state_dict"), pickle.call(id), pickle.state(id));
            let (whole, any) = (numpy::integers(&pickle, id, NODES), numpy::floats(&pickle, id, NODES));
            assert!(whole.is_none_or(|whole| any.is_some_and(|any| any.len() == whole.len())));
        }
    }
}

/// The directory of a zip archive, and the places of its entries, which lie within the file and apart from each other.
pub fn zip(bytes: &[u8]) {
    let mut file = Cursor::new(bytes);
    let Ok(archive) = Archive::read(&mut file, bytes.len() as u64).map_err(|error| error.to_string()) else { return };
    let mut places = Vec::new();
    for entry in archive.entries() {
        assert_eq!(archive.entry(&entry.name), Some(entry));
        if let Ok(place) = archive.place(&mut file, entry).map_err(|error| error.to_string()) {
            assert_eq!(place.end - place.start, entry.size);
            places.push(place);
        }
    }
    places.sort_unstable_by_key(|place| place.start);
    assert!(places.is_sorted_by(|one, next| one.end <= next.start), "two entries share bytes");
    assert!(places.last().is_none_or(|last| last.end <= bytes.len() as u64), "an entry reaches out of the file");
}
