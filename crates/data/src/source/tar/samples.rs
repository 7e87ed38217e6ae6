//! Which images count, and their classes: from `.cls` members, or from the folders inside the archives.

use super::super::folder_index::TEST_FOLDERS;
use super::super::printable;
use super::super::ranges::MAX_CLASSES;
use super::scan::{Contents, Counted, key};
use crate::decode::EXTENSIONS;
use std::collections::{BTreeSet, HashMap};

/// For every image of an archive, whether it counts: of several with the same key, which are one sample (a photograph
/// and its mask), only one does. An extension without a dot in it goes first (`jpg` before `seg.png`), then the order
/// of [`EXTENSIONS`].
pub(super) fn choose(contents: &Contents, extra: &mut Counted) -> Vec<bool> {
    let images = || contents.images.iter().enumerate();
    let mut best: HashMap<&str, (usize, usize)> = HashMap::with_capacity(contents.images.len());
    for (i, name) in images() {
        let (key, extension) = key(name);
        let candidate = (rank(extension), i);
        best.entry(key).and_modify(|best| *best = candidate.min(*best)).or_insert(candidate);
    }
    let mut chosen = vec![false; contents.images.len()];
    best.values().for_each(|&(_, i)| chosen[i] = true);
    images().filter(|&(i, _)| !chosen[i]).for_each(|(_, name)| extra.add(name));
    chosen
}

fn rank(extension: &str) -> usize {
    let known = |e: &str| EXTENSIONS.iter().position(|known| known.eq_ignore_ascii_case(e));
    known(extension).unwrap_or(EXTENSIONS.len())
}

/// Labels of the images named `images`, image by image with the number of its archive, from `.cls` members.
pub(super) fn stated_labels(
    archives: &[Contents],
    images: &[(u32, &str)],
    remarks: &mut Vec<String>,
) -> (Vec<u32>, Vec<String>) {
    let maps: Vec<HashMap<&str, Option<u32>>> = archives.iter().map(label_map).collect();
    let label = |&(archive, name): &(u32, &str)| {
        let label = maps.get(archive as usize).and_then(|map| map.get(key(name).0)).copied().flatten();
        label.filter(|&label| label < MAX_CLASSES)
    };
    let labels: Vec<Option<u32>> = images.iter().map(label).collect();
    let mut without = Counted::default();
    labels.iter().zip(images).filter(|(label, _)| label.is_none()).for_each(|(_, (_, name))| without.add(name));
    if let Some(first) = without.first {
        remarks.push(format!(
            "labels are not used: {} of {} images have no .cls member with a class number below {MAX_CLASSES}, the \
             first: {}",
            without.count,
            images.len(),
            printable(&first)
        ));
        return (Vec::new(), Vec::new());
    }
    let labels: Vec<u32> = labels.into_iter().flatten().collect();
    let classes = labels.iter().max().map_or(0, |&label| label + 1);
    (labels, (0..classes).map(|class| class.to_string()).collect())
}

fn label_map(archive: &Contents) -> HashMap<&str, Option<u32>> {
    archive.label_keys.iter().zip(archive.labels.iter().copied()).collect()
}

/// Labels from folders, where every image lies in one of at least two: those directly below the folder that all images
/// share, or, where these are `train` and `val`, the ones below them.
pub(super) fn folder_labels(images: &[(u32, &str)], remarks: &mut Vec<String>) -> (Vec<u32>, Vec<String>) {
    let none = (Vec::new(), Vec::new());
    let Some(&(_, first)) = images.first() else { return none };
    let mut shared: Vec<&str> = folders(first).collect();
    for (_, name) in images {
        let same = shared.iter().zip(folders(name)).take_while(|(a, b)| *a == b).count();
        shared.truncate(same);
    }
    let mut depth = shared.len();
    let Some(mut used) = level(images, depth) else { return none };
    let mut distinct: BTreeSet<&str> = used.iter().copied().collect();
    if distinct.contains("train") && distinct.iter().all(|name| *name == "train" || TEST_FOLDERS.contains(name)) {
        // Parts in archives of their own are told apart by those.
        let pairs: BTreeSet<(u32, &str)> =
            images.iter().zip(&used).map(|((archive, _), name)| (*archive, *name)).collect();
        let archives: BTreeSet<u32> = pairs.iter().map(|(archive, _)| *archive).collect();
        if pairs.len() > archives.len() {
            let parts: Vec<&str> = distinct.iter().copied().collect();
            remarks.push(format!("the folders {} inside one archive are all used, as one set", parts.join(", ")));
        }
        depth += 1;
        match level(images, depth) {
            Some(below) => used = below,
            None => return none,
        }
        distinct = used.iter().copied().collect();
    }
    if distinct.len() < 2 {
        return none;
    }
    let numbers: HashMap<&str, u32> = distinct.iter().copied().zip(0..).collect();
    let labels = used.iter().filter_map(|name| numbers.get(name).copied()).collect();
    (labels, distinct.into_iter().map(str::to_owned).collect())
}

/// The folder of every image at some depth, if all have one.
fn level<'a>(images: &[(u32, &'a str)], depth: usize) -> Option<Vec<&'a str>> {
    images.iter().map(|(_, name)| folders(name).nth(depth)).collect()
}

/// The folders above a file, outermost first. Steps up (`..`) lead nowhere in an archive.
fn folders(name: &str) -> impl Iterator<Item = &str> {
    let above = name.rfind('/').map_or("", |slash| &name[..slash]);
    above.split('/').filter(|part| !matches!(*part, "" | "." | ".."))
}
