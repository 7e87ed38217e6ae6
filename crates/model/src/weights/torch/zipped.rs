//! A zip archive of `torch.save`: `NAME/data.pkl`, and a storage in each `NAME/data/KEY`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use files::pickle::{Limits, Pickle};
use files::zip::{Archive, Entry};

use super::super::error::WeightsError;
use super::super::file::{Packing, WeightsFile};
use super::damaged;
use super::tensors::{self, Stored};

const PICKLE: &str = "data.pkl";

pub(super) fn open(path: &Path, mut file: File, length: u64) -> Result<WeightsFile, WeightsError> {
    let archive = Archive::read(&mut file, length).map_err(|error| damaged(path, error))?;
    // The archive may hold other pickles in deeper folders.
    let folder = |entry: &Entry| entry.name.strip_suffix(PICKLE).map(str::to_owned);
    let folders = archive.entries().iter().filter_map(folder).filter(|name| name.is_empty() || name.ends_with('/'));
    let Some(folder) = folders.min_by_key(String::len) else {
        return Err(WeightsError::OtherFormat { path: path.to_owned(), kind: "a zip archive, but none of PyTorch" });
    };
    let mut place = |name: &str| -> Result<Option<(Stored, u64)>, WeightsError> {
        let Some(entry) = archive.entry(name) else { return Ok(None) };
        let bytes = archive.place(&mut file, entry).map_err(|error| damaged(path, error))?;
        Ok(Some((Stored { bytes, crc32: entry.crc32 }, entry.size)))
    };
    let order = place(&format!("{folder}byteorder"))?;
    let described = place(&format!("{folder}{PICKLE}"))?;
    let io = |source| WeightsError::Io { path: path.to_owned(), source };
    if let Some((order, _)) = order {
        let mut said = String::new();
        file.seek(SeekFrom::Start(order.bytes.start)).map_err(io)?;
        (&mut file).take(16.min(order.bytes.end - order.bytes.start)).read_to_string(&mut said).map_err(io)?;
        if said.trim() != "little" {
            return Err(damaged(
                path,
                format!("its numbers are {}-endian, which is not read", text::excerpt(said.trim())),
            ));
        }
    }
    let Some((described, size)) = described else { return Err(damaged(path, "it has no data.pkl")) };
    file.seek(SeekFrom::Start(described.bytes.start)).map_err(io)?;
    let mut pickle = BufReader::new((&mut file).take(size));
    let pickle = Pickle::read(&mut pickle, &Limits::default()).map_err(|error| damaged(path, error))?;
    let described = tensors::describe(&pickle).map_err(|reason| damaged(path, reason))?;
    drop(pickle);

    let mut storages: BTreeMap<&str, Stored> = BTreeMap::new();
    for key in tensors::keys(&described) {
        let name = format!("{folder}data/{key}");
        let entry = archive.entry(&name).ok_or_else(|| damaged(path, format!("it has no {}", text::excerpt(&name))))?;
        let bytes = archive.place(&mut file, entry).map_err(|error| damaged(path, error))?;
        storages.insert(key, Stored { bytes, crc32: entry.crc32 });
    }
    let located = described.iter().map(|tensor| tensor.located(&storages[tensor.storage.key.as_str()]));
    let tensors = located.collect::<Result<_, _>>().map_err(|reason| damaged(path, reason))?;
    Ok(WeightsFile::new(path, Packing::Torch, vec![file], length, tensors, BTreeMap::new()))
}
