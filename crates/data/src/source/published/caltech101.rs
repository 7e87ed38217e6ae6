//! Caltech-101: `101_ObjectCategories/CLASS/image_NNNN.jpg`, with `BACKGROUND_Google` as a class of its own.
//!
//! The download has no split. Where `train.txt` and `test.txt` lie beside the folder of images, with a `CLASS/image_NNNN.jpg` a
//! line, they are it. Otherwise 30 draws of each class, with replacement and each image once, are for training and the
//! others for the test, which is how the lists of the protocol came about.

use super::super::folder_index::is_image;
use super::listing::{Named, broken, classes_of, lines, source};
use super::{OpenError, PublishedSets, root_of};
use random::{Key, Purpose};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const IMAGES: &str = "101_ObjectCategories";
/// Draws of each class.
const DRAWS: usize = 30;

pub(super) fn open(folder: &Path, seed: u64) -> Result<PublishedSets, OpenError> {
    let root = root_of(folder, &["caltech101", "caltech-101"], IMAGES)?;
    let images = root.join(IMAGES);
    let (train_list, test_list) = (root.join("train.txt"), root.join("test.txt"));
    if train_list.is_file() && test_list.is_file() {
        let read = |list: &Path| -> Result<Named, OpenError> {
            lines(list, |line| Some((line.to_owned(), line.split_once('/')?.0.to_owned())))
        };
        let (train, test) = (read(&train_list)?, read(&test_list)?);
        let classes = classes_of(&[&train, &test]);
        let train = source(&images, &train_list, train, &classes)?;
        return Ok(PublishedSets { train, validation: None, test: source(&images, &test_list, test, &classes)? });
    }
    let (mut train, mut test) = (Named::new(), Named::new());
    for (number, class) in names_in(&images, |path| path.is_dir())?.into_iter().enumerate() {
        let files = names_in(&images.join(&class), |path| path.is_file() && path.file_name().is_some_and(is_image))?;
        if files.is_empty() {
            continue;
        }
        let mut stream = Key::new(seed, Purpose::Subset).sample(number as u64).stream();
        let drawn: BTreeSet<usize> = (0..DRAWS).map(|_| stream.below(files.len() as u64) as usize).collect();
        for (at, file) in files.into_iter().enumerate() {
            let set = if drawn.contains(&at) { &mut train } else { &mut test };
            set.push((format!("{class}/{file}"), class.clone()));
        }
    }
    let classes = classes_of(&[&train, &test]);
    if test.is_empty() {
        return Err(broken(&images, "has no images left for the test: too few in every class".to_owned()));
    }
    let train = source(&images, &images, train, &classes)?;
    Ok(PublishedSets { train, validation: None, test: source(&images, &images, test, &classes)? })
}

/// Names in a folder of which `keep` holds, sorted.
fn names_in(folder: &Path, keep: impl Fn(&Path) -> bool) -> Result<Vec<String>, OpenError> {
    let refused = |source| OpenError::Io { path: folder.to_path_buf(), source };
    let entries = fs::read_dir(folder).map_err(refused)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()).map_err(refused)).collect::<Result<Vec<_>, _>>()?;
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let mut names: Vec<String> = paths.iter().filter(|path| keep(path)).filter_map(|path| name(path)).collect();
    names.sort();
    Ok(names)
}
