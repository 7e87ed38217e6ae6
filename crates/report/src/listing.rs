//! All runs below a folder, a row each.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use train::run::is_run;

use crate::account::{Account, ReportError};

/// Points of a number that a listing keeps of each run: enough for a line of small height.
const POINTS: usize = 32;
/// How deep runs are looked for: `studies/NAME/runs/RUN` is four.
const DEPTH: usize = 6;
/// Folders that are looked into at the most: a listing is no search of a disk.
const MOST_FOLDERS: usize = 20_000;

/// A run of a listing, or why it cannot be told of.
#[derive(Debug)]
pub struct Listed {
    /// Where it is, below the folder that was looked into.
    pub place: String,
    /// What there is to tell.
    pub account: Result<Account, ReportError>,
}

/// All runs below a folder, in order of their paths. Links are not followed, nor is anything looked for within a run.
pub fn runs(folder: &Path) -> Vec<Listed> {
    let listed = |path: PathBuf| {
        let place = path.strip_prefix(folder).unwrap_or(&path);
        let place = if place.as_os_str().is_empty() { &path } else { place };
        let place = text::escape_name(place.as_os_str().as_encoded_bytes()).into_owned();
        Listed { place, account: Account::of(&path, POINTS) }
    };
    folders(folder).into_iter().map(listed).collect()
}

/// Where they are, in the same order.
pub(crate) fn folders(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), MOST_FOLDERS);
    find(folder, DEPTH, &mut left, &mut found);
    found.sort();
    found
}

fn find(folder: &Path, depth: usize, left: &mut usize, found: &mut Vec<PathBuf>) {
    if is_run(folder) {
        found.push(folder.to_owned());
        return;
    }
    let Some(depth) = depth.checked_sub(1) else { return };
    // What cannot be listed holds no run that could be told of.
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if *left == 0 {
            return;
        }
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder {
            *left -= 1;
            find(&entry.path(), depth, left, found);
        }
    }
}

impl Listed {
    /// For programs.
    pub fn to_json(&self) -> Value {
        match &self.account {
            Err(error) => json!({ "run": self.place, "state": "unreadable", "problem": error.to_string() }),
            Ok(run) => {
                let last = |key: &str| run.history.column(key).and_then(|column| column.last());
                json!({
                    "run": self.place, "path": text::shown(&run.path), "state": run.state.word(), "method": run.method(),
                    "arch": run.recipe.arch().to_string(), "data": run.recipe.source(), "images": run.recipe.facts().images,
                    "epochs": run.recipe.epochs(), "step": run.step, "total_steps": run.recipe.total_steps(),
                    "loss": last("loss"), "knn_top1": run.knn(), "images_per_second": last("images_per_second"),
                    "verdict": run.verdict.words, "tone": run.verdict.tone.word(),
                })
            }
        }
    }
}
