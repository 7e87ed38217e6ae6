//! Oxford Flowers-102: `jpg/image_NNNNN.jpg`, `imagelabels.mat` with a class from 1 for each image, and `setid.mat` with the numbers
//! from 1 of the images for training (`trnid`), validation (`valid`) and test (`tstid`).

use super::listing::{Named, broken, source};
use super::{OpenError, PublishedSets, matlab, root_of};
use std::path::Path;

pub(super) fn open(folder: &Path) -> Result<PublishedSets, OpenError> {
    let root = root_of(folder, &["flowers-102", "flowers102"], "setid.mat")?;
    let (labels_file, sets_file) = (root.join("imagelabels.mat"), root.join("setid.mat"));
    let labels = matlab::read(&labels_file)?.numbers("labels").map_err(|problem| broken(&labels_file, problem))?;
    let sets = matlab::read(&sets_file)?;
    if let Some(label) = labels.iter().find(|&&label| !(1..=1 << 16).contains(&label)) {
        return Err(broken(&labels_file, format!("has the label {label}: expected classes counted from 1")));
    }
    let last = labels.iter().max().copied().unwrap_or(0);
    // By number: the data set has no names.
    let classes: Vec<String> = (1..=last).map(|class| format!("{class:03}")).collect();
    let images = |name: &str| -> Result<Named, OpenError> {
        let numbers = sets.numbers(name).map_err(|problem| broken(&sets_file, problem))?;
        let image = |&number: &i64| {
            let label = usize::try_from(number - 1).ok().and_then(|index| labels.get(index));
            let label = label.ok_or_else(|| {
                broken(&sets_file, format!("`{name}` has image {number}, and there are {} labels", labels.len()))
            })?;
            Ok((format!("jpg/image_{number:05}.jpg"), format!("{label:03}")))
        };
        numbers.iter().map(image).collect()
    };
    Ok(PublishedSets {
        train: source(&root, &sets_file, images("trnid")?, &classes)?,
        validation: Some(source(&root, &sets_file, images("valid")?, &classes)?),
        test: source(&root, &sets_file, images("tstid")?, &classes)?,
    })
}
