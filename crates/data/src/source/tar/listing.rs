//! The images of the archives of one part, and what should be known about those archives.

use super::super::OpenError;
use super::super::passed_over::PassedOver;
use super::super::ranges::{Content, Names, Range, Table};
use super::members::Damage;
use super::samples;
use super::scan::{Contents, Counted};
use std::path::PathBuf;
use text::shown;

/// Damaged archives that are named one by one.
const NAMED: usize = 3;

/// The images of a part, in the order of the archives. Labels come later.
pub(super) struct Listing<'a> {
    pub archives: &'a [Contents],
    /// What to put before the names of an archive's images.
    shards: Vec<String>,
    /// The number of its archive and its name, for every image.
    pub images: Vec<(u32, &'a str)>,
    ranges: Vec<Range>,
    /// One for each image, or none at all.
    pub labels: Vec<u32>,
    pub class_names: Vec<String>,
    pub remarks: Vec<String>,
}

impl<'a> Listing<'a> {
    /// Lists what `archives` hold, which are in `files`. `several`: they are not all there is, and `shards` are their names.
    pub(super) fn new(
        files: &[PathBuf],
        archives: &'a [Contents],
        shards: &[String],
        several: bool,
    ) -> Result<Self, OpenError> {
        let mut remarks = damage(files, archives, several)?;
        let (mut unusable, mut others, mut extra) = (Counted::default(), Counted::default(), Counted::default());
        let mut passed_over = PassedOver::default();
        let samples = archives.iter().any(|archive| archive.samples);
        let (mut images, mut ranges) = (Vec::new(), Vec::new());
        for (archive, file) in archives.iter().zip(0..) {
            unusable.merge(archive.unusable.clone());
            others.merge(archive.others.clone());
            passed_over.merge(&archive.passed_over);
            let chosen = if samples { samples::choose(archive, &mut extra) } else { vec![true; archive.ranges.len()] };
            let all = archive.images.iter().zip(&archive.ranges).zip(chosen);
            for ((name, &(offset, bytes)), _) in all.filter(|(_, chosen)| *chosen) {
                images.push((file, name));
                ranges.push(Range { file, offset, bytes });
            }
        }
        if let Some(path) = files.first().filter(|_| images.is_empty()).cloned() {
            let (others, first_other) = (unusable.count + others.count, unusable.first.or(others.first));
            return Err(OpenError::NoImages { path, others, first_other, passed_over: passed_over.remark() });
        }
        if images.len() > u32::MAX as usize {
            let path = files.first().cloned().unwrap_or_default();
            return Err(OpenError::TooMany { path, count: images.len() });
        }
        for (counted, what) in [
            (&unusable, "image(s) left out that are links, sparse files or have names without end"),
            (&extra, "image(s) left out that belong to a sample with a better one"),
        ] {
            if let Some(first) = &counted.first {
                remarks.push(format!("{} {what}, the first: {}", counted.count, first));
            }
        }
        remarks.extend(passed_over.remark());
        let shards = shards.iter().map(|name| format!("{name}/")).collect();
        Ok(Self { archives, shards, images, ranges, labels: Vec::new(), class_names: Vec::new(), remarks })
    }

    /// The table of this part. `files` are where the plain archives are.
    pub(super) fn into_table(self, files: Vec<PathBuf>) -> Table {
        let mut names = Names::default();
        for (file, name) in self.images {
            let shard = self.shards.get(file as usize).map_or("", String::as_str);
            names.push(&format!("{shard}{name}"));
        }
        let Self { ranges, labels, class_names, remarks, .. } = self;
        Table { ranges, names, labels, class_names, remarks, ..Table::of_files(files, Content::File) }
    }
}

/// Remarks about damaged archives; an error where one is no archive at all, or nothing and all there is.
fn damage(files: &[PathBuf], archives: &[Contents], several: bool) -> Result<Vec<String>, OpenError> {
    let mut remarks = Vec::new();
    for (file, archive) in files.iter().zip(archives) {
        let is_empty = archive.images.len() + archive.others.count + archive.unusable.count + archive.labels.len() == 0;
        let refused = |problem: String| OpenError::Format { path: file.clone(), problem };
        let problem = match &archive.damage {
            Some(Damage::At(0)) => {
                return Err(refused("not a tar archive: its first header is damaged".to_owned()));
            }
            Some(Damage::At(byte)) => format!("damaged at byte {byte}; what comes after is not used"),
            Some(Damage::CutShort) => match &archive.last {
                Some(name) => format!("ends in the middle of {name}. Was it copied completely?"),
                None if is_empty => {
                    let problem = "empty, or cut off before its first file. Was it copied completely?".to_owned();
                    if !several {
                        return Err(refused(problem));
                    }
                    problem
                }
                None => "is cut short. Was it copied completely?".to_owned(),
            },
            None if is_empty && several => "an empty archive".to_owned(),
            None => continue,
        };
        remarks.push(format!("{}: {problem}", shown(file)));
    }
    if remarks.len() > NAMED {
        let more = remarks.len() - NAMED;
        remarks.truncate(NAMED);
        remarks.push(format!("{more} more archives are damaged or empty"));
    }
    Ok(remarks)
}
