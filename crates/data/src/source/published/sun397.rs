//! SUN397: `a/abbey/sun_X.jpg` and so on, and `Training_01.txt` and `Testing_01.txt`, beside the images or in `Partitions`, with
//! such a path behind a slash a line. A class is a folder of images: `/a/airplane_cabin`, `/c/church/indoor`.

use super::listing::{Named, classes_of, lines, source};
use super::{OpenError, PublishedSets, root_of};
use std::path::Path;

pub(super) fn open(folder: &Path) -> Result<PublishedSets, OpenError> {
    let lists = root_of(folder, &["Partitions", "SUN397", "SUN397/Partitions"], "Training_01.txt")?;
    // The partitions are an archive of their own, and may have been put beside the images or below them.
    let images = root_of(folder, &["SUN397"], "a")?;
    let read = |name: &str| -> Result<Named, OpenError> {
        lines(&lists.join(name), |line| {
            let path = line.trim_start_matches('/');
            Some((path.to_owned(), format!("/{}", path.rsplit_once('/')?.0)))
        })
    };
    let (train, test) = (read("Training_01.txt")?, read("Testing_01.txt")?);
    let classes = classes_of(&[&train, &test]);
    let train = source(&images, &lists.join("Training_01.txt"), train, &classes)?;
    Ok(PublishedSets { train, validation: None, test: source(&images, &lists.join("Testing_01.txt"), test, &classes)? })
}
