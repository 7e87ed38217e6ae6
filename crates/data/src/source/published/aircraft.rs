//! FGVC-Aircraft: `data/images/NNNNNNN.jpg`, and `data/images_variant_{train,val,test}.txt` with a number and a variant a line.

use super::listing::{Named, classes_of, lines, source};
use super::{OpenError, PublishedSets, root_of};
use std::path::Path;

pub(super) fn open(folder: &Path) -> Result<PublishedSets, OpenError> {
    let root = root_of(folder, &["data", "fgvc-aircraft-2013b/data"], "images_variant_train.txt")?;
    let list = |part: &str| root.join(format!("images_variant_{part}.txt"));
    // A variant may have spaces in its name: `EMB-120`, but also `DC-9-30` and `An-12 B`.
    let read = |part: &str| -> Result<Named, OpenError> {
        lines(&list(part), |line| {
            let (number, variant) = line.split_once(char::is_whitespace)?;
            Some((format!("images/{number}.jpg"), variant.trim().to_owned()))
        })
    };
    let (train, validation, test) = (read("train")?, read("val")?, read("test")?);
    let classes = classes_of(&[&train, &validation, &test]);
    Ok(PublishedSets {
        train: source(&root, &list("train"), train, &classes)?,
        validation: Some(source(&root, &list("val"), validation, &classes)?),
        test: source(&root, &list("test"), test, &classes)?,
    })
}
