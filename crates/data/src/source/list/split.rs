//! Lists in a folder that are named after their split: `train.tsv` and `val.tsv`.

use super::super::parts::Part;
use super::super::{OpenError, Split};
use super::{EXTENSIONS, ListSource};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use text::{count, excerpt, shown};

/// The lists of a folder.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct SplitLists {
    folder: PathBuf,
    pub train: PathBuf,
    test: Option<PathBuf>,
    /// Lists that are named after a split as well and are not used.
    unused: Vec<PathBuf>,
}

/// The lists in a folder that are named after splits; none without one for training.
pub(in super::super) fn in_folder(folder: &Path) -> Result<Option<SplitLists>, OpenError> {
    let refused = |source| OpenError::Io { path: folder.to_path_buf(), source };
    let mut found: Vec<(Part, usize, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder).map_err(refused)? {
        let path = entry.map_err(refused)?.path();
        let text = |part: Option<&OsStr>| part.and_then(OsStr::to_str).map(str::to_lowercase).unwrap_or_default();
        let extension = text(path.extension());
        let place = EXTENSIONS.iter().position(|known| *known == extension);
        if let (Some(place), Some(part)) = (place, Part::of_word(&text(path.file_stem())))
            && path.is_file()
        {
            found.push((part, place, path));
        }
    }
    // Of several for one split, the first by the order of extensions; of several held-out ones, the first by theirs.
    found.sort_unstable();
    let first = |train: bool| found.iter().position(|(part, ..)| (*part == Part::Train) == train);
    let (Some(train), test) = (first(true), first(false)) else { return Ok(None) };
    let path = |i: usize| found[i].2.clone();
    let (train_list, test_list) = (path(train), test.map(path));
    let unused = (0..found.len()).filter(|&i| i != train && Some(i) != test).map(path).collect();
    Ok(Some(SplitLists { folder: folder.to_path_buf(), train: train_list, test: test_list, unused }))
}

impl SplitLists {
    /// The images of one split. The training list says what classes there are.
    pub(in super::super) fn open(&self, split: Split) -> Result<ListSource, OpenError> {
        let mut source = ListSource::open(&self.train)?;
        if split == Split::Test {
            let Some(test) = &self.test else { return Err(OpenError::NoTestSplit { path: self.folder.clone() }) };
            let held_out = ListSource::open(test)?;
            source = held_out.labelled_as(&source);
        }
        if let Some(first) = self.unused.first() {
            let remark = format!("{} not used, the first: {}", count(self.unused.len(), "list"), shown(first));
            source.parsed.remarks.push(remark);
        }
        Ok(source)
    }
}

impl ListSource {
    /// The same images with the classes of the training list; without labels where those are not enough.
    fn labelled_as(mut self, train: &ListSource) -> Self {
        let parsed = &mut self.parsed;
        if parsed.labels.is_empty() || parsed.class_names == train.parsed.class_names {
            return self;
        }
        let known: HashMap<&str, u32> = train.parsed.class_names.iter().map(String::as_str).zip(0..).collect();
        let new: Vec<Option<u32>> = parsed.class_names.iter().map(|name| known.get(name.as_str()).copied()).collect();
        let labels = parsed.labels.iter().map(|&label| new[label as usize]).collect::<Option<Vec<u32>>>();
        match labels {
            Some(labels) => {
                parsed.labels = labels;
                parsed.class_names = train.parsed.class_names.clone();
            }
            None => {
                let stray = parsed.labels.iter().find(|&&label| new[label as usize].is_none());
                let stray = stray.map_or("", |&label| &parsed.class_names[label as usize]);
                let (class, list) = (excerpt(stray), shown(&train.list));
                parsed.remarks.push(format!("these held-out images have no labels: `{class}` is no class of {list}"));
                parsed.labels = Vec::new();
                parsed.class_names = Vec::new();
            }
        }
        self
    }
}
