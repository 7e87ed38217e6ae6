//! What `torch.save` wrote before version 1.6, and still does when it is asked to: five pickles, one after another (a magic
//! number, a version, the machine, the object, the keys of its storages), then each storage: the number of its elements,
//! and these.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use files::pickle::{Limits, Pickle};

use super::super::error::WeightsError;
use super::super::file::{Packing, WeightsFile};
use super::damaged;
use super::storage::key_text;
use super::tensors::{self, Stored};

/// With which such a file begins.
const MAGIC: i128 = 0x1950_a86a_20f9_469c_fc6c;

pub(super) fn open(path: &Path, mut file: File, length: u64) -> Result<WeightsFile, WeightsError> {
    let io = |source| WeightsError::Io { path: path.to_owned(), source };
    file.seek(SeekFrom::Start(0)).map_err(io)?;
    let mut reader = BufReader::new(&mut file);
    let mut next = || Pickle::read(&mut reader, &Limits::default()).map_err(|error| damaged(path, error));
    let magic = next()?;
    if magic.wide_int(magic.root()) != Some(MAGIC) {
        return Err(WeightsError::OtherFormat { path: path.to_owned(), kind: "a pickle, but none of PyTorch" });
    }
    drop(magic);
    next()?;
    let machine = next()?;
    let is_little = machine.get(machine.root(), "little_endian").map(|id| machine.node(id).clone());
    if is_little == Some(files::pickle::Node::Bool(false)) {
        return Err(damaged(path, "its numbers are big-endian, which is not read"));
    }
    drop(machine);
    let object = next()?;
    let described = tensors::describe(&object).map_err(|reason| damaged(path, reason))?;
    drop(object);
    let keys = next()?;
    let listed = keys.items(keys.root()).unwrap_or(&[]).iter().map(|&id| key_text(&keys, id));
    let listed: Option<Vec<String>> = listed.collect();
    let listed = listed.ok_or_else(|| damaged(path, "the list of its storages is none"))?;

    let sizes: BTreeMap<&str, u64> =
        described.iter().map(|tensor| (tensor.storage.key.as_str(), tensor.storage.element.size)).collect();
    let mut at = reader.stream_position().map_err(io)?;
    let mut storages: BTreeMap<&str, Stored> = BTreeMap::new();
    for key in &listed {
        let mut count = [0; 8];
        reader.seek(SeekFrom::Start(at)).map_err(io)?;
        reader.read_exact(&mut count).map_err(|_| damaged(path, "it ends before its storages do"))?;
        let start = at + 8;
        // Without the size of its elements, what follows cannot be found.
        let size = sizes.get(key.as_str());
        let size =
            size.ok_or_else(|| damaged(path, format!("nothing says what storage {} holds", text::excerpt(key))))?;
        let end = u64::from_le_bytes(count).checked_mul(*size).and_then(|bytes| bytes.checked_add(start));
        let end = end.filter(|&end| end <= length);
        at = end.ok_or_else(|| damaged(path, format!("storage {} reaches beyond its end", text::excerpt(key))))?;
        storages.insert(key, Stored { bytes: start..at, crc32: None });
    }
    let located = described.iter().map(|tensor| {
        let stored = storages.get(tensor.storage.key.as_str());
        let absent = || format!("the storage of tensor `{}` is not there", text::excerpt(&tensor.name));
        tensor.located(stored.ok_or_else(absent)?)
    });
    let tensors = located.collect::<Result<_, _>>().map_err(|reason| damaged(path, reason))?;
    drop(reader);
    Ok(WeightsFile::new(path, Packing::LegacyTorch, vec![file], length, tensors, BTreeMap::new()))
}
