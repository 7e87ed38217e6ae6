//! Describable Textures: `images/CLASS/CLASS_NNNN.jpg`, and `labels/{train,val,test}1.txt` with a path a line.

use super::listing::{Named, classes_of, lines, source};
use super::{OpenError, PublishedSets, root_of};
use std::path::Path;

pub(super) fn open(folder: &Path) -> Result<PublishedSets, OpenError> {
    let root = root_of(folder, &["dtd"], "labels/train1.txt")?;
    let list = |part: &str| root.join(format!("labels/{part}1.txt"));
    let read = |part: &str| -> Result<Named, OpenError> {
        lines(&list(part), |line| Some((format!("images/{line}"), line.split_once('/')?.0.to_owned())))
    };
    let (train, validation, test) = (read("train")?, read("val")?, read("test")?);
    let classes = classes_of(&[&train, &validation, &test]);
    Ok(PublishedSets {
        train: source(&root, &list("train"), train, &classes)?,
        validation: Some(source(&root, &list("val"), validation, &classes)?),
        test: source(&root, &list("test"), test, &classes)?,
    })
}
