//! Which images count, and their classes: from `.cls` members, or from the folders inside the archives.

use super::super::parts::Part;
use super::super::ranges::MAX_CLASSES;
use super::listing::Listing;
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

/// Labels both parts. The training part says what classes there are; the held-out part is labelled by them or not at all.
pub(super) fn label<'a>(train: &mut Listing<'a>, test: &mut Listing<'a>) {
    if train.archives.iter().any(|archive| !archive.labels.is_empty()) {
        let Some(labels) = stated_labels(train) else { return };
        train.labels = labels;
        test.labels = stated_labels(test).unwrap_or_default();
        let classes = train.labels.iter().chain(&test.labels).max().map_or(0, |&label| label + 1);
        for part in [train, test].into_iter().filter(|part| !part.labels.is_empty()) {
            part.class_names = (0..classes).map(|class| class.to_string()).collect();
        }
    } else if let Some((labels, classes)) = folder_labels(&train.images, &mut train.remarks) {
        if let Some(labels) = known_labels(test, &classes) {
            test.labels = labels;
            test.class_names = classes.clone();
        }
        train.labels = labels;
        train.class_names = classes;
    }
}

/// Labels from `.cls` members, where every image has one.
fn stated_labels(part: &mut Listing) -> Option<Vec<u32>> {
    let maps: Vec<HashMap<&str, Option<u32>>> = part.archives.iter().map(label_map).collect();
    let label = |&(archive, name): &(u32, &str)| {
        let label = maps.get(archive as usize).and_then(|map| map.get(key(name).0)).copied().flatten();
        label.filter(|&label| label < MAX_CLASSES)
    };
    let labels: Vec<Option<u32>> = part.images.iter().map(label).collect();
    let mut without = Counted::default();
    labels.iter().zip(&part.images).filter(|(label, _)| label.is_none()).for_each(|(_, (_, name))| without.add(name));
    if let Some(first) = without.first {
        part.remarks.push(format!(
            "labels are not used: {} of {} images have no .cls member with a class number below {MAX_CLASSES}, the \
             first: {}",
            without.count,
            part.images.len(),
            first
        ));
        return None;
    }
    Some(labels.into_iter().flatten().collect())
}

fn label_map(archive: &Contents) -> HashMap<&str, Option<u32>> {
    archive.label_keys.iter().zip(archive.labels.iter().copied()).collect()
}

/// Labels and classes from folders, where every image lies in one of at least two: those directly below the folder that
/// all images share, or, where these are parts (`train` and `val`), the ones below them.
fn folder_labels(images: &[(u32, &str)], remarks: &mut Vec<String>) -> Option<(Vec<u32>, Vec<String>)> {
    let mut depth = shared_depth(images);
    let mut used = level(images, depth)?;
    let mut distinct: BTreeSet<&str> = used.iter().copied().collect();
    if distinct.iter().all(|name| Part::of_folder(name).is_some()) {
        let parts: Vec<&str> = distinct.iter().copied().collect();
        remarks.push(format!("the folders {} inside the archives are all used, as one set", parts.join(", ")));
        depth += 1;
        used = level(images, depth)?;
        distinct = used.iter().copied().collect();
    }
    if distinct.len() < 2 {
        return None;
    }
    let numbers: HashMap<&str, u32> = distinct.iter().copied().zip(0..).collect();
    let labels = used.iter().filter_map(|name| numbers.get(name).copied()).collect();
    Some((labels, distinct.into_iter().map(str::to_owned).collect()))
}

/// Labels from folders that are among these classes, sorted, below a folder that all images share.
fn known_labels(part: &mut Listing, classes: &[String]) -> Option<Vec<u32>> {
    let label = |name: &str| classes.binary_search_by(|class| class.as_str().cmp(name)).ok().map(|label| label as u32);
    let at = |depth| level(&part.images, depth)?.into_iter().map(label).collect::<Option<Vec<u32>>>();
    let labels = (0..=shared_depth(&part.images)).find_map(at);
    let stray = part.images.iter().find(|(_, name)| !folders(name).any(|folder| label(folder).is_some()));
    if let (None, Some((_, name))) = (&labels, stray.or(part.images.first())) {
        let shown = *name;
        part.remarks.push(format!(
            "these held-out images have no labels: not all lie in a folder that is a class of the training part, for \
             instance {shown}"
        ));
    }
    labels
}

/// How many folders above them all images share.
fn shared_depth(images: &[(u32, &str)]) -> usize {
    let mut shared: Vec<&str> = images.first().map(|(_, first)| folders(first).collect()).unwrap_or_default();
    for (_, name) in images {
        let same = shared.iter().zip(folders(name)).take_while(|(a, b)| *a == b).count();
        shared.truncate(same);
    }
    shared.len()
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
