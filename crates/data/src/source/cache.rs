//! The cache of indexes, in a folder of its own: nothing is ever written beside the user's data.
//!
//! An entry belongs to a list of files. It is valid while their [stamps](super::stamp) and the parser's version stay the
//! same; otherwise, or if it is damaged, it is rebuilt. An index has one checksum, verified when it is loaded; what was
//! unpacked has one for every [block](super::checksums), verified when it is read. Entries that were not used for three
//! months are removed. The folder may be deleted at any time.
//!
//! Two processes may build the same entry at once: files are written under temporary names and renamed, the last rename
//! wins, and either result is valid for both.

use super::checksums::BlockSums;
use super::gzip;
use super::preparing::Watch;
use super::ranges::{Content, RangeSource};
use super::shelf::Guard;
use super::stamp::{Stamp, look, slot, stamps, version};
use super::unpacking::{self, Unpacking};
use super::{OpenError, Source, Table};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use text::shown;

/// The environment variable that says where the cache is.
pub(super) use ::files::CACHE_VARIABLE as VARIABLE;

/// Magic bytes of an entry; the number is the version of its format.
const SIGNATURE: &[u8] = b"dino-vmf index 4\n";

/// What entries of every version start with.
const FAMILY: &[u8] = b"dino-vmf index ";

/// No index is larger: it would be one of a hundred million images.
const INDEX_BYTES: u64 = 16 << 30;

/// The cache folder of a user.
#[derive(Clone)]
pub(super) struct Cache {
    root: PathBuf,
    /// Who is told how far unpacking and indexing are.
    watch: Watch,
}

/// Where the plain content of a file is.
#[derive(Clone, Debug)]
pub(super) struct Plain {
    pub path: PathBuf,
    /// The checksums of a file that was unpacked into the cache; none for one of the user.
    pub sums: Option<Arc<BlockSums>>,
}

/// What the cache has of some files.
enum Kept {
    Tables(Vec<Table>),
    /// Nothing that is still valid.
    Nothing,
    /// Something that was valid until it was damaged.
    Damaged,
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
    /// Checksums of the files that were unpacked.
    unpacked: Vec<BlockSums>,
    /// The files of each table.
    places: Vec<Vec<Place>>,
    tables: Cow<'a, [Table]>,
}

impl Cache {
    /// This user's cache.
    pub(super) fn find() -> Self {
        Self::at(::files::cache_folder())
    }

    /// A cache in a folder, which need not exist yet.
    pub(super) fn at(root: PathBuf) -> Self {
        Self { root, watch: Watch::default() }
    }

    /// The same, with somebody who is told how far unpacking and indexing are.
    pub(super) fn watched_by(self, watch: Watch) -> Self {
        Self { watch, ..self }
    }

    /// Who is told.
    pub(super) fn watch(&self) -> &Watch {
        &self.watch
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
        let plain = || Ok(files.iter().map(|path| Plain { path: path.clone(), sums: None }).collect());
        let names: Vec<String> = files.iter().map(|file| file_name(file)).collect();
        let [table] = self.tables(kind, files, &names, plain, |_, unpacking| Ok([build(unpacking)?]))?;
        Ok(table)
    }

    /// As [`Cache::table`], for several tables at once, and for files that may have to be unpacked first: `plain` says
    /// where to read, in the files themselves or in what [`Cache::unpacked`] made of them. `names` are what the names of
    /// the files' images begin with.
    pub(super) fn tables<const N: usize>(
        &self,
        kind: &str,
        files: &[PathBuf],
        names: &[String],
        plain: impl FnOnce() -> Result<Vec<Plain>, OpenError>,
        build: impl FnOnce(&[Plain], &mut Unpacking) -> Result<[Table; N], OpenError>,
    ) -> Result<[Table; N], OpenError> {
        let looks = look(files, names)?;
        let slot = slot(kind, &looks);
        let path = self.root.join(format!("{slot}.index"));
        let found = read_entry(&path);
        let stamps = stamps(&looks, found.as_ref().map_or(&[], |entry| &entry.stamps))?;
        let plain = plain()?;
        // Unpacking may have taken hours, in which what was unpacked first was replaced.
        let check = || {
            if self::stamps(&look(files, names)?, &stamps)? == stamps {
                return Ok(());
            }
            let path = files.first().cloned().unwrap_or_default();
            let problem = "changed while it was read. Start again when it is complete".to_owned();
            Err(OpenError::Format { path, problem })
        };
        let stem = format!("{slot}-{}", version(kind, &stamps));
        let mut unpacking = Unpacking::new(self.root.clone(), stem, slot, self.watch.clone());
        let kept = load(&path, found, kind, &stamps, &plain, &unpacking);
        let was_damaged = matches!(kept, Kept::Damaged);
        if let Kept::Tables(tables) = kept
            && let Ok(tables) = tables.try_into()
        {
            if plain.iter().any(|plain| plain.sums.is_some()) {
                check()?;
            }
            return Ok(tables);
        }
        let mut tables = build(&plain, &mut unpacking)?;
        check()?;
        let given = plain.iter().map(|plain| plain.path.clone()).zip((0..).map(Place::Given));
        let known: HashMap<PathBuf, Place> = given.chain(unpacking.paths().zip((0..).map(Place::Unpacked))).collect();
        let places = |table: &Table| table.files.iter().map(|file| known.get(file).copied()).collect();
        let places = tables.iter().map(places).collect::<Option<Vec<Vec<Place>>>>();
        let unpacked = unpacking.keep()?;
        // A table that refers to other files cannot be cached: their changes would not be detected.
        let Some(places) = places else { return Ok(tables) };
        for (table, places) in tables.iter_mut().zip(&places) {
            table.guards = guards(places, &stamps, &plain, &unpacked).unwrap_or_default();
        }
        let (kind, stamps) = (Cow::Borrowed(kind), Cow::Owned(stamps));
        let saved = save(&path, &Entry { kind, stamps, unpacked, places, tables: Cow::Borrowed(&tables) });
        let mut remark = |text: String| tables.iter_mut().for_each(|table| table.remarks.push(text.clone()));
        if was_damaged {
            let first = files.first().map(|file| shown(file)).unwrap_or_default();
            remark(format!("what the cache kept of {first} was damaged, and was made again"));
        }
        match saved {
            Ok(()) => {
                unpacking.remove_older();
                unpacking::remove_unused(&self.root);
            }
            Err(error) => remark(format!(
                "the index could not be kept in {}: {error}. Every start will index the data again; {VARIABLE} names \
                 another folder for it",
                shown(&self.root)
            )),
        }
        Ok(tables)
    }

    /// The unpacked content of a gzip file. Every file has an entry of its own, so that one more shard does not unpack all
    /// others again.
    pub(super) fn unpacked(&self, file: &Path) -> Result<(Plain, Vec<String>), OpenError> {
        let table = self.table("gzip 1", &[file.to_path_buf()], |unpacking| {
            let place = gzip::unpack(file, unpacking)?;
            Ok(Table::of_files(vec![place], Content::File))
        })?;
        let sums = table.guards.into_iter().find_map(|guard| match guard {
            Guard::Unpacked(sums) => Some(sums),
            Guard::Given(_) => None,
        });
        let path = table.files.into_iter().next().unwrap_or_default();
        Ok((Plain { path, sums }, table.remarks))
    }
}

/// The name of a file as text.
fn file_name(path: &Path) -> String {
    text::escape_name(path.file_name().unwrap_or_default().as_encoded_bytes()).into_owned()
}

/// The entry at `path`. What stands in the place of one says whether it was damaged.
fn read_entry(path: &Path) -> Result<Entry<'static>, Kept> {
    let bytes = ::files::read_bounded(path, INDEX_BYTES).map_err(|_| Kept::Nothing)?;
    entry(&bytes).ok_or_else(|| {
        let is_of_another_version = bytes.starts_with(FAMILY) && !bytes.starts_with(SIGNATURE);
        if is_of_another_version { Kept::Nothing } else { Kept::Damaged }
    })
}

/// What the entry that was found at `path` holds, if it is intact and valid for these files.
fn load(
    path: &Path,
    found: Result<Entry, Kept>,
    kind: &str,
    stamps: &[Stamp],
    files: &[Plain],
    unpacking: &Unpacking,
) -> Kept {
    let entry = match found {
        Ok(entry) => entry,
        Err(kept) => return kept,
    };
    if entry.kind != kind || *entry.stamps != *stamps {
        return Kept::Nothing;
    }
    for (number, sums) in entry.unpacked.iter().enumerate() {
        match fs::metadata(unpacking.path(number)) {
            Ok(about) if about.len() == sums.bytes() => {}
            Ok(_) => return Kept::Damaged,
            // The user may delete what is in the cache at any time.
            Err(_) => return Kept::Nothing,
        }
    }
    // Marks the entry as used. Failing is harmless: a folder that cannot be written to is never cleaned up either.
    _ = File::options().append(true).open(path).and_then(|file| file.set_modified(SystemTime::now()));
    tables(entry, files, unpacking).map_or(Kept::Damaged, Kept::Tables)
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
fn tables(entry: Entry, files: &[Plain], unpacking: &Unpacking) -> Option<Vec<Table>> {
    let file = |place: &Place| match *place {
        Place::Given(i) => files.get(i as usize).map(|plain| plain.path.clone()),
        Place::Unpacked(i) => Some(unpacking.path(i as usize)),
    };
    let mut tables = entry.tables.into_owned();
    if entry.places.len() != tables.len() || !entry.unpacked.iter().all(BlockSums::is_consistent) {
        return None;
    }
    for (table, places) in tables.iter_mut().zip(&entry.places) {
        table.files = places.iter().map(file).collect::<Option<_>>()?;
        table.guards = guards(places, &entry.stamps, files, &entry.unpacked)?;
    }
    tables.iter().all(Table::is_consistent).then_some(tables)
}

/// How the files of a table are held to what was indexed.
fn guards(places: &[Place], stamps: &[Stamp], files: &[Plain], unpacked: &[BlockSums]) -> Option<Vec<Guard>> {
    let guard = |place: &Place| match *place {
        Place::Given(i) => match &files.get(i as usize)?.sums {
            Some(sums) => Some(Guard::Unpacked(sums.clone())),
            None => Some(Guard::Given(stamps.get(i as usize)?.identity())),
        },
        Place::Unpacked(i) => Some(Guard::Unpacked(Arc::new(unpacked.get(i as usize)?.clone()))),
    };
    places.iter().map(guard).collect()
}

/// Parses bytes as an entry, with and without checking its checksum, and calls everything on its tables but reading
/// images. For fuzzing.
pub(super) fn read_bytes(bytes: &[u8]) {
    let files = [Plain { path: PathBuf::from("bytes"), sums: None }];
    let unpacking = Unpacking::new(PathBuf::new(), String::new(), String::new(), Watch::default());
    for entry in [entry(bytes), postcard::from_bytes(bytes).ok()].into_iter().flatten() {
        for table in tables(entry, &files, &unpacking).into_iter().flatten() {
            let source = RangeSource::new("bytes".to_owned(), table, None);
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
        Table { remarks: vec![remark.to_owned()], ..Table::of_files(files, Content::File) }
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
    fn a_file_that_changes_while_it_is_unpacked_is_an_error_though_its_index_was_kept() {
        let fixture = Fixture::new("unpacked");
        let (files, names) = ([fixture.file.clone()], ["data".to_owned()]);
        let plain = || Ok(vec![Plain { path: fixture.file.clone(), sums: Some(Arc::default()) }]);
        let build = |_: &[Plain], _: &mut Unpacking| Ok([table(files.to_vec(), "")]);
        fixture.cache.tables("test 1", &files, &names, plain, build).unwrap();
        fixture
            .cache
            .tables("test 1", &files, &names, plain, |_, _| unreachable!("it is kept"))
            .unwrap_or_else(|error: OpenError| -> [Table; 1] { panic!("{error}") });
        let changing = || {
            fs::write(&fixture.file, b"9876543210").unwrap();
            plain()
        };
        let error = fixture.cache.tables("test 1", &files, &names, changing, build).unwrap_err().to_string();
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
