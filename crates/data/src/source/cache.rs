//! Indexes kept from one start to the next, in a folder that is ours: nothing is ever written beside the user's data.
//!
//! An entry belongs to a list of files. It holds as long as their sizes and modification times do, and as long as the
//! parser that made it has not changed; otherwise it is made again, as is one that is damaged. The folder may be
//! deleted at any time.
//!
//! Two processes may build the same entry: everything is written under a temporary name and renamed, the last one wins,
//! and what either of them built serves both.

use super::ranges::RangeSource;
use super::unpacking::{Unpacking, write_whole};
use super::{Fingerprint, OpenError, Source, Table, parallel};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The environment variable that says where the cache is.
pub(super) const VARIABLE: &str = "DINO_VMF_CACHE";

/// What an entry starts with. The number changes with the layout of an entry.
const SIGNATURE: &[u8] = b"dino-vmf index 1\n";

/// The cache folder of a user.
pub(super) struct Cache {
    root: PathBuf,
}

/// What tells whether a file is still the one that was indexed.
#[derive(Serialize, Deserialize, PartialEq, Eq)]
struct Stamp {
    /// Its real path, only ever compared.
    path: Vec<u8>,
    /// The name it was asked for by, which is part of what its images are called.
    name: Vec<u8>,
    bytes: u64,
    /// Nanoseconds since 1970.
    modified: i128,
}

/// Where a file of a table is, so that an entry outlives a move of the cache and does not remember which link led to
/// the data.
#[derive(Clone, Copy, Serialize, Deserialize)]
enum Place {
    /// One of the files that were indexed, by number.
    Given(u64),
    /// One of the files that were unpacked, by number.
    Unpacked(u64),
}

#[derive(Serialize, Deserialize)]
struct Entry {
    kind: String,
    stamps: Vec<Stamp>,
    /// Sizes of the files that were unpacked.
    unpacked: Vec<u64>,
    places: Vec<Place>,
    table: Table,
}

impl Cache {
    /// This user's cache.
    pub(super) fn find() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let below_home = |folder: &str| std::env::home_dir().map(|home| home.join(folder));
        let general = if cfg!(target_os = "macos") {
            below_home("Library/Caches")
        } else if cfg!(windows) {
            set("LOCALAPPDATA")
        } else {
            // The XDG rules: a relative path is to be ignored.
            set("XDG_CACHE_HOME").filter(|path| path.is_absolute()).or_else(|| below_home(".cache"))
        };
        let general = general.filter(|path| path.is_absolute()).unwrap_or_else(std::env::temp_dir);
        Self { root: set(VARIABLE).unwrap_or_else(|| general.join("dino-vmf")) }
    }

    /// A cache in a folder, which need not exist yet.
    pub(super) fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// The table that `build` makes of these files: from the cache where neither they nor `kind`, the parser's name
    /// with a version number at its end, have changed; otherwise built now, and kept. A cache that cannot be written
    /// costs a remark and the speed of the next start, unless something has to be unpacked.
    pub(super) fn table(
        &self,
        kind: &str,
        files: &[PathBuf],
        build: impl FnOnce(&mut Unpacking) -> Result<Table, OpenError>,
    ) -> Result<Table, OpenError> {
        let stamps = stamps(files)?;
        let slot = slot(kind, &stamps);
        let path = self.root.join(format!("{slot}.index"));
        let mut unpacking = Unpacking::new(self.root.clone(), format!("{slot}-{}", version(&stamps)), slot);
        if let Some(table) = load(&path, kind, &stamps, files, &unpacking) {
            return Ok(table);
        }
        let mut table = build(&mut unpacking)?;
        if self::stamps(files)? != stamps {
            let path = files.first().cloned().unwrap_or_default();
            let problem = "changed while it was read. Start again when it is complete".to_owned();
            return Err(OpenError::Format { path, problem });
        }
        let given = files.iter().cloned().zip((0..).map(Place::Given));
        let known: HashMap<PathBuf, Place> = given.chain(unpacking.paths().zip((0..).map(Place::Unpacked))).collect();
        let places = table.files.iter().map(|file| known.get(file).copied()).collect::<Option<Vec<_>>>();
        let unpacked = unpacking.keep()?;
        // A table that names other files is not ours to keep.
        let Some(places) = places else { return Ok(table) };
        let entry = Entry { kind: kind.to_owned(), stamps, unpacked, places, table };
        let kept = save(&path, &entry);
        table = entry.table;
        match kept {
            Ok(()) => unpacking.remove_older(),
            Err(error) => table.remarks.push(format!(
                "the index could not be kept in {}: {error}. Every start will index the data again; {VARIABLE} names \
                 another folder for it",
                self.root.display()
            )),
        }
        Ok(table)
    }
}

/// Asks the system about every file.
fn stamps(files: &[PathBuf]) -> Result<Vec<Stamp>, OpenError> {
    let mut stamps: Vec<Option<io::Result<Stamp>>> = files.iter().map(|_| None).collect();
    parallel::for_each(&mut stamps, 1, |i, made| *made = Some(stamp(&files[i])));
    let named = |(made, file): (io::Result<Stamp>, &PathBuf)| {
        made.map_err(|source| OpenError::Io { path: file.clone(), source })
    };
    stamps.into_iter().flatten().zip(files).map(named).collect()
}

fn stamp(file: &Path) -> io::Result<Stamp> {
    let path = fs::canonicalize(file)?;
    let mut about = fs::metadata(&path)?;
    // Clocks of file systems tick. Once the tick of the last change is over, any later change has another time.
    if let Ok(age) = SystemTime::now().duration_since(about.modified()?) {
        let whole_seconds = nanoseconds(about.modified()?) % 1_000_000_000 == 0;
        let tick = Duration::from_millis(if whole_seconds { 2000 } else { 20 });
        if age < tick {
            std::thread::sleep(tick - age);
            about = fs::metadata(&path)?;
        }
    }
    Ok(Stamp {
        path: path.as_os_str().as_encoded_bytes().to_vec(),
        name: file.file_name().unwrap_or_default().as_encoded_bytes().to_vec(),
        bytes: about.len(),
        modified: nanoseconds(about.modified()?),
    })
}

/// Nanoseconds since 1970; negative before.
fn nanoseconds(time: SystemTime) -> i128 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => after.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    }
}

/// Which entry is for these files, whatever their state and the parser's version: the new one replaces the old.
fn slot(kind: &str, stamps: &[Stamp]) -> String {
    let mut hash = Fingerprint::new();
    hash.add(kind.trim_end_matches(|c: char| c.is_ascii_digit()).as_bytes());
    for stamp in stamps {
        hash.add(&stamp.path);
        hash.add(&stamp.name);
    }
    format!("{:016x}", hash.finish())
}

/// The state the files are in.
fn version(stamps: &[Stamp]) -> String {
    let mut hash = Fingerprint::new();
    for stamp in stamps {
        hash.add(&stamp.bytes.to_le_bytes());
        hash.add(&stamp.modified.to_le_bytes());
    }
    format!("{:016x}", hash.finish())
}

/// The table of an entry that is there, whole, and about these files as they are now.
fn load(path: &Path, kind: &str, stamps: &[Stamp], files: &[PathBuf], unpacking: &Unpacking) -> Option<Table> {
    let entry = entry(&fs::read(path).ok()?)?;
    let whole = |(i, bytes): (usize, &u64)| fs::metadata(unpacking.path(i)).is_ok_and(|m| m.len() == *bytes);
    if entry.kind != kind || entry.stamps != stamps || !entry.unpacked.iter().enumerate().all(whole) {
        return None;
    }
    table(entry, files, unpacking)
}

/// Reads an entry, where it is whole.
fn entry(bytes: &[u8]) -> Option<Entry> {
    let (checksum, payload) = bytes.strip_prefix(SIGNATURE)?.split_first_chunk::<4>()?;
    if checksum_of(payload) != *checksum {
        return None;
    }
    postcard::from_bytes(payload).ok()
}

/// The table of an entry, where all that it refers to is there.
fn table(entry: Entry, files: &[PathBuf], unpacking: &Unpacking) -> Option<Table> {
    let file = |place: &Place| match *place {
        Place::Given(i) => files.get(i as usize).cloned(),
        Place::Unpacked(i) => Some(unpacking.path(i as usize)),
    };
    let mut table = entry.table;
    table.files = entry.places.iter().map(file).collect::<Option<_>>()?;
    table.is_consistent().then_some(table)
}

/// Reads bytes as an entry, with and without what guards it against damage, and uses the table in all ways but reading
/// images. For fuzzing.
pub(super) fn read_bytes(bytes: &[u8]) {
    let files = [PathBuf::from("bytes")];
    let unpacking = Unpacking::new(PathBuf::new(), String::new(), String::new());
    for entry in [entry(bytes), postcard::from_bytes(bytes).ok()].into_iter().flatten() {
        if let Some(mut table) = table(entry, &files, &unpacking) {
            table.keep_files(0..1);
            let source = RangeSource::new("bytes".to_owned(), table);
            (0..source.len()).for_each(|index| _ = (source.name(index), source.label(index)));
            _ = (source.describe(), source.fingerprint());
        }
    }
}

fn save(path: &Path, entry: &Entry) -> io::Result<()> {
    let payload = postcard::to_stdvec(entry).map_err(io::Error::other)?;
    write_whole(path, &[SIGNATURE, &checksum_of(&payload), &payload])
}

fn checksum_of(bytes: &[u8]) -> [u8; 4] {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::ranges::{Content, Names};
    use super::*;
    use std::io::Write;

    /// A cache and a file to index, in a folder that goes when the test ends.
    struct Fixture {
        folder: PathBuf,
        file: PathBuf,
        cache: Cache,
    }

    impl Fixture {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("data-cache-{}-{name}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            let file = folder.join("data");
            fs::write(&file, b"0123456789").unwrap();
            Self { cache: Cache::at(folder.join("cache")), folder, file }
        }

        /// The remark of the table, which says who built it.
        fn built_by(&self, kind: &str, builder: &str) -> String {
            let build = |_: &mut Unpacking| Ok(table(vec![self.file.clone()], builder));
            self.cache.table(kind, std::slice::from_ref(&self.file), build).unwrap().remarks.remove(0)
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.folder);
        }
    }

    fn table(files: Vec<PathBuf>, remark: &str) -> Table {
        Table {
            files,
            content: Content::File,
            ranges: Vec::new(),
            names: Names::default(),
            labels: Vec::new(),
            class_names: Vec::new(),
            remarks: vec![remark.to_owned()],
        }
    }

    #[test]
    fn a_new_version_of_a_parser_replaces_the_entry_of_the_old() {
        let fixture = Fixture::new("version");
        assert_eq!(fixture.built_by("test 1", "first"), "first");
        assert_eq!(fixture.built_by("test 1", "second"), "first");
        assert_eq!(fixture.built_by("test 2", "third"), "third");
        assert_eq!(fixture.built_by("other 2", "fourth"), "fourth", "another parser has its own");
        assert_eq!(fs::read_dir(fixture.folder.join("cache")).unwrap().count(), 2);
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_an_error() {
        let fixture = Fixture::new("changes");
        let files = [fixture.file.clone()];
        let build = |_: &mut Unpacking| {
            fs::write(&fixture.file, b"more than before").unwrap();
            Ok(table(files.to_vec(), ""))
        };
        let error = fixture.cache.table("test 1", &files, build).unwrap_err().to_string();
        assert!(error.contains("changed while it was read"), "{error}");
    }

    #[test]
    fn a_build_that_fails_leaves_nothing_behind() {
        let fixture = Fixture::new("fails");
        let build = |unpacking: &mut Unpacking| {
            unpacking.expect_bytes(12_345);
            let (mut writer, _) = unpacking.create()?;
            writer.write_all(b"half").unwrap();
            unpacking.finish(writer)?;
            Err(unpacking.failed(io::ErrorKind::StorageFull.into()))
        };
        let error = fixture.cache.table("test 1", std::slice::from_ref(&fixture.file), build).unwrap_err().to_string();
        assert!(error.contains("after 4 bytes of about 12,345") && error.contains(VARIABLE), "{error}");
        assert_eq!(fs::read_dir(fixture.folder.join("cache")).unwrap().count(), 0);
    }
}
