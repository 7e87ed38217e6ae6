//! The files that ranges are read from: kept open, held to what was indexed, and made again when the cache is damaged.

use super::checksums::{self, BlockSums, Verified};
use super::ranges::{Range, Table};
use super::stamp::Identity;
use super::{OpenError, read_at};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use text::shown;

/// Files that one source keeps open.
const KEPT_OPEN: usize = 128;

/// How a file is held to what was indexed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// A file of the user, as it was then.
    Given(Identity),
    /// A file of the cache, with its checksums.
    Unpacked(Arc<BlockSums>),
}

impl Guard {
    fn inode(&self) -> u64 {
        match self {
            Guard::Given(identity) => identity.inode(),
            Guard::Unpacked(_) => 0,
        }
    }
}

/// Makes the table of a source again, from the user's files.
pub(super) type Remake = Box<dyn Fn() -> Result<Table, OpenError> + Send + Sync>;

/// The files of a source.
pub(super) struct Shelf {
    current: RwLock<Arc<Files>>,
    remake: Option<Remake>,
    /// Files that were made again: once each, because a disk that damages one twice will do it a third time.
    remade: Mutex<HashSet<PathBuf>>,
    news: Mutex<Vec<String>>,
}

/// One generation of files.
struct Files {
    paths: Vec<PathBuf>,
    guards: Vec<Guard>,
    /// By file, which blocks have been verified; none for a file of the user.
    verified: Vec<Option<Verified>>,
    /// The first files, kept open once they have been read from: that these are removed or replaced does not disturb a
    /// run. The others are opened each time, because a process may hold only so many.
    open: Vec<OnceLock<File>>,
    /// By file, the inode under which its content was accepted; at first the one it was indexed with.
    accepted: Vec<AtomicU64>,
}

impl Shelf {
    /// The files of a table. `remake` makes it again where files of the cache turn out to be damaged.
    pub(super) fn new(table: &Table, remake: Option<Remake>) -> Self {
        Self {
            current: RwLock::new(Arc::new(Files::new(table))),
            remake,
            remade: Mutex::default(),
            news: Mutex::default(),
        }
    }

    /// Reads a range of a table into memory that is used again.
    pub(super) fn read(&self, table: &Table, range: &Range, bytes: &mut Vec<u8>) -> io::Result<()> {
        let files = self.current();
        match files.read(range, bytes) {
            Err(error) if files.is_unpacked(range) && checksums::is_damage(&error) => {
                self.mend(&files, table, range, bytes)?;
                self.current().read(range, bytes)
            }
            other => other,
        }
    }

    /// What has happened since this was asked last, for people.
    pub(super) fn take_news(&self) -> Vec<String> {
        std::mem::take(&mut self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn current(&self) -> Arc<Files> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn put(&self, files: Files) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(files);
    }

    /// Replaces a damaged file of the cache, in which `range` lies.
    fn mend(&self, files: &Arc<Files>, table: &Table, range: &Range, scratch: &mut Vec<u8>) -> io::Result<()> {
        let mut remade = self.remade.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(files, &self.current()) {
            // Another thread has done it while this one waited.
            return Ok(());
        }
        let again = files.again();
        if again.read(range, scratch).is_ok() {
            // Another process has done it.
            self.put(again);
            return Ok(());
        }
        let path = &files.paths[range.file as usize];
        let failed = |why: String| io::Error::other(format!("{} in the cache is damaged, {why}", shown(path)));
        let Some(remake) = &self.remake else { return Err(failed("and cannot be made again".to_owned())) };
        if remade.contains(path) {
            return Err(failed("for the second time. Is the disk failing? Check it, or use another".to_owned()));
        }
        // Where it cannot be removed, making it again says why.
        _ = fs::remove_file(path);
        let new = remake().map_err(|error| failed(format!("and cannot be made again: {error}")))?;
        // Names and places alone prove little: another archive of the same layout has the same.
        let is_same = (&new.ranges, &new.names, &new.labels) == (&table.ranges, &table.names, &table.labels);
        if !is_same || !have_same_content(&new.guards, &files.guards) {
            return Err(failed("and the data it was made from has changed. Start again".to_owned()));
        }
        self.put(Files::new(&new));
        // Only now: what failed for another reason, such as a full disk, may be tried again.
        remade.insert(path.clone());
        let said = format!("{} in the cache was damaged, and was made again", shown(path));
        self.news.lock().unwrap_or_else(PoisonError::into_inner).push(said);
        Ok(())
    }
}

/// Whether what was unpacked now is what was unpacked then. Files of the user are held to what they were when they are
/// read.
fn have_same_content(now: &[Guard], then: &[Guard]) -> bool {
    let is_same = |pair: (&Guard, &Guard)| match pair {
        (Guard::Unpacked(now), Guard::Unpacked(then)) => now == then,
        (Guard::Given(_), Guard::Given(_)) => true,
        _ => false,
    };
    now.len() == then.len() && now.iter().zip(then).all(is_same)
}

impl Files {
    fn new(table: &Table) -> Self {
        Self::of(table.files.clone(), table.guards.clone())
    }

    /// The same files, opened afresh and with nothing verified.
    fn again(&self) -> Self {
        Self::of(self.paths.clone(), self.guards.clone())
    }

    fn of(paths: Vec<PathBuf>, guards: Vec<Guard>) -> Self {
        let verified = |guard: &Guard| match guard {
            Guard::Given(_) => None,
            Guard::Unpacked(sums) => Some(Verified::new(sums.clone())),
        };
        let verified = guards.iter().map(verified).collect();
        let open = paths.iter().take(KEPT_OPEN).map(|_| OnceLock::new()).collect();
        let accepted = guards.iter().map(Guard::inode).map(AtomicU64::new).collect();
        Self { paths, guards, verified, open, accepted }
    }

    fn is_unpacked(&self, range: &Range) -> bool {
        matches!(self.guards.get(range.file as usize), Some(Guard::Unpacked(_)))
    }

    fn read(&self, range: &Range, bytes: &mut Vec<u8>) -> io::Result<()> {
        let number = range.file as usize;
        let path = &self.paths[number];
        let Some(slot) = self.open.get(number) else { return self.read_from(&File::open(path)?, range, bytes) };
        if let Some(file) = slot.get() {
            return self.read_from(file, range, bytes);
        }
        let file = File::open(path)?;
        self.read_from(slot.get_or_init(|| file), range, bytes)
    }

    fn read_from(&self, file: &File, range: &Range, bytes: &mut Vec<u8>) -> io::Result<()> {
        let number = range.file as usize;
        if let Some(Some(verified)) = self.verified.get(number) {
            return verified.read(file, range.offset, range.bytes, bytes);
        }
        let about = file.metadata()?;
        if let (Some(Guard::Given(identity)), Some(accepted)) = (self.guards.get(number), self.accepted.get(number))
            && !identity.is_still(file, &about, accepted)?
        {
            let problem = format!("{} has changed since it was indexed. Start again", shown(&self.paths[number]));
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        // Before memory is taken: a damaged archive may announce anything.
        let missing = range.offset.saturating_add(range.bytes).saturating_sub(about.len());
        if missing > 0 {
            let problem = format!("{} ends {missing} bytes too early", shown(&self.paths[number]));
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
        }
        // Without clearing it first: what is about to be overwritten need not be zero.
        bytes.resize(range.bytes as usize, 0);
        read_at::fill(file, bytes, range.offset)
    }
}
