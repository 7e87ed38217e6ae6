//! The cache of indexes, in a folder of its own: nothing is ever written beside the user's data.
//!
//! An entry belongs to a list of files. It is valid while their sizes and modification times and the parser's version
//! stay the same; otherwise, or if it is damaged, it is rebuilt. Entries that were not used for three months are removed.
//! The folder may be deleted at any time.
//!
//! Two processes may build the same entry at once: files are written under temporary names and renamed, the last rename
//! wins, and either result is valid for both.

use super::gzip;
use super::ranges::{Content, Names, RangeSource};
use super::stamp::{Stamp, slot, stamps, version};
use super::unpacking::{self, Unpacking};
use super::{OpenError, Source, Table};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The environment variable that says where the cache is.
pub(super) use ::files::CACHE_VARIABLE as VARIABLE;

/// Magic bytes of an entry; the number is the version of its format.
const SIGNATURE: &[u8] = b"dino-vmf index 2\n";

/// The cache folder of a user.
pub(super) struct Cache {
    root: PathBuf,
}

/// A file of a table, by number rather than path: an entry stays valid when the cache folder moves or the data is
/// reached through another link.
#[derive(Clone, Copy, Serialize, Deserialize)]
enum Place {
    /// One of the indexed files, or the file unpacked from it in an entry of its own, by number.
    Given(u64),
    /// One of the files unpacked for this entry, by number.
    Unpacked(u64),
}

#[derive(Serialize, Deserialize)]
struct Entry<'a> {
    kind: Cow<'a, str>,
    stamps: Cow<'a, [Stamp]>,
    /// Sizes of the files that were unpacked.
    unpacked: Vec<u64>,
    /// The files of each table.
    places: Vec<Vec<Place>>,
    tables: Cow<'a, [Table]>,
}

impl Cache {
    /// This user's cache.
    pub(super) fn find() -> Self {
        Self { root: ::files::cache_folder() }
    }

    /// A cache in a folder, which need not exist yet.
    pub(super) fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// The table of these files: from the cache, if neither they nor `kind`, the parser's name and version, have
    /// changed; otherwise the result of `build`, which is then cached. A cache that cannot be written is a remark, not an
    /// error, unless something has to be unpacked.
    pub(super) fn table(
        &self,
        kind: &str,
        files: &[PathBuf],
        build: impl FnOnce(&mut Unpacking) -> Result<Table, OpenError>,
    ) -> Result<Table, OpenError> {
        let [table] = self.tables(kind, files, || Ok(files.to_vec()), |_, unpacking| Ok([build(unpacking)?]))?;
        Ok(table)
    }

    /// As [`Cache::table`], for several tables at once, and for files that may have to be unpacked first: `plain` gives the
    /// paths to read from, those of the files themselves or of what [`Cache::unpacked`] made of them.
    pub(super) fn tables<const N: usize>(
        &self,
        kind: &str,
        files: &[PathBuf],
        plain: impl FnOnce() -> Result<Vec<PathBuf>, OpenError>,
        build: impl FnOnce(&[PathBuf], &mut Unpacking) -> Result<[Table; N], OpenError>,
    ) -> Result<[Table; N], OpenError> {
        let stamps = stamps(files)?;
        let plain = plain()?;
        let slot = slot(kind, &stamps);
        let path = self.root.join(format!("{slot}.index"));
        let mut unpacking = Unpacking::new(self.root.clone(), format!("{slot}-{}", version(kind, &stamps)), slot);
        if let Some(tables) = load(&path, kind, &stamps, &plain, &unpacking).and_then(|tables| tables.try_into().ok()) {
            return Ok(tables);
        }
        let mut tables = build(&plain, &mut unpacking)?;
        if self::stamps(files)? != stamps {
            let path = files.first().cloned().unwrap_or_default();
            let problem = "changed while it was read. Start again when it is complete".to_owned();
            return Err(OpenError::Format { path, problem });
        }
        let given = plain.into_iter().zip((0..).map(Place::Given));
        let known: HashMap<PathBuf, Place> = given.chain(unpacking.paths().zip((0..).map(Place::Unpacked))).collect();
        let places = |table: &Table| table.files.iter().map(|file| known.get(file).copied()).collect();
        let places = tables.iter().map(places).collect::<Option<Vec<Vec<Place>>>>();
        let unpacked = unpacking.keep()?;
        // A table that refers to other files cannot be cached: their changes would not be detected.
        let Some(places) = places else { return Ok(tables) };
        let (kind, stamps) = (Cow::Borrowed(kind), Cow::Owned(stamps));
        match save(&path, &Entry { kind, stamps, unpacked, places, tables: Cow::Borrowed(&tables) }) {
            Ok(()) => {
                unpacking.remove_older();
                unpacking::remove_unused(&self.root);
            }
            Err(error) => tables.iter_mut().for_each(|table| {
                table.remarks.push(format!(
                    "the index could not be kept in {}: {error}. Every start will index the data again; {VARIABLE} \
                     names another folder for it",
                    self.root.display()
                ));
            }),
        }
        Ok(tables)
    }

    /// The path of the unpacked content of a gzip file. Every file has an entry of its own, so that one more shard does not
    /// unpack all others again.
    pub(super) fn unpacked(&self, file: &Path) -> Result<PathBuf, OpenError> {
        let table = self.table("gzip 1", &[file.to_path_buf()], |unpacking| {
            let place = gzip::unpack(file, unpacking)?;
            let (ranges, names, labels) = (Vec::new(), Names::default(), Vec::new());
            let (class_names, remarks) = (Vec::new(), Vec::new());
            Ok(Table { files: vec![place], content: Content::File, ranges, names, labels, class_names, remarks })
        })?;
        Ok(table.files.into_iter().next().unwrap_or_default())
    }
}

/// The tables of the entry at `path`, if it is intact and valid for these files.
fn load(path: &Path, kind: &str, stamps: &[Stamp], files: &[PathBuf], unpacking: &Unpacking) -> Option<Vec<Table>> {
    let entry = entry(&fs::read(path).ok()?)?;
    let whole = |(i, bytes): (usize, &u64)| fs::metadata(unpacking.path(i)).is_ok_and(|m| m.len() == *bytes);
    if entry.kind != kind || *entry.stamps != *stamps || !entry.unpacked.iter().enumerate().all(whole) {
        return None;
    }
    // Marks the entry as used. Failing is harmless: a folder that cannot be written to is never cleaned up either.
    _ = File::options().append(true).open(path).and_then(|file| file.set_modified(SystemTime::now()));
    tables(entry, files, unpacking)
}

/// Parses an entry; none if its checksum is wrong.
fn entry(bytes: &[u8]) -> Option<Entry<'static>> {
    let (checksum, payload) = bytes.strip_prefix(SIGNATURE)?.split_first_chunk::<4>()?;
    if checksum_of(payload) != *checksum {
        return None;
    }
    postcard::from_bytes(payload).ok()
}

/// The tables of an entry; none if a reference in them is out of range.
fn tables(entry: Entry, files: &[PathBuf], unpacking: &Unpacking) -> Option<Vec<Table>> {
    let file = |place: &Place| match *place {
        Place::Given(i) => files.get(i as usize).cloned(),
        Place::Unpacked(i) => Some(unpacking.path(i as usize)),
    };
    let mut tables = entry.tables.into_owned();
    if entry.places.len() != tables.len() {
        return None;
    }
    for (table, places) in tables.iter_mut().zip(&entry.places) {
        table.files = places.iter().map(file).collect::<Option<_>>()?;
    }
    tables.iter().all(Table::is_consistent).then_some(tables)
}

/// Parses bytes as an entry, with and without checking its checksum, and calls everything on its tables but reading
/// images. For fuzzing.
pub(super) fn read_bytes(bytes: &[u8]) {
    let files = [PathBuf::from("bytes")];
    let unpacking = Unpacking::new(PathBuf::new(), String::new(), String::new());
    for entry in [entry(bytes), postcard::from_bytes(bytes).ok()].into_iter().flatten() {
        for table in tables(entry, &files, &unpacking).into_iter().flatten() {
            let source = RangeSource::new("bytes".to_owned(), table);
            (0..source.len()).for_each(|index| _ = (source.name(index), source.label(index)));
            _ = (source.describe(), source.fingerprint());
        }
    }
}

fn save(path: &Path, entry: &Entry) -> io::Result<()> {
    let payload = postcard::to_stdvec(entry).map_err(io::Error::other)?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    ::files::replace(path, |file| {
        [SIGNATURE, &checksum_of(&payload), &payload].iter().try_for_each(|part| file.write_all(part))
    })
}

fn checksum_of(bytes: &[u8]) -> [u8; 4] {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

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
