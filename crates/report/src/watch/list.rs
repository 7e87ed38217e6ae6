//! The runs below a folder as rows, of which only those are read again whose files have changed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use train::run::RunReader;

use super::row::Row;
use super::signature::Signature;
use crate::account::name_of;
use crate::listing;

/// However many look at it, the files of runs are looked at this often, and new runs are looked for.
const BETWEEN_LOOKS: Duration = Duration::from_millis(900);
const BETWEEN_SEARCHES: Duration = Duration::from_secs(5);
/// What one look may take. What is left over comes next.
const LOOK: Duration = Duration::from_millis(300);

/// The runs of a folder.
#[derive(Debug)]
pub(super) struct List {
    folder: PathBuf,
    entries: Vec<Entry>,
    searched: Option<Instant>,
    looked: Option<Instant>,
    /// Where the next look begins.
    next: usize,
    is_behind: bool,
    version: u64,
    order: u64,
}

/// A run of the list.
#[derive(Debug)]
pub(super) struct Entry {
    /// What it is called: its path below the folder.
    pub(super) place: String,
    path: PathBuf,
    signature: Option<Signature>,
    /// What is shown of it; none where it was not looked at yet.
    pub(super) row: Option<Row>,
    /// The version of the list in which the row became what it is.
    pub(super) version: u64,
}

impl List {
    pub(super) fn of(folder: &Path) -> Self {
        let folder = folder.to_owned();
        Self {
            folder,
            entries: Vec::new(),
            searched: None,
            looked: None,
            next: 0,
            is_behind: false,
            version: 0,
            order: 0,
        }
    }

    /// Looks for runs and at their files, as far as that was not just done.
    pub(super) fn refresh(&mut self) {
        let is_fresh = |at: Option<Instant>, most: Duration| at.is_some_and(|at| at.elapsed() < most);
        if !is_fresh(self.searched, BETWEEN_SEARCHES) {
            self.search();
        }
        if !self.is_behind && is_fresh(self.looked, BETWEEN_LOOKS) {
            return;
        }
        let (begun, count) = (Instant::now(), self.entries.len());
        self.is_behind = false;
        for looked_at in 0..count {
            if begun.elapsed() > LOOK {
                self.next = (self.next + looked_at) % count;
                self.is_behind = true;
                break;
            }
            self.look_at((self.next + looked_at) % count);
        }
        self.looked = Some(Instant::now());
    }

    fn search(&mut self) {
        let mut known = std::mem::take(&mut self.entries).into_iter().peekable();
        let mut has_changed = false;
        for path in listing::folders(&self.folder) {
            // Both are in order of their paths.
            while known.next_if(|entry| entry.path < path).is_some() {
                has_changed = true;
            }
            let entry = known.next_if(|entry| entry.path == path).unwrap_or_else(|| {
                has_changed = true;
                Entry { place: self.place_of(&path), path, signature: None, row: None, version: 0 }
            });
            self.entries.push(entry);
        }
        if has_changed || known.next().is_some() {
            (self.version, self.next) = (self.version + 1, 0);
            self.order = self.version;
        }
        self.searched = Some(Instant::now());
    }

    fn place_of(&self, path: &Path) -> String {
        match path.strip_prefix(&self.folder) {
            Ok(below) if !below.as_os_str().is_empty() => text::shown(below).into_owned(),
            _ => name_of(path),
        }
    }

    fn look_at(&mut self, at: usize) {
        let entry = &mut self.entries[at];
        // One that is gone stays as it was until the next search.
        let Ok(run) = RunReader::open(&entry.path) else { return };
        let signature = Signature::of(&run);
        if entry.signature.as_ref() == Some(&signature) {
            return;
        }
        let row = Row::of(&run, &signature);
        entry.signature = Some(signature);
        if entry.row.as_ref() != Some(&row) {
            self.version += 1;
            entry.row = Some(row);
            entry.version = self.version;
        }
    }

    /// The runs, in order of their paths.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether a part of the runs is still to be looked at.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Changes whenever something in the list does.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The version in which runs were last added or removed.
    pub(super) fn order(&self) -> u64 {
        self.order
    }

    /// Where the run of a name is. A name that is not in the list leads nowhere, whatever is in it.
    pub(super) fn path_of(&mut self, place: &str) -> Option<PathBuf> {
        let found =
            |list: &Self| list.entries.iter().find(|entry| entry.place == place).map(|entry| entry.path.clone());
        found(self).or_else(|| {
            if self.searched.is_none_or(|searched| searched.elapsed() >= BETWEEN_LOOKS) {
                self.search();
            }
            found(self)
        })
    }
}
