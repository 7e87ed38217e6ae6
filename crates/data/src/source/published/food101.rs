//! Food-101: `images/CLASS/NNNN.jpg`, and `meta/{train,test}.json`, an object with a list of `CLASS/NNNN` for each class.

use super::listing::{Named, broken, classes_of, source, text_of};
use super::{OpenError, PublishedSets, root_of};
use std::collections::BTreeMap;
use std::path::Path;

pub(super) fn open(folder: &Path) -> Result<PublishedSets, OpenError> {
    let root = root_of(folder, &["food-101"], "meta/train.json")?;
    let list = |part: &str| root.join(format!("meta/{part}.json"));
    let read = |part: &str| -> Result<Named, OpenError> {
        let path = list(part);
        let by_class: BTreeMap<String, Vec<String>> = serde_json::from_str(&text_of(&path)?)
            .map_err(|error| broken(&path, format!("is no object of lists of images: {error}")))?;
        let of_class = |(class, images): (String, Vec<String>)| {
            images.into_iter().map(move |image| (format!("images/{image}.jpg"), class.clone()))
        };
        Ok(by_class.into_iter().flat_map(of_class).collect())
    };
    let (train, test) = (read("train")?, read("test")?);
    let classes = classes_of(&[&train, &test]);
    let train = source(&root, &list("train"), train, &classes)?;
    Ok(PublishedSets { train, validation: None, test: source(&root, &list("test"), test, &classes)? })
}
