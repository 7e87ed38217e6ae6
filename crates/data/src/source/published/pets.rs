//! Oxford-IIIT Pets: `images/NAME_NNN.jpg`, and `annotations/{trainval,test}.txt` with a name, a breed from 1, a species and a number
//! within it a line.

use super::listing::{Named, broken, lines, source};
use super::{OpenError, PublishedSets, root_of};
use std::collections::BTreeMap;
use std::path::Path;

pub(super) fn open(folder: &Path) -> Result<PublishedSets, OpenError> {
    let root = root_of(folder, &["oxford-iiit-pet"], "annotations/trainval.txt")?;
    let list = |part: &str| root.join(format!("annotations/{part}.txt"));
    let read = |part: &str| -> Result<Vec<(String, u32)>, OpenError> {
        lines(&list(part), |line| {
            let mut fields = line.split_whitespace();
            Some((fields.next()?.to_owned(), fields.next()?.parse().ok().filter(|&breed| breed > 0)?))
        })
    };
    let (train, test) = (read("trainval")?, read("test")?);
    // By the number, whose order others use too; the name is that of an image without its own number.
    let mut names: BTreeMap<u32, String> = BTreeMap::new();
    for (image, breed) in train.iter().chain(&test) {
        let name = image.rsplit_once('_').map_or(image.as_str(), |(name, _)| name);
        let known = names.entry(*breed).or_insert_with(|| name.to_owned());
        if known != name {
            return Err(broken(&list("trainval"), format!("breed {breed} is both {known} and {name}")));
        }
    }
    let classes: Vec<String> = names.values().cloned().collect();
    let named = |images: Vec<(String, u32)>| -> Named {
        images.into_iter().map(|(image, breed)| (format!("images/{image}.jpg"), names[&breed].clone())).collect()
    };
    let train = source(&root, &list("trainval"), named(train), &classes)?;
    Ok(PublishedSets { train, validation: None, test: source(&root, &list("test"), named(test), &classes)? })
}
