//! Parsers of untrusted bytes, for a fuzzer to call. Each has to come back, whatever the bytes are, without a panic and
//! without taking much more memory than they have.

use std::io::Cursor;

use crate::csv::Records;
use crate::numpy::{self, NpyFile};
use crate::parquet::TableReader;
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

/// An array, as whole numbers or as floats: as many as its shape says, and no more bytes than there are.
pub fn npy(bytes: &[u8]) {
    let open = || NpyFile::read(bytes, bytes.len() as u64).map_err(|error| error.to_string());
    let Ok(file) = open() else { return };
    let count: usize = file.shape().iter().product();
    assert!(count <= bytes.len(), "{count} elements in {} bytes", bytes.len());
    let (whole, floats) = (file.integers(), open().map(NpyFile::floats));
    assert!(whole.is_err() || matches!(floats, Ok(Err(_))), "both whole numbers and floats");
    assert!(whole.is_err() || whole.is_ok_and(|whole| whole.len() == count));
    assert!(!matches!(floats, Ok(Ok(floats)) if floats.len() != count));
}

/// The records of a table as text.
pub fn csv(bytes: &[u8]) {
    const LIMIT: u64 = 1 << 16;
    let (mut records, mut fields) = (Records::new(bytes, LIMIT), Vec::new());
    while records.next(&mut fields).map_err(|error| error.to_string()).is_ok_and(|there| there) {
        assert!(!fields.is_empty() && fields.iter().map(String::len).sum::<usize>() as u64 <= LIMIT);
    }
}

/// A table of features: a list of floats, a number and a text in each row.
pub fn table(bytes: &[u8]) {
    let Ok(mut table) = TableReader::read(Cursor::new(bytes), bytes.len() as u64).map_err(|error| error.to_string())
    else {
        return;
    };
    let Ok((width, values)) = table.floats("feature").map_err(|error| error.to_string()) else { return };
    assert!(4 * values.len() <= bytes.len() && (values.is_empty() || values.len().is_multiple_of(width)));
    let rows = values.len() / width.max(1);
    _ = table.integers("label", rows).map_err(|error| error.to_string());
    _ = table.texts("name", rows).map_err(|error| error.to_string());
}
