//! By what it is known that something has become of a run: sizes and times of its files, and who trains it.

use std::fs::{self, Metadata};
use std::path::Path;
use std::time::SystemTime;

use train::run::{Activity, RunReader};

use super::written;

/// Size and time of a file.
type Outside = (u64, Option<SystemTime>);

/// The outside of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signature {
    files: [Option<Outside>; 7],
    /// Its report, where one was written.
    report: Option<Outside>,
    /// Who trains it. A process that is killed changes no file.
    pub(super) activity: Option<Activity>,
    /// A file that is a link to somewhere else.
    leads_away: Option<String>,
}

impl Signature {
    /// Of a run as it is now.
    pub(super) fn of(run: &RunReader) -> Self {
        let paths = run.told_in();
        let leads_away = paths.iter().find(|path| leads_out_of(run.root(), path));
        let leads_away = leads_away.and_then(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned());
        // Nothing behind such a link is opened.
        let activity = if leads_away.is_none() { run.activity() } else { None };
        let outside = |about: Metadata| (about.len(), about.modified().ok());
        let files = paths.each_ref().map(|path| fs::symlink_metadata(path).ok().map(outside));
        Self { files, report: written::about(run.root()).map(outside), activity, leads_away }
    }

    /// Whether a report stands in its folder.
    pub(super) fn has_report(&self) -> bool {
        self.report.is_some()
    }

    /// An error where a file of the run is a link that leaves its folder: only what is there is shown.
    pub(super) fn is_contained(&self) -> Result<(), String> {
        match &self.leads_away {
            None => Ok(()),
            Some(name) => Err(format!("{name} is a link to a place outside the run, which is not followed")),
        }
    }
}

fn leads_out_of(root: &Path, path: &Path) -> bool {
    if !fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_symlink()) {
        return false;
    }
    match (path.canonicalize(), root.canonicalize()) {
        (Ok(target), Ok(root)) => !target.starts_with(root),
        _ => true,
    }
}
